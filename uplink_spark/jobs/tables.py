"""What readers of the tables use: only files that a commit lists, pruned by what the commit says of them.

tables.bronze(spark, root, topics=["Vitals"], landed_since="-2d")     every record
tables.messages(spark, root)                                          kind = 'message'
tables.gaps(spark, root), coverage(spark, root), freshness(spark, root)
tables.per_minute(spark, silver_root)
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from uplink_spark.jobs.gaps import GAPS_SCHEMA
from uplink_spark.jobs.intervals import NEVER_HEALED, coverage_of, merged, minus
from uplink_spark.jobs.table.bucket_files import Term, read_bucket
from uplink_spark.jobs.table.commits import DataFile, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.location import ObjectLocation
from uplink_spark.spark.source_manifest import MANIFEST_SCHEMA
from uplink_spark.spark.source_options import parse_time
from uplink_spark.zone.files import open_files
from uplink_spark.zone.reader import read_zone

RANGES_SCHEMA = MANIFEST_SCHEMA.remove(MANIFEST_SCHEMA.get_field_index("entry"))
COVERAGE = "box string, epoch bigint, from_offset bigint, to_offset bigint, state string"


def open_table(root: str) -> Table:
    """Return the table. Raises TableError if there is none."""
    table = Table(root)
    if not table.exists():
        raise TableError(
            f"no table at {table.root}: it has no folder _delta_log; is the path right, and has the job run?"
        )
    return table


def bronze_table(root: str) -> Table:
    """Return a table of records. Raises TableError for none and for one of another kind."""
    return _table_with("log_offset", root, "bronze")


def _table_with(column: str, root: str, kind: str) -> Table:
    table = open_table(root)
    names = table.columns()
    if names and column not in names:
        raise TableError(f"{table.root} is not a {kind} table: its columns are {', '.join(names)}")
    return table


def spark_schema(table: Table, part: str = "data", *, foreign: bool = False) -> StructType:
    """Return the columns of a part, with or without those of other programs; those that a file lacks are null."""
    fields = [*table.fields(part), *(table.foreign() if foreign else ())]
    columns = [json.loads(column.to_json()) for column in fields]  # Delta's JSON is Spark's
    return StructType.fromJson({"type": "struct", "fields": columns})


def bronze(
    spark: SparkSession,
    root: str,
    *,
    boxes: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    landed_since: str | None = None,
    version: int | None = None,
    columns: Collection[str] | None = None,
) -> DataFrame:
    """Return every record of the table, or of one version of it; arguments choose rows and prune files on the driver.

    landed_since: ISO time, milliseconds, or `-2d`. columns: what to read; a table in a bucket reads all without it.
    """
    table = bronze_table(root)
    snapshot = table.snapshot(version)
    since = None if landed_since is None else parse_time("landed_since", landed_since, time.time_ns() // 1_000_000)
    files = [file for file in snapshot.part("data") if _wanted(file, boxes, topics, since)]
    chosen = _chosen(boxes, topics, since)
    schema = spark_schema(table)
    if columns is not None:
        _check_columns(columns, schema)
        schema = StructType([field for field in schema if field.name in {*columns, *(name for name, *_ in chosen)}])
    rows = read_files(spark, table, files, schema, rows=chosen)
    return rows if columns is None else rows.select(*columns)


def _check_columns(columns: Collection[str], schema: StructType) -> None:
    if unknown := sorted(set(columns) - set(schema.names)):
        raise TableError(f"the table has no column {unknown[0]}; its columns are {', '.join(schema.names)}")


def _chosen(boxes: Collection[str] | None, topics: Collection[str] | None, since_ms: int | None) -> list[Term]:
    """Return the rows asked for, as pyarrow and Delta name them."""
    terms: list[Term] = [("box", "in", list(boxes))] if boxes is not None else []
    terms += [("topic", "in", list(topics))] if topics is not None else []
    if since_ms is not None:
        terms.append(("landed_time", ">=", datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=since_ms)))
    return terms


def _wanted(
    file: DataFile, boxes: Collection[str] | None, topics: Collection[str] | None, landed_since_ms: int | None
) -> bool:
    return (
        _may_hold(file.boxes, boxes)
        and _may_hold(file.topics, topics)
        and (landed_since_ms is None or file.landed_until_ms is None or file.landed_until_ms >= landed_since_ms)
    )


def _may_hold(ends: tuple[str, str] | None, asked: Collection[str] | None) -> bool:
    return asked is None or ends is None or any(ends[0] <= name <= ends[1] for name in asked)


def read_files(
    spark: SparkSession, table: Table, files: Iterable[DataFile], schema: StructType, *, rows: Sequence[Term] = ()
) -> DataFrame:
    """Return rows of listed files, and of no other file in the folder."""
    listed = list(files)
    if not listed:
        return spark.createDataFrame([], schema)
    if isinstance(table.location, ObjectLocation):
        return read_bucket(spark, table.root, listed, schema, rows)
    found = spark.read.schema(schema).parquet(*table.paths(listed))
    for name, how, value in rows:
        found = found.where(F.col(name).isin(value) if how == "in" else F.col(name) >= F.lit(value))
    return found


def messages(spark: SparkSession, root: str, **choice: Any) -> DataFrame:
    """Return what applications sent and committed: no half, delayed, retry or system records."""
    return bronze(spark, root, **choice).where("kind = 'message'")


def ranges(spark: SparkSession, root: str) -> DataFrame:
    """Return one row for each range that landed or was declared lost, as the manifest had it."""
    return _part(spark, root, "ranges", RANGES_SCHEMA)


def _part(spark: SparkSession, root: str, part: str, schema: pa.Schema) -> DataFrame:
    table = open_table(root)
    return read_files(spark, table, table.snapshot().part(part), from_arrow_schema(schema))


def gaps(spark: SparkSession, root: str) -> DataFrame:
    """Return declared losses, without what has landed since (a stick); `damaged`, `rejected`, `cut`, `alone` stay."""
    landed = ranges(spark, root).where("kind = 'log'").select("box", "epoch", "from_offset", "to_offset")
    lost = _part(spark, root, "gaps", GAPS_SCHEMA)
    pairs = lost.groupBy("box", "epoch").cogroup(landed.groupBy("box", "epoch"))
    return pairs.applyInArrow(_unhealed, from_arrow_schema(GAPS_SCHEMA))


def _unhealed(lost: pa.Table, landed: pa.Table) -> pa.Table:
    data = merged(zip(landed["from_offset"].to_pylist(), landed["to_offset"].to_pylist(), strict=True))
    rows: list[dict[str, Any]] = []
    for row in lost.to_pylist():
        span = (row["from_offset"], row["to_offset"])
        if row["class"] in NEVER_HEALED or span[0] == span[1]:
            rows.append(row)
            continue
        for start, end in minus(span, data):
            part = {} if (start, end) == span else {"records": None}  # how many are in a part is not known
            rows.append(row | {"from_offset": start, "to_offset": end} | part)
    return pa.Table.from_pylist(rows, GAPS_SCHEMA)


def coverage(spark: SparkSession, root: str) -> DataFrame:
    """Return each log's stretches: landed, gap, or pending (between the others, undeclared: still expected)."""
    found = ranges(spark, root).where("kind <> 'pick'").select("box", "epoch", "from_offset", "to_offset", "kind")
    return found.groupBy("box", "epoch").applyInArrow(_covered, COVERAGE)


