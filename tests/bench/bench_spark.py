"""Rows per second from the landing zone: decoder, data source, bronze job; beside the plain ways of doing the same.

    python tests/bench/bench_spark.py [--rows 1200000] [--rounds 3] [--body 120] [--match TEXT] [--seed 7]

Ratios inside one run count, absolute figures are noisy. Two warm-up queries come first, then the variants take turns.
A query costs some tenths of a second before its first row, whatever it reads: "of the rows alone" leaves that out.
On a machine with other work the processor time of a row says more than the clock: it is printed for JVM and Python, in
all and of the rows alone. "Spark alone" is a source that yields one batch of the same columns again and again: what
Spark takes of a row before any of this package's code.
"""

from __future__ import annotations

import argparse
import platform
import random
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from storage_driver.record import decode_record
from uplink_spark import spark_source
from uplink_spark.jobs.bronze import BronzeConfig, run_bronze
from uplink_spark.jobs.count import count
from uplink_spark.jobs.session import open_session
from uplink_spark.spark.rows import EVERYTHING, SCHEMA, Origin, RawPiece, RowSelection, decode
from uplink_spark.spark.source_tasks import settle_worker
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, raw_piece
from uplink_spark.wire.batch import open_piece

EIGHT = ("box", "epoch", "log_offset", "topic", "queue_id", "queue_offset", "kind", "store_time")
ALL, BRONZE = "data source, all columns", "bronze job, stream start included"
OWN, NOTHING = "Spark's own Parquet writer, same rows", "a query that finds nothing"
PIECE_RECORDS = 12_000
T0 = 1_700_000_000_000


def properties(number: int) -> str:
    unique = f"UNIQ_KEY\x01C0A8010A1F9018B4AAC2{number:012X}"
    return f"{unique}\x02TAGS\x01vitals\x02KEYS\x01cpu-{number % 8}\x02CLUSTER\x01edge"


