"""Care of a table: few large sorted files, no unlisted leftovers, old days out. Readers never notice.

Each change is one commit that fails if another change of files came meanwhile, so it may race with the writers and
may be killed anywhere: what no commit lists is removed by a later `vacuum`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from uplink_spark.jobs import tables
from uplink_spark.jobs.bronze import stop_at
from uplink_spark.jobs.table.commits import DataFile, NewFile, Snapshot, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.table.swap import swap
from uplink_spark.jobs.z_order import AXES, PLACE, with_place

MIB = 1 << 20
TARGET_BYTES = 256 * MIB
ORDER = ("box", "topic", "from_offset", "store_time", "minute", "received_ms")
KEYS = {
    "log_offset": ("box", "epoch", "log_offset"),
    "minute": ("box", "topic", "minute", "bronze_version"),
    "seq": ("shard", "seq"),
    "received_ms": ("box", "epoch", "received_ms"),
    "from_offset": ("box", "epoch", "from_offset", "to_offset", "topic", "queue_id"),
}


@dataclass(frozen=True, slots=True)
class CareResult:
    """What a run of care did."""

    files_before: int
    files_after: int
    rows: int


def compact(
    spark: SparkSession, root: str, day: str, *, target_bytes: int = TARGET_BYTES, z_order: bool = False
) -> CareResult:
    """Rewrite the files of a landed day, of each part into files of about target_bytes, sorted by box, topic, time, or
    along a z-curve over box and topic.

    Raises TableError where the rows would not be the same, or another program changed the same files meanwhile.
    """
    table = tables.open_table(root)
    before = table.snapshot()
    old = [file for file in before.files.values() if file.day == day]
    left = 0
    for part in sorted({file.part for file in old}):
        of_part = [file for file in old if file.part == part]
        left += _compact_part(spark, table, of_part, target_bytes, z_order=z_order)
    return CareResult(len(old), left, sum(file.rows for file in old if file.part == "data"))


def _compact_part(
    spark: SparkSession, table: Table, old: list[DataFile], target_bytes: int, *, z_order: bool = False
) -> int:
    """Return how many files stand for the old ones."""
    count = max(1, round(sum(file.bytes for file in old) / target_bytes))
    if len(old) <= count:
        return len(old)
    schema = tables.spark_schema(table, old[0].part, foreign=True)
    rows = tables.read_files(spark, table, old, schema)
    new = _rewrite(arranged(rows, count, z_order=z_order), table, old[0])
    stop_at("C1")
    written = tables.read_files(spark, table, [DataFile(file.path, file.rows, file.bytes) for file in new], schema)
    if _key_sum(rows) != _key_sum(written):
        raise TableError(f"compacting {old[0].day} of {table.root} would change rows; nothing was committed")
    swap(table, old, new)
    return len(new)


def arranged(rows: DataFrame, count: int, *, z_order: bool = False) -> DataFrame:
    """Return the rows in `count` partitions: sorted, or along a z-curve where they have topics."""
    order = [name for name in ORDER if name in rows.columns]
    if z_order and set(AXES) <= set(rows.columns):
        placed = with_place(rows)
        return placed.repartitionByRange(count, PLACE, *order).sortWithinPartitions(PLACE, *order).drop(PLACE)
    return rows.repartitionByRange(count, *order).sortWithinPartitions(*order)


def _rewrite(rows: DataFrame, table: Table, like: DataFile) -> list[NewFile]:
    schema, root, day, part = to_arrow_schema(rows.schema, timezone="UTC"), table.root, like.day, like.part

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = write_file(root, day, schema, (_as(batch, schema) for batch in batches), part=part)
        yield pa.RecordBatch.from_pylist([{"file": json.dumps(asdict(file))}], pa.schema([("file", pa.string())]))

    written = [NewFile(**json.loads(row["file"])) for row in rows.mapInArrow(write, "file string").collect()]
    return [file for file in written if file.rows]


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def _key_sum(rows: DataFrame) -> tuple[Any, ...]:
    """Return count and an order-free checksum of the keys; xor, since a sum of hashes overflows in ANSI mode."""
    keys = next(columns for name, columns in KEYS.items() if name in rows.columns)
    found = rows.agg(F.count("*"), F.bit_xor(F.xxhash64(*keys)), F.bit_xor(F.xxhash64(F.lit(7), *keys))).collect()[0]
    return tuple(found)


def days(snapshot: Snapshot) -> list[str]:
    """Return the landed days of a table, oldest first."""
    return sorted({file.day for file in snapshot.files.values()})


def expire(root: str, keep_days: int, *, now_ms: int | None = None) -> CareResult:
    """Take whole landed days older than keep_days out of the table; gaps and ranges stay."""
    table = tables.open_table(root)
    now = datetime.fromtimestamp((now_ms or time.time_ns() // 1_000_000) / 1000, UTC)
    first_kept = (now - timedelta(days=keep_days)).date().isoformat()
    files = table.snapshot().part("data")
    old = [file for file in files if file.day < first_kept]
    if old:
        swap(table, old, [], leave=True)
    return CareResult(len(files), len(files) - len(old), sum(file.rows for file in old))


def vacuum(root: str, keep_days: float, *, min_age_hours: float = 24) -> list[str]:
    """Remove files that no version of the last keep_days lists and that are older than min_age_hours; return them.

    Whatever lies in the folder counts, other than in folders whose names begin with an underscore.
    """
    hours = max(round(keep_days * 24), round(min_age_hours))
    opened = tables.open_table(root).open()
    if opened is None:
        return []
    return sorted(opened.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))