def _covered(key: tuple[pa.Scalar, ...], found: pa.Table) -> pa.Table:
    spans: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    columns = (found[name].to_pylist() for name in ("kind", "from_offset", "to_offset"))
    for kind, start, end in zip(*columns, strict=True):
        spans[kind == "log"].append((start, end))
    rows = coverage_of(spans[True], spans[False])
    box, epoch = (part.as_py() for part in key)
    return pa.table(
        {
            "box": pa.array([box] * len(rows), pa.string()),
            "epoch": pa.array([epoch] * len(rows), pa.int64()),
            "from_offset": pa.array([row.start for row in rows], pa.int64()),
            "to_offset": pa.array([row.end for row in rows], pa.int64()),
            "state": pa.array([row.state for row in rows], pa.string()),
        }
    )


def freshness(spark: SparkSession, root: str, *, now_ms: int | None = None) -> DataFrame:
    """Return for each box when it was last heard of, by landed time: no clock of a box counts."""
    now = F.timestamp_millis(F.lit(now_ms)) if now_ms is not None else F.current_timestamp()
    by_box = ranges(spark, root).groupBy("box")
    return by_box.agg(
        F.max("landed_time").alias("last_landed"),
        F.max(F.when(F.col("clock_ok"), F.col("store_time_max"))).alias("last_store_time"),
        F.max_by("to_offset", F.struct("landed_time", "to_offset")).alias("landed_end"),
    ).withColumn("silent_for", now - F.col("last_landed"))


STATUS = (
    "box string, epoch bigint, received_ms bigint, durable bigint, unshipped bigint, oldest_ms bigint, "
    "disk_free bigint, inflow bigint, gaps bigint, verdict string, software string, now_ms bigint, clock_ok boolean, "
    "state string, conditions array<string>"
)


def box_status(spark: SparkSession, root: str) -> DataFrame:
    """Return what boxes said of themselves every minute: the table of the status job; or, given a landing zone, the
    lines of the last 30 days that the gateway keeps there."""
    table = Table(root)
    if table.exists():
        table = _table_with("received", root, "box_status")
        return read_files(spark, table, table.snapshot().part("data"), spark_schema(table))
    return _status_lines(spark, root)


def _status_lines(spark: SparkSession, landing: str) -> DataFrame:
    shards = read_zone(open_files(landing)).shards
    base = landing if "://" in landing else f"file://{Path(landing).absolute()}"
    folders = [f"{base}/status/{shard:04x}" for shard in range(shards)]
    found = [folder for folder in folders if not folder.startswith("file://") or Path(folder[7:]).is_dir()]
    rows = (
        spark.read.schema(STATUS).option("recursiveFileLookup", "true").json(found)
        if found
        else spark.createDataFrame([], STATUS)
    )
    return rows.withColumn("received", F.timestamp_millis("received_ms"))


SUMS = (
    "rows",
    "body_bytes",
    "record_bytes",
    "born_store_ms_sum",
    "store_landed_ms_sum",
    "latency_rows",
    "late_rows",
    "clock_bad_rows",
)
MAXIMA = ("born_store_ms_max", "store_landed_ms_max")


def per_minute_parts(spark: SparkSession, root: str) -> DataFrame:
    """Return the partial sums as silver wrote them, one for each range of bronze versions."""
    table = _table_with("minute", root, "per_minute")
    return read_files(spark, table, table.snapshot().part("data"), spark_schema(table))


def per_minute(spark: SparkSession, root: str) -> DataFrame:
    """Return one row for each box, topic and minute of store time: the partial sums added up."""
    totals = [F.sum(name).alias(name) for name in SUMS] + [F.max(name).alias(name) for name in MAXIMA]
    newest = F.max("bronze_version").alias("bronze_version")
    return per_minute_parts(spark, root).groupBy("box", "topic", "minute").agg(*totals, newest)
