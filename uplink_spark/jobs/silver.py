"""The silver job: figures per box, topic and minute from each new range of bronze versions.

    python -m uplink_spark.jobs.silver --table BRONZE --silver DIR [--once]

Each run adds partial sums and commits them with the bronze versions they contain. There is no watermark: a box that
returns after three weeks adds partial sums to old minutes, and nothing is dropped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from uplink_spark.bounds import amount
from uplink_spark.jobs import tables
from uplink_spark.jobs.bronze import stop_at
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.table.commits import Conflict, DataFile, NewFile, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import day_of, write_file
from uplink_spark.jobs.waiting import run_job
from uplink_spark.spark.fields import TIMESTAMP

HOUR_MS = 3_600_000
LONGEST_MS = 1 << 40  # 35 years; no longer time counts as one: 8 M of them in a minute add up to what a sum can hold
INPUT = "bronze"  # what this table reads, in its log
BATCH_VERSIONS = 50  # bronze versions in one silver commit
PER_MINUTE = pa.schema(
    [
        ("box", pa.string()),
        ("topic", pa.string()),
        ("minute", TIMESTAMP),
        ("rows", pa.int64()),
        ("body_bytes", pa.int64()),
        ("record_bytes", pa.int64()),
        ("born_store_ms_sum", pa.int64()),
        ("born_store_ms_max", pa.int64()),
        ("store_landed_ms_sum", pa.int64()),
        ("store_landed_ms_max", pa.int64()),
        ("latency_rows", pa.int64()),
        ("late_rows", pa.int64()),
        ("clock_bad_rows", pa.int64()),
        ("bronze_version", pa.int64()),
    ]
)


def partials(messages: DataFrame, bronze_version: int) -> DataFrame:
    """Return the partial sums of some messages; rows of a box without clock stay out of the latencies."""
    counts = F.col("clock_ok") & F.col("born_time").isNotNull() & F.col("store_time").isNotNull()

    def ms(later: str, earlier: str) -> F.Column:
        difference = F.unix_millis(later) - F.unix_millis(earlier)
        return F.when(counts, F.least(F.greatest(difference, F.lit(0)), F.lit(LONGEST_MS)))

    born_store, store_landed = ms("store_time", "born_time"), ms("landed_time", "store_time")
    late = F.unix_millis("landed_time") - F.unix_millis("store_time") > HOUR_MS
    grouped = messages.groupBy("box", "topic", F.date_trunc("minute", "store_time").alias("minute"))
    return grouped.agg(
        F.count("*").alias("rows"),
        F.sum(F.octet_length("body")).alias("body_bytes"),
        F.sum(F.col("size").cast("bigint")).alias("record_bytes"),
        F.coalesce(F.sum(born_store), F.lit(0)).alias("born_store_ms_sum"),
        F.max(born_store).alias("born_store_ms_max"),
        F.coalesce(F.sum(store_landed), F.lit(0)).alias("store_landed_ms_sum"),
        F.max(store_landed).alias("store_landed_ms_max"),
        F.count_if(counts).alias("latency_rows"),
        F.count_if(late & F.col("clock_ok")).alias("late_rows"),
        F.count_if(~F.col("clock_ok")).alias("clock_bad_rows"),
        F.lit(bronze_version).cast("bigint").alias("bronze_version"),
    ).select(*PER_MINUTE.names)


def take_in(spark: SparkSession, bronze_root: str, silver_root: str) -> int:
    """Bring silver up to the newest bronze version and return it. May be repeated and run twice at once."""
    bronze, silver = tables.bronze_table(bronze_root), Table(silver_root)
    while True:
        have = silver.declare({"data": PER_MINUTE}, [INPUT])
        done = have.end.get(INPUT, 0)
        if (newest := bronze.snapshot().version) < done:
            raise TableError(
                f"table {bronze.root} ends at version {newest}, {silver.root} has read version {done} of another one: "
                "write to a new table"
            )
        _check_same(bronze, silver, done, have.origin.get(INPUT))
        if newest == done:
            return done
        for last, groups in _unread(bronze, done):
            written = [file for files in groups for file in _write(spark, bronze, files, last, silver.root)]
            stop_at("S2")
            try:
                silver.append(have, written, {INPUT: last}, {INPUT: _named(bronze, last) or ""})
            except Conflict:
                break  # another driver was first: look again what is lacking
            have = silver.snapshot()
            if have.end.get(INPUT) != last:
                break


def _unread(bronze: Table, done: int) -> Iterator[tuple[int, list[list[DataFile]]]]:
    """Yield bronze versions and the files whose rows are new up to them, as many as are added up at once.

    A new table begins with what bronze is now, a day at a time: its first versions may have left the log.
    """
    if not done:
        now = bronze.snapshot()
        by_day = sorted(now.part("data"), key=lambda file: file.day)
        yield now.version, [list(files) for _, files in groupby(by_day, key=lambda file: file.day)]
        return
    versions = bronze.appended(done)
    while fresh := list(islice(versions, BATCH_VERSIONS)):
        yield fresh[-1][0], [[file for _, added in fresh for file in added if file.part == "data"]]


def _named(bronze: Table, version: int) -> str | None:
    found = bronze.fingerprint(version)
    return None if found is None else f"version {version}: {found}"


def _check_same(bronze: Table, silver: Table, done: int, known: str | None) -> None:
    """Bronze must still be what silver has read. Raises TableError where it was set back and went on."""
    noted = known is not None and known.startswith(f"version {done}:")  # a program that does not know of it notes none
    found = _named(bronze, done) if noted else None
    if found is not None and found != known:
        raise TableError(
            f"table {silver.root} has read {known} of {bronze.root}, which is now {found}: was bronze set back to an "
            "older copy? Rebuild silver in a new folder from bronze"
        )


def _write(spark: SparkSession, bronze: Table, files: list[DataFile], last: int, root: str) -> list[NewFile]:
    if not files:
        return []
    try:
        rows = tables.read_files(spark, bronze, files, tables.spark_schema(bronze))
        table = partials(rows.where("kind = 'message'"), last).toArrow().cast(PER_MINUTE)
    except PySparkException as error:
        if gone := next((file.path for file in files if not bronze.location.has(file.path)), None):
            raise TableError(
                f"{gone} of {bronze.root} was vacuumed before silver read it: rebuild silver in a new folder"
            ) from error
        raise
    if not table.num_rows:
        return []
    today = day_of(time.time_ns() // 1_000_000)
    return [write_file(root, today, PER_MINUTE, table.to_batches(), part="data")]


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.silver", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--table", required=True, help="folder or URL of the bronze table")
    made.add_argument("--silver", required=True, help="folder or URL of the table per_minute")
    made.add_argument("--once", action="store_true", help="read what bronze has, then exit")
    made.add_argument("--every", type=amount(), default=60, help="interval without --once in seconds (60)")
    made.add_argument("--master", help="Spark master (local[*])")
    given = made.parse_args(arguments)

    def job() -> None:
        tables.bronze_table(given.table)
        Table(given.silver).prepare()
        spark = open_session("rocketbox silver", master=given.master)
        while True:
            version = take_in(spark, given.table, given.silver)
            print(f"silver table={given.silver} bronze_version={version}", flush=True)
            if given.once:
                return
            time.sleep(given.every)

    return run_job("silver", job)


if __name__ == "__main__":
    sys.exit(main())
