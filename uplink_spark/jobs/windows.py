"""Figures per topic and time window: messages, bytes, a value from JSON bodies, and the latency to Spark.

    python -m uplink_spark.jobs.windows --landing DIR --vital cpu_percent --window '10 seconds' --once

Two streams with the same checkpoint rules: with --once everything that has landed is read and the query ends
(availableNow), else a table is printed for every trigger until the process is stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from uplink_spark import spark_source
from uplink_spark.bounds import amount, interval
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.waiting import run_job, wait_for_zone

COLUMNS = ("box", "topic", "body", "size", "born_time", "landed_time", "log_offset", "epoch")


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One topic in one window of sending time; times in milliseconds, `vital` null where no body has it."""

    topic: str
    start: str
    messages: int
    bytes: int
    vital_avg: float | None
    vital_p99: float | None
    latency_ms_avg: float
    latency_ms_p99: float


def windows(rows: DataFrame, vital: str, window: str, read_at: Column) -> DataFrame:
    """Return the figures of each topic and window; a latency is from sending until `read_at`."""
    number = F.get_json_object(F.col("body").cast("string"), f"$.{vital}").cast("double")
    latency = F.greatest(F.lit(0.0), (read_at.cast("double") - F.col("born_time").cast("double")) * 1000)
    return (
        rows.groupBy("topic", F.window("born_time", window).alias("w"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.avg(number).alias("vital_avg"),
            F.percentile_approx(number, 0.99, 1000).alias("vital_p99"),
            F.avg(latency).alias("latency_ms_avg"),
            F.percentile_approx(latency, 0.99, 1000).alias("latency_ms_p99"),
        )
        .select("topic", F.date_format("w.start", "HH:mm:ss").alias("start"), *_NUMBERS)
        .orderBy("topic", "start")
    )


_NUMBERS = [field.name for field in fields(WindowRow)][2:]


def run_windows(
    spark: SparkSession,
    landing: str,
    *,
    vital: str,
    window: str = "10 seconds",
    topics: str | None = None,
    checkpoint: str | None = None,
    once: bool = True,
    trigger: str = "2 seconds",
    show: Callable[[list[WindowRow]], None],
) -> Any:
    """Hand each batch's complete table to `show`; returns the query, ended (once) or running."""
    options = {"columns": ",".join(COLUMNS)} | ({"topics": topics} if topics else {})
    rows = spark_source.read(spark, landing, stream=True, **options)
    latest = F.current_timestamp()
    table = windows(rows.withColumn("read_at", latest), vital, window, F.col("read_at"))

    def on_batch(batch: DataFrame, _number: int) -> None:
        show([WindowRow(**row.asDict()) for row in batch.collect()])

    writer = table.writeStream.outputMode("complete").foreachBatch(on_batch)
    if checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)).start()
    if once:
        query.awaitTermination()
    return query


def format_table(rows: Sequence[WindowRow], vital: str) -> str:
    """Return the rows as an aligned table."""
    heads = ("TOPIC", "WINDOW", "MESSAGES", "BYTES", f"{vital} AVG", "P99", "LATENCY AVG", "P99")
    lines = [heads]
    for row in rows:
        lines.append(
            (
                row.topic,
                row.start,
                str(row.messages),
                str(row.bytes),
                _number(row.vital_avg),
                _number(row.vital_p99),
                f"{row.latency_ms_avg:.0f} ms",
                f"{row.latency_ms_p99:.0f} ms",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.windows", description=__doc__.splitlines()[0])
    made.add_argument("--landing", required=True, help="folder or URL of the landing zone")
    made.add_argument("--vital", required=True, help="the value: a path into the JSON body, for example cpu.percent")
    made.add_argument("--window", default="10 seconds", help="length of a window, by sending time (10 seconds)")
    made.add_argument("--topics", help="only these topics, separated by commas")
    made.add_argument("--once", action="store_true", help="read what has landed, print one table, then exit")
    made.add_argument("--trigger", type=interval, default="2 seconds", help="interval without --once")
    made.add_argument("--checkpoint", help="folder for the stream's checkpoint (default: none)")
    made.add_argument(
        "--wait", type=amount(zero=True), default=60, help="seconds to wait for the landing zone to appear (60)"
    )
    made.add_argument("--json", action="store_true", help="one JSON object per row")
    made.add_argument("--master", help="Spark master (local[*])")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)

    def show(rows: list[WindowRow]) -> None:
        text = "\n".join(json.dumps(asdict(row)) for row in rows) if given.json else format_table(rows, given.vital)
        print(text or "nothing has landed yet", flush=True)

    def job() -> None:
        wait_for_zone(given.landing, given.wait)
        query = run_windows(
            open_session("rocketbox windows", master=given.master),
            given.landing,
            vital=given.vital,
            window=given.window,
            topics=given.topics,
            checkpoint=given.checkpoint,
            once=given.once,
            trigger=given.trigger,
            show=show,
        )
        query.awaitTermination()

    return run_job("windows", job)


if __name__ == "__main__":
    sys.exit(main())
