"""Files of a table: few row groups however small the batches, pages as readers and disks like them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from uplink_spark.jobs.table import parquet
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.spark.rows import EVERYTHING, SCHEMA, Origin, RawPiece, decode
from uplink_spark.testing import MadeRecord, encode_log


def batches(count: int, records: int) -> list[pa.RecordBatch]:
    made: list[pa.RecordBatch] = []
    at = 0
    for number in range(count):
        raw = encode_log(
            [MadeRecord(queue_offset=n, body=b"x" * 100, properties="TAGS\x01a") for n in range(records)], at
        )
        made.append(decode([RawPiece(Origin("b", 1, 0, number, 0, 1 << 60, 1, True), raw)], EVERYTHING))
        at += len(raw)
    return made


@pytest.mark.slow
def test_small_batches_share_a_row_group_and_come_back_as_they_were(tmp_path: Path) -> None:
    given = batches(20, 50)
    entry = write_file(str(tmp_path), "2026-11-03", SCHEMA, given, part="data")
    file = pq.ParquetFile(tmp_path / entry.path)
    assert file.metadata.num_row_groups == 1
    assert entry.rows == 1000
    assert file.read().cast(SCHEMA).equals(pa.Table.from_batches(given))


@pytest.mark.slow
def test_a_row_group_ends_before_a_worker_holds_too_much(tmp_path: Path) -> None:
    given = batches(6, 50)
    before, parquet.ROW_GROUP_BYTES = parquet.ROW_GROUP_BYTES, 3 * given[0].nbytes
    try:
        entry = write_file(str(tmp_path), "2026-11-03", SCHEMA, given, part="data")
    finally:
        parquet.ROW_GROUP_BYTES = before
    assert pq.ParquetFile(tmp_path / entry.path).metadata.num_row_groups == 2


def test_offsets_are_stored_as_differences_and_bodies_without_statistics(tmp_path: Path) -> None:
    entry = write_file(str(tmp_path), "2026-11-03", SCHEMA, batches(1, 500), part="data")
    group = pq.ParquetFile(tmp_path / entry.path).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["log_offset"].encodings
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert columns["log_offset"].is_stats_set
    assert not columns["body"].is_stats_set


def test_the_values_of_partitions_are_in_the_path_for_readers_that_take_them_from_there(tmp_path: Path) -> None:
    columns = pa.schema([("box", pa.string())])
    entry = write_file(str(tmp_path), "2026-11-03", columns, [pa.record_batch({"box": ["a"]}, columns)], part="gaps")
    found = dataset.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert [(row["box"], row["part"], row["landed_day"]) for row in found] == [("a", entry.part, entry.day)]
