"""A job handed to the real spark-submit, away from the checkout, as docs/spark.md tells to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from uplink_spark.jobs import bronze
from uplink_spark.jobs.bronze import BronzeConfig
from uplink_spark.jobs.delta import Table
from uplink_spark.jobs.session import PACKAGES
from uplink_spark.jobs.testing import Fleet, in_table


@pytest.mark.slow
def test_spark_submit_runs_the_bronze_job_and_its_settings_win(
    tmp_path: Path, fleet: Fleet, config: BronzeConfig, spark_home: dict[str, str]
) -> None:
    for number in range(4):
        fleet.land(f"box-{number % 2}", 50)
    events = tmp_path / "events"
    events.mkdir()
    given = {
        "spark.sql.shuffle.partitions": "3",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    command = [str(Path(spark_home["SPARK_HOME"], "bin/spark-submit")), "--master", "local[2]", "--name", "nightly"]
    command += [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    command += [bronze.__file__, "--once", "--landing", config.landing, "--table", config.table]
    ran = subprocess.run(
        [*command, "--checkpoint", config.checkpoint],
        cwd=tmp_path,
        env=os.environ | spark_home | {"PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert f"rows={sum(fleet.expected.values())}" in ran.stdout
    assert in_table(config.table) == fleet.expected
    assert Table(config.table).snapshot().end == {"0": 4}
    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    (settings,) = (event["Spark Properties"] for event in told if event["Event"] == "SparkListenerEnvironmentUpdate")
    assert settings.items() >= given.items()  # not the job's own
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"