def land(root: Path, rows: int, body: int, dice: random.Random) -> list[bytes]:
    """Land rows of four boxes and return the pieces' containers."""
    landing, containers, at = MadeLanding(root), [], 0
    for first in range(0, rows, PIECE_RECORDS):
        records = [
            MadeRecord(
                "vitals",
                n % 4,
                n,
                dice.randbytes(body // 2) + bytes(body - body // 2),
                properties(n),
                T0 + n,
                T0 + n + 1,
            )
            for n in range(first, min(rows, first + PIECE_RECORDS))
        ]
        piece = raw_piece(encode_log(records, at), at)
        landing.land(piece)
        containers.append(piece[1])
        at = piece[0].end
    landing.close()
    return containers


def timed(job: Callable[[], object]) -> float:
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


def used() -> tuple[float, float]:
    """Return the processor seconds so far of the JVM and of the Python workers below this process."""
    java = python = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended since
            name, times = process.name(), process.cpu_times()
            if "java" in name:
                java += times.user + times.system
            else:
                python += times.user + times.system + times.children_user + times.children_system
    return java, python


def loop_decode(raw: bytes, sizes: bytes) -> pa.RecordBatch:
    """The plain way: the store's decoder record by record, then a batch."""
    rows, at = [], 0
    for (size,) in struct.iter_unpack("<I", sizes):
        message = decode_record(raw, at, check_crc=False)
        names = ("topic", "queue_id", "queue_offset", "log_offset", "flag", "sys_flag", "body_crc")
        rows.append({name: getattr(message, name) for name in names} | {"body": bytes(message.body)})
        at += size
    return pa.RecordBatch.from_pylist(rows)


def bench_decode(containers: list[bytes], rounds: int, same: Path) -> None:
    opened = [open_piece(container) for container in containers[:4]]
    pieces = [
        RawPiece(Origin("b", 1, 0, n, 0, 1 << 60, T0, True), piece.raw(), piece.sizes())
        for n, piece in enumerate(opened)
    ]
    batch = decode(pieces[:1], EVERYTHING)
    with pa.ipc.new_file(same, batch.schema) as file:
        file.write_batch(batch)
    count = sum(piece.header.records for piece in opened)
    small = RowSelection(columns=EIGHT)
    plain: list[float] = []
    fast: list[float] = []
    slim: list[float] = []
    for _ in range(rounds + 1):
        plain.append(timed(lambda: [loop_decode(piece.raw, piece.sizes or b"") for piece in pieces]))
        fast.append(timed(lambda: [decode([piece], EVERYTHING) for piece in pieces]))
        slim.append(timed(lambda: [decode([piece], small) for piece in pieces]))
    show("rows.py, all columns, one thread", count, fast[1:])
    show("rows.py, 8 columns without body", count, slim[1:])
    show("struct loop into a batch, 8 columns", count, plain[1:])
    ratio("rows.py all columns / struct loop (8 columns)", plain[1:], fast[1:])


def show(name: str, rows: int, seconds: list[float]) -> None:
    print(f"{name:45} {rows / statistics.median(seconds):12,.0f} rows/s")


def ratio(name: str, slower: list[float], faster: list[float]) -> None:
    print(f"{name:45} {statistics.median(slower) / statistics.median(faster):12.2f} x")


def same_rows(file: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch of a file until there are so many rows."""
    settle_worker()
    batch = pa.ipc.open_file(pa.memory_map(file)).get_batch(0)
    for done in range(0, rows, batch.num_rows):
        yield batch.slice(0, min(batch.num_rows, rows - done))


class SameRows(DataSource):  # type: ignore[misc]
    """One batch of all columns again and again; options: file, rows, tasks."""

    @classmethod
    def name(cls) -> str:
        return "same_rows"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SameReader(self.options["file"], int(self.options["rows"]), int(self.options["tasks"]))


class SameReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, file: str, rows: int, tasks: int) -> None:
        self._file, self._rows, self._tasks = file, rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return same_rows(self._file, self._rows // self._tasks)


def nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def variants(spark: Any, landing: str, folder: Path, rows: int) -> dict[str, Callable[[], object]]:
    def source(**options: Any) -> Any:
        return spark_source.read(spark, landing, partitionBytes="64m", **options)

    def wide() -> Any:
        return spark_source.read_wide(spark, landing, partitionBytes="64m")

    def bronze() -> None:
        target = folder / "bronze"
        shutil.rmtree(target, ignore_errors=True)
        run_bronze(spark, BronzeConfig(landing, str(target), str(target / "_spark")), once=True)

    def own_writer() -> None:
        source(include="all").write.mode("overwrite").option("compression", "zstd").parquet(str(folder / "own"))

    file, tasks = str(folder / "same"), 6

    def same() -> Any:
        return spark.read.format("same_rows").options(file=file, rows=rows, tasks=tasks).load()

    def same_mapped() -> Any:
        def give(ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in ids:
                for _ in range(batch.num_rows):
                    yield from same_rows(file, rows // tasks)

        return spark.range(0, tasks, 1, tasks).mapInArrow(give, from_arrow_schema(SCHEMA))

    return {
        ALL: lambda: nowhere(source()),
        "data source, all columns, read_wide": lambda: nowhere(wide()),
        "data source, 8 columns without body": lambda: nowhere(source(columns=",".join(EIGHT))),
        "Spark alone, a batch of all columns": lambda: nowhere(same()),
        "Spark alone, the same by mapInArrow": lambda: nowhere(same_mapped()),
        BRONZE: bronze,
        "count with uplink_spark.jobs.count": lambda: count(spark, landing),
        "count of all columns": lambda: source().count(),
        OWN: own_writer,
        NOTHING: lambda: nowhere(source(boxes="nobody")),
    }


def bench_spark(spark: Any, landing: Path, folder: Path, given: argparse.Namespace) -> None:
    spark.dataSource.register(SameRows)
    found = variants(spark, str(landing), folder, given.rows)
    jobs = {name: job for name, job in found.items() if given.match in name or name == NOTHING}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for number in range(2 + given.rounds):
        for name, job in jobs.items():
            before, took = used(), timed(job)
            after = used()
            if number >= 2:  # the others are for warming up
                seconds[name].append(took)
                spent[name].append((after[0] - before[0], after[1] - before[1]))
    fixed = [statistics.median(side) for side in zip(*spent[NOTHING], strict=True)]
    for name, pairs in spent.items():
        java, python = (statistics.median(side) for side in zip(*pairs, strict=True))
        alone = (java - fixed[0], python - fixed[1])
        text = " / ".join(
            f"JVM {a / given.rows * 1e6:5.2f}, Python {b / given.rows * 1e6:5.2f}" for a, b in ((java, python), alone)
        )
        print(f"{name:40} us of processor time a row, in all / of the rows alone: {text}")
    nothing = statistics.median(seconds[NOTHING])
    print(f"{NOTHING:45} {nothing:12.2f} s")
    for name, times in seconds.items():
        if name != NOTHING:
            show(name, given.rows, times)
            show(f"{name}, of the rows alone", given.rows, [took - nothing for took in times])
    if BRONZE in jobs:
        stored = sum(path.stat().st_size for path in (folder / "bronze").glob("part=data/*/*"))
        print(f"{'bronze Parquet / bytes shipped':45} {stored / given.shipped:12.2f}")
    if BRONZE in jobs and OWN in jobs:
        ratio("bronze / Spark's own writer", seconds[OWN], seconds[BRONZE])


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rows", type=int, default=1_200_000)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--body", type=int, default=120)
    asked.add_argument("--match", default="", help="only the variants with this in their name")
    asked.add_argument("--seed", type=int, default=7)
    given = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        containers = land(folder / "landing", given.rows, given.body, random.Random(given.seed))
        given.shipped = sum(map(len, containers))
        record = 91 + len("vitals") + given.body + len(properties(0))
        cpu = platform.processor() or platform.machine()
        print(f"{cpu}, Python {platform.python_version()}, 2 Spark slots, seed {given.seed}")
        megabytes = given.shipped / 1e6
        print(f"{given.rows:,} records of {record} bytes, {megabytes:.0f} MB shipped in {len(containers)} pieces")
        bench_decode(containers, given.rounds, folder / "same")
        spark = open_session("bench", master="local[2]")
        bench_spark(spark, folder / "landing", folder, given)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
