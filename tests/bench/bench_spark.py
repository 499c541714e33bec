"""Rows per second from the landing zone: decoder, data source, bronze job; beside the plain ways of doing the same.

    python tests/bench/bench_spark.py [--rows 1200000] [--rounds 3] [--body 200] [--seed 7]

Ratios inside one run count, absolute figures are noisy. Two warm-up queries come first, then the variants take turns.
A query costs some tenths of a second before its first row, whatever it reads: "of the rows alone" leaves that out.
On a machine with other work the processor time of a row says more than the clock: it is printed for JVM and Python.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from storage_driver.record import decode_record
from uplink_spark import spark_source
from uplink_spark.jobs.bronze import BronzeConfig, run_bronze
from uplink_spark.jobs.session import open_session
from uplink_spark.spark.rows import EVERYTHING, Origin, RawPiece, RowSelection, decode
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, raw_piece
from uplink_spark.wire.batch import open_piece

EIGHT = ("box", "epoch", "log_offset", "topic", "queue_id", "queue_offset", "kind", "store_time")
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


def bench_decode(containers: list[bytes], rounds: int) -> None:
    opened = [open_piece(container) for container in containers[:4]]
    pieces = [
        RawPiece(Origin("b", 1, 0, n, 0, 1 << 60, T0, True), piece.raw(), piece.sizes())
        for n, piece in enumerate(opened)
    ]
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


def nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def bench_spark(spark: Any, landing: Path, folder: Path, given: argparse.Namespace) -> None:
    def source(**options: Any) -> Any:
        return spark_source.read(spark, str(landing), partitionBytes="32m", **options)

    def bronze() -> None:
        target = folder / "bronze"
        shutil.rmtree(target, ignore_errors=True)
        run_bronze(
            spark, BronzeConfig(str(landing), str(target), str(target / "_spark"), partition_bytes=32 << 20), once=True
        )

    def own_writer() -> None:
        source(include="all").write.mode("overwrite").option("compression", "zstd").parquet(str(folder / "own"))

    variants: dict[str, Callable[[], object]] = {
        "data source, all columns": lambda: nowhere(source()),
        "data source, 8 columns without body": lambda: nowhere(source(columns=",".join(EIGHT))),
        "bronze job, stream start included": bronze,
        "Spark's own Parquet writer, same rows": own_writer,
        "a query that finds nothing": lambda: nowhere(source(boxes="nobody")),
    }
    for _ in range(2):
        for job in variants.values():
            job()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(given.rounds):
        for name, job in variants.items():
            before = used()
            seconds[name].append(timed(job))
            after = used()
            spent[name].append((after[0] - before[0], after[1] - before[1]))
    for name, pairs in spent.items():
        java, python = (statistics.median(side) / given.rows * 1e6 for side in zip(*pairs, strict=True))
        print(f"{'  processor time: ' + name:55} JVM {java:5.2f}, Python {python:5.2f} us a row")
    *reading, nothing = seconds.items()
    for name, found in reading:
        show(name, given.rows, found)
    fixed = statistics.median(nothing[1])
    print(f"{nothing[0]:45} {fixed:12.2f} s")
    wide, slim, job_s, own = (found for _, found in reading)
    show("data source, all columns, of the rows alone", given.rows, [took - fixed for took in wide])
    show("data source, 8 columns, of the rows alone", given.rows, [took - fixed for took in slim])
    ratio("8 columns / all columns", wide, slim)
    ratio("bronze / Spark's own writer", own, job_s)
    stored = sum(path.stat().st_size for path in (folder / "bronze").glob("part=data/*/*"))
    print(f"{'bronze Parquet / bytes shipped':45} {stored / given.shipped:12.2f}")


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rows", type=int, default=1_200_000)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--body", type=int, default=120)
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
        bench_decode(containers, given.rounds)
        spark = open_session("bench", master="local[2]")
        bench_spark(spark, folder / "landing", folder, given)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
