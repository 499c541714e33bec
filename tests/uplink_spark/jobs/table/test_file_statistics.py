"""Statistics in Delta's log hold every value of the file, and nothing where they could not."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from uplink_spark.jobs.table.file_statistics import MAX_TEXT, statistics_of

TIMES = [datetime(2026, 11, 3, 4, 5, 6, micros, UTC) for micros in (1_999, 500_001)]


def told(path: Path, columns: dict[str, pa.Array], rows_a_group: int = 1) -> dict[str, dict[str, object]]:
    pq.write_table(pa.table(columns), path, row_group_size=rows_a_group)
    found: dict[str, dict[str, object]] = json.loads(statistics_of(pq.read_metadata(path)))
    return found


def test_bounds_span_all_row_groups_and_times_are_rounded_outwards_to_milliseconds(tmp_path: Path) -> None:
    found = told(
        tmp_path / "a",
        {
            "box": pa.array(["b", "ä"]),
            "seq": pa.array([-5, 1 << 60]),
            "store_time": pa.array(TIMES, pa.timestamp("us", "UTC")),
            "body": pa.array([b"x", b"y"]),
        },
    )
    assert found == {
        "numRecords": 2,
        "minValues": {"box": "b", "seq": -5, "store_time": "2026-11-03T04:05:06.001Z"},
        "maxValues": {"box": "ä", "seq": 1 << 60, "store_time": "2026-11-03T04:05:06.501Z"},
        "nullCount": {"box": 0, "seq": 0, "store_time": 0},
    }


def test_a_column_without_values_has_a_count_of_nulls_alone(tmp_path: Path) -> None:
    found = told(tmp_path / "a", {"topic": pa.array([None, None], pa.string()), "seq": pa.array([None, 3])})
    assert found["nullCount"] == {"topic": 2, "seq": 1}
    assert (found["minValues"], found["maxValues"]) == ({"seq": 3}, {"seq": 3})


def test_long_text_has_no_bounds(tmp_path: Path) -> None:
    found = told(tmp_path / "a", {"topic": pa.array(["a", "b" * (MAX_TEXT + 1)])})
    assert found["nullCount"] == {"topic": 0}
    assert not found["minValues"]


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    found = told(tmp_path / "a", {"topic": pa.array([], pa.string())})
    assert not found["numRecords"]
    assert not found["minValues"]
