"""Care of a table: few large sorted files, no unlisted leftovers, old days out. Readers never notice.

Each change is one commit that fails if a file it replaces is no longer listed, so it may race with the writers and
may be killed anywhere: what no commit lists is removed by a later `vacuum`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from uplink_spark.jobs import tables
from uplink_spark.jobs.bronze import stop_at
from uplink_spark.jobs.commits import COMMITS, Conflict, DataFile, Snapshot, Table, TableError, Version
from uplink_spark.jobs.parquet import folder_of, write_file

MIB = 1 << 20
TARGET_BYTES = 256 * MIB
ORDER = ("box", "topic", "store_time", "minute")
KEYS = {"log_offset": ("box", "epoch", "log_offset"), "minute": ("box", "topic", "minute", "bronze_version")}
PARTS = ("data", "ranges", "gaps")
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class CareResult:
    """What a run of care did."""

    version: int  # 0: nothing to do
    files_before: int
    files_after: int
    rows: int


def compact(spark: SparkSession, root: str, day: str, *, target_bytes: int = TARGET_BYTES) -> CareResult:
    """Rewrite the data files of a landed day into files of about target_bytes, sorted by box, topic and time.

    Raises TableError where the rows would not be the same.
    """
    table = tables.open_table(root)
    before = table.snapshot()
    old = [file for found, file in tables.files_of_days(before, "data") if found == day]
    count = max(1, round(sum(file.bytes for file in old) / target_bytes))
    if len(old) <= count:
        return CareResult(0, len(old), len(old), sum(file.rows for file in old))
    schema = tables.spark_schema(table, before)
    rows = tables.read_files(spark, table, old, schema)
    new = _rewrite(rows, table, day, count)
    stop_at("C1")
    if _key_sum(rows) != _key_sum(tables.read_files(spark, table, new, schema)):
        raise TableError(f"compacting {day} of {root} would change rows; nothing was committed")
    version = replace(table, "compact", old, new)
    return CareResult(version, len(old), len(new), sum(file.rows for file in new))


def _rewrite(rows: DataFrame, table: Table, day: str, count: int) -> list[DataFile]:
    order = [name for name in ORDER if name in rows.columns]
    arranged = rows.repartitionByRange(count, *order).sortWithinPartitions(*order)
    schema, root, folder = to_arrow_schema(rows.schema, timezone="UTC"), str(table.root), folder_of("data", day)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = write_file(root, folder, schema, (_as(batch, schema) for batch in batches), part="data")
        yield pa.RecordBatch.from_pylist([{"file": json.dumps(asdict(file))}], pa.schema([("file", pa.string())]))

    written = [
        DataFile.from_json(json.loads(row["file"])) for row in arranged.mapInArrow(write, "file string").collect()
    ]
    return [file for file in written if file.rows]


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def _key_sum(rows: DataFrame) -> tuple[Any, ...]:
    """Return count and an order-free checksum of the keys; xor, since a sum of hashes overflows in ANSI mode."""
    keys = next(columns for name, columns in KEYS.items() if name in rows.columns)
    found = rows.agg(F.count("*"), F.bit_xor(F.xxhash64(*keys)), F.bit_xor(F.xxhash64(F.lit(7), *keys))).collect()[0]
    return tuple(found)


def replace(table: Table, writer: str, old: list[DataFile], new: list[DataFile], *, op: str = "replace") -> int:
    """Commit new files for old ones and return the version. Raises TableError where an old one is gone."""
    while True:
        now = table.snapshot()
        gone = [file.path for file in old if file.path not in now.files]
        if gone:
            raise TableError(f"{gone[0]} has left the table (another compact or expire); run again")
        removed = tuple(file.path for file in old)
        version = Version(now.version + 1, op, writer, now.end, now.end, tuple(new), removed, now.schema)
        try:
            table.commit(version)
        except Conflict:
            continue
        return version.version


def days(snapshot: Snapshot) -> list[str]:
    """Return the landed days of a table, oldest first."""
    return sorted({day for day, _ in tables.files_of_days(snapshot, "data")})


def expire(root: str, keep_days: int, *, now_ms: int | None = None) -> CareResult:
    """Take whole landed days older than keep_days out of the table; gaps and ranges stay."""
    table = tables.open_table(root)
    snapshot = table.snapshot()
    now = datetime.fromtimestamp((now_ms or time.time_ns() // 1_000_000) / 1000, UTC)
    first_kept = (now - timedelta(days=keep_days)).date().isoformat()
    old = [file for day, file in tables.files_of_days(snapshot, "data") if day < first_kept]
    count, rows = len(snapshot.part("data")), sum(file.rows for file in old)
    if not old:
        return CareResult(0, count, count, 0)
    version = replace(table, "expire", old, [], op="expire")
    return CareResult(version, count, count - len(old), rows)


def vacuum(root: str, keep_days: float, *, min_age_s: float = 86_400, now_ms: int | None = None) -> list[str]:
    """Remove files that no version of the last keep_days lists and that are older than min_age_s; return them."""
    table = tables.open_table(root)
    now = now_ms or time.time_ns() // 1_000_000
    listed = _listed_since(table, now - round(keep_days * DAY_MS))
    removed = []
    for path in _files(table.root):
        relative = path.relative_to(table.root).as_posix()
        if relative in listed or now - path.stat().st_mtime * 1000 < min_age_s * 1000:
            continue
        path.unlink(missing_ok=True)
        removed.append(relative)
    return sorted(removed)


def _listed_since(table: Table, since_ms: int) -> set[str]:
    """Return every file that some version at or after a time lists: live then, or added since."""
    snapshot = table.snapshot()
    listed = set(snapshot.files)
    for version in table.versions(_version_before(table, since_ms)):
        listed |= {file.path for file in version.add} | set(version.remove)
    return listed


def _version_before(table: Table, since_ms: int) -> int:
    """Return the newest version made before a time: what it listed was live then."""
    before = 0
    for version in table.versions():
        if version.at_ms >= since_ms:
            break
        before = version.version
    return before


def _files(root: Path) -> Iterator[Path]:
    for part in PARTS:
        yield from (root / part).glob("*/*.parquet")
    yield from (root / COMMITS).glob(".*.tmp")
