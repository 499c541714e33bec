from pathlib import Path

from uplink_spark.jobs.metrics import JobMetrics


def test_the_text_is_what_prometheus_reads(tmp_path: Path) -> None:
    metrics = JobMetrics("bronze", lag_entries=3, lag_seconds=1.5, conflicts=1)
    metrics.rows["bronze"] += 320
    for seconds in (0.4, 0.5, 7.0, 900.0):
        metrics.note_batch(seconds)
    metrics.write(str(tmp_path / "bronze.prom"))
    lines = (tmp_path / "bronze.prom").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'rocketbox_spark_manifest_lag_entries{consumer="bronze"} 3',
        'rocketbox_spark_manifest_lag_seconds{consumer="bronze"} 1.5',
        'rocketbox_spark_rows_total{table="bronze"} 320',
        "rocketbox_spark_commit_conflicts_total 1",
        'rocketbox_spark_batch_seconds_bucket{le="0.5"} 2',
        'rocketbox_spark_batch_seconds_bucket{le="1"} 2',
        'rocketbox_spark_batch_seconds_bucket{le="2"} 2',
        'rocketbox_spark_batch_seconds_bucket{le="5"} 2',
        'rocketbox_spark_batch_seconds_bucket{le="10"} 3',
        'rocketbox_spark_batch_seconds_bucket{le="30"} 3',
        'rocketbox_spark_batch_seconds_bucket{le="60"} 3',
        'rocketbox_spark_batch_seconds_bucket{le="300"} 3',
        'rocketbox_spark_batch_seconds_bucket{le="+Inf"} 4',
        "rocketbox_spark_batch_seconds_sum 907.9",
        "rocketbox_spark_batch_seconds_count 4",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "bronze.prom"]
