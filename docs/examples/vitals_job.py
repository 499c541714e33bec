"""The Spark half of the demonstration: a stream over what the gateway landed, and the count behind the verdict.

Reads the data source `commitlog` as Structured Streaming and prints one JSON object per line: {"ready": true},
{"table": [...]} after each micro-batch, and for a line `check FILE` on standard input {"check": {...}}, where FILE
holds the acknowledged message ids, one a line.
"""

import argparse
import json
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from uplink_spark import spark_source
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.waiting import run_job, wait_for_zone
from uplink_spark.jobs.windows import WindowRow, windows

STREAMED = "box,epoch,log_offset,topic,body,size,born_time,properties"
CHECKED = "box,epoch,log_offset,topic,msg_id,properties"
BUSY = "Python worker failed to connect back"  # Spark waits ten seconds for it, on a machine as busy as it may be
LOOK_EVERY_S = 0.5
SOCKET_FOLDER_BYTES = 107 - len("/.00000000-0000-0000-0000-000000000000.sock")  # sun_path, unix(7)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def of_this_run(rows: DataFrame, run: str) -> DataFrame:
    """Leave out what earlier runs sent: every message carries the run's name as a property."""
    return rows.where(F.col("properties")["run"] == run)


def start_stream(spark: SparkSession, landing: str, run: str, since_ms: str) -> Any:
    """Start the query: figures per topic and window of ten seconds, the whole table again after each micro-batch."""
    rows = spark_source.read(spark, landing, stream=True, columns=STREAMED, startingTimestamp=since_ms)
    read = of_this_run(rows, run).withColumn("read_at", F.current_timestamp())
    table = windows(read, "value", "10 seconds", F.col("read_at"))

    def show(batch: DataFrame, _number: int) -> None:
        say(table=[asdict(WindowRow(**row.asDict())) for row in batch.collect()])

    return table.writeStream.outputMode("complete").foreachBatch(show).trigger(processingTime="1 second").start()


def begun(start: Callable[[], Any]) -> Any:
    """Start the query and return it once it has opened its source; restart it while the machine is too busy."""
    query = start()
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(LOOK_EVERY_S)
    return begun_again(query, start) if query.exception() else query


def begun_again(failed: Any, start: Callable[[], Any]) -> Any:
    """Return a new query, which counts everything again. Raises any failure except that of a busy machine."""
    failure = failed.exception()
    if BUSY not in str(failure):
        raise failure
    print(f"restarted: {BUSY}; the machine is busy", file=sys.stderr, flush=True)
    return begun(start)


def count_gaps(spark: SparkSession, landing: str, since_ms: str) -> int:
    """Return how many losses the box declared since then, and how many holes there are between what landed."""
    entries = spark.read.format("commitlog_manifest").option("startingTimestamp", since_ms).load(landing)
    ranges = sorted(entries.select("box", "epoch", "from_offset", "to_offset", "kind").collect())
    declared = sum(entry.kind == "gap" for entry in ranges)
    holes = sum(
        (left.box, left.epoch) == (right.box, right.epoch) and left.to_offset < right.from_offset
        for left, right in pairwise(ranges)
    )
    return int(declared + holes)


def check(spark: SparkSession, landing: str, options: argparse.Namespace, file: str) -> dict[str, int]:
    """Compare every landed row of this run with every acknowledged message id."""
    rows = spark_source.read(spark, landing, columns=CHECKED, startingTimestamp=options.since_ms)
    found = of_this_run(rows, options.run).select("box", "epoch", "log_offset", "msg_id").collect()
    acknowledged = set(Path(file).read_text().split())
    ids = Counter(row.msg_id for row in found)
    places = Counter((row.box, row.epoch, row.log_offset) for row in found)
    return {
        "rows": len(found),
        "missing": len(acknowledged - ids.keys()),
        "double": sum(count - 1 for count in ids.values()),
        "double_places": sum(count - 1 for count in places.values()),
        "unacknowledged": len(ids.keys() - acknowledged),
        "gaps": count_gaps(spark, landing, options.since_ms),
    }


def keep_below(scratch: Path) -> dict[str, str]:
    """Let every JVM from here on put its files below one folder; Java looks at no TMPDIR. Return Spark's settings.

    In a folder whose name is long there is no room for the name of a Unix socket: there Spark uses TCP.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    room = len(os.fsencode(scratch)) <= SOCKET_FOLDER_BYTES
    return {"spark.sql.shuffle.partitions": "2", "spark.python.unix.domain.socket.enabled": str(room).lower()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--landing", required=True)
    parser.add_argument("--run", required=True, help="name of this run, the property `run` of its messages")
    parser.add_argument("--since-ms", required=True, help="read what landed from this time on, ms since 1970")
    parser.add_argument("--scratch", required=True, help="folder for what Spark and its JVM put aside")
    options = parser.parse_args()
    settings = keep_below(Path(options.scratch).resolve())

    def job() -> None:
        wait_for_zone(options.landing, 60)
        spark = open_session("rocketbox vitals", settings=settings)
        start = partial(start_stream, spark, options.landing, options.run, options.since_ms)
        query = begun(start)
        say(ready=True)
        while True:
            if query.exception():
                query = begun_again(query, start)
            if not select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
                continue
            if not (line := sys.stdin.readline()):
                return
            if line.startswith("check "):
                query.stop()  # it has counted everything; two cores are few for both
                say(check=check(spark, options.landing, options, line.split(" ", 1)[1].strip()))

    return run_job("vitals_job", job)


if __name__ == "__main__":
    sys.exit(main())
