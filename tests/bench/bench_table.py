"""What the log of a table and its files come to in a simulated year; what `freshness` costs after a day of triggers.

    python tests/bench/bench_table.py [--days 365] [--commits 24] [--ranges 8640]

The year: real commits, files and care, each with the time that it would have had, so that what is left at the end is
what a table has after a year: commits of 30 days, files of versions of 7 days.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.harness import machine
from tests.uplink_spark.jobs.small_table import COLUMNS
from uplink_spark.jobs import care, rollup, tables
from uplink_spark.jobs.bronze import schemas_of_table
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.table import delta
from uplink_spark.jobs.table.commits import NewFile
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.log import LOG
from uplink_spark.jobs.table.parquet import day_of, write_file
from uplink_spark.jobs.table.swap import swap
from uplink_spark.jobs.tables import RANGES_SCHEMA

DAY_S = 86_400
SCHEMAS = {"data": COLUMNS, "ranges": COLUMNS}


def small_file(root: str, day: str, part: str) -> NewFile:
    batch = pa.record_batch({"box": ["a"], "topic": ["T"], "seq": [1]}, COLUMNS)
    return write_file(root, day, COLUMNS, [batch], part=part)


def age(root: Path, known: set[Path], moment: float) -> None:
    """Give what is new the age that it would have."""
    for path in chain((root / LOG).iterdir(), root.glob("*/*/*.parquet")):
        if path not in known:
            os.utime(path, (moment, moment))
            known.add(path)


class Clock:
    """The time that commits see; the age of what they remove counts from it."""

    def __init__(self) -> None:
        self.ns = time.time_ns()

    def time_ns(self) -> int:
        return self.ns


def compact(table: Table, day: str) -> None:
    for part in SCHEMAS:
        old = [file for file in table.snapshot().part(part) if file.day == day]
        swap(table, old, [small_file(table.root, day, part)])


def year(days: int, commits: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-table-") as folder:
        root, known, now, cpu = Path(folder), set[Path](), time.time(), time.process_time()
        table, clock = Table(folder), Clock()
        vars(delta)["time"] = clock
        have = table.declare(SCHEMAS, ["0"])
        for number in range(days):
            moment = now - (days - number) * DAY_S
            clock.ns = int(moment * 1e9)
            day = day_of(int(moment * 1000))
            for _ in range(commits):
                files = [small_file(folder, day, part) for part in SCHEMAS]
                table.append(have, files, {"0": have.end.get("0", 0) + 1}, {})
                have = table.snapshot()
            rollup.roll_up(table, SCHEMAS)
            compact(table, day)
            age(root, known, moment)
            if number % 7 == 6:
                care.vacuum(folder, 7)
            have = table.snapshot()
            if number + 1 in (days // 4, days // 2, days):
                told(root, table, number + 1)
        spent = time.process_time() - cpu
        print(f"{days * commits} commits, {spent * 1000 / days / commits:.1f} ms of processor time each with all care")


def told(root: Path, table: Table, day: int) -> None:
    log = [path for path in (root / LOG).iterdir() if path.is_file()]
    json_files = [path for path in log if path.suffix == ".json"]
    size = sum(path.stat().st_size for path in log)
    data = sum(1 for _ in root.glob("*/*/*.parquet"))
    begun = time.process_time()
    live = len(Table(str(root)).snapshot().files)
    print(
        f"day {day:3d}: version {table.snapshot().version}, log {len(log)} files ({len(json_files)} commits), "
        f"{size / 1e6:.1f} MB; table {live} files, {data} on disk; opened in {time.process_time() - begun:.3f} s",
        flush=True,
    )


def one_day(count: int) -> None:
    """A day of short triggers: each left a file of ranges."""
    spark = open_session("bench table", master="local[2]")
    with tempfile.TemporaryDirectory(prefix="bench-table-") as folder:
        table, day = Table(folder), day_of(time.time_ns() // 1_000_000)
        have = table.declare(schemas_of_table(), ["0"])
        row = {name: pa.nulls(1, RANGES_SCHEMA.field(name).type) for name in RANGES_SCHEMA.names}
        files = []
        for number in range(count):
            row |= {"box": pa.array([f"b{number % 50}"]), "kind": pa.array(["log"]), "epoch": pa.array([1], pa.int64())}
            row |= {"from_offset": pa.array([number], pa.int64()), "to_offset": pa.array([number + 1], pa.int64())}
            batch = pa.record_batch([row[name] for name in RANGES_SCHEMA.names], schema=RANGES_SCHEMA)
            files.append(write_file(folder, day, RANGES_SCHEMA, [batch], part="ranges"))
        table.append(have, files, {"0": 1}, {})
        tables.freshness(spark, folder).count()  # the JVM's own start
        for told_of in ("as committed", "joined as bronze does"):
            for what in (tables.freshness, tables.coverage):
                begun = time.monotonic()
                rows = what(spark, folder).count()
                print(f"{what.__name__} {told_of}: {time.monotonic() - begun:.1f} s, {rows} rows", flush=True)
            groups = [files[at : at + rollup.MOST] for at in range(0, count, rollup.MOST)]
            listed = table.snapshot().files
            for group in groups:
                found = [listed[file.path] for file in group if file.path in listed]
                if len(found) == rollup.MOST:
                    swap(table, found, [rollup.join(table, found, RANGES_SCHEMA)])
    spark.stop()


def main() -> None:
    made = argparse.ArgumentParser()
    made.add_argument("--days", type=int, default=365)
    made.add_argument("--commits", type=int, default=24, help="commits a day")
    made.add_argument("--ranges", type=int, default=8640, help="files of ranges of a day of short triggers")
    given = made.parse_args()
    print(machine())
    if given.ranges:
        one_day(given.ranges)
    if given.days:
        year(given.days, given.commits)


if __name__ == "__main__":
    main()
