"""The data source beside Spark's own Kafka source: the same messages, in turns, in one Spark session.

    python tests/bench/bench_kafka.py --server DIR --connector DIR [--rows 1200000] [--rounds 3] [--minutes 10]

A Kafka of one node (KRaft) is started here. Its jars come from Maven Central, into a folder each:
    mvn dependency:copy-dependencies -DoutputDirectory=DIR  of org.apache.kafka:kafka_2.13:4.1.0 (--server)
    the same with -DincludeScope=runtime  of org.apache.spark:spark-sql-kafka-0-10_2.13 (connector)
Spark's sink writes the landed messages into a topic of four partitions: body, keys, properties as headers, zstd. Per
variant: rows per second of the median round, and processor time a row of JVM, Python and Kafka's server. No round
begins after --minutes; Kafka has a heap of 512 MiB, Spark's driver one of 1 GiB, topic and zone are below a GiB.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bench.bench_spark import EIGHT, land, nowhere, used
from tests.ports import free_port
from uplink_spark import spark_source
from uplink_spark.jobs.count import count
from uplink_spark.jobs.session import open_session

CONNECTOR = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


class Kafka:
    """One node of Kafka in a process of its own."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self.port, controller = free_port(), free_port()
        folder.mkdir()
        conf = folder / "server.properties"
        conf.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={folder}/data\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "offsets.topic.replication.factor=1\nnum.partitions=4\nlistener.security.protocol.map="
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        )
        java = ["java", "-Xmx512m", "-XX:-UsePerfData", "-cp", f"{jars}/*"]
        make = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(conf)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen([*java, "kafka.Kafka", str(conf)], stdout=self._log, stderr=self._log)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"Kafka did not start; see {self._log.name}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


def fill(spark: Any, landing: str, kafka: Kafka) -> None:
    headers = "transform(map_entries(properties), p -> named_struct('key', p.key, 'value', cast(p.value as binary)))"
    frame = spark_source.read(spark, landing).selectExpr("body value", "keys[0] key", f"{headers} headers")
    (
        frame.write.format("kafka")
        .option("kafka.bootstrap.servers", f"127.0.0.1:{kafka.port}")
        .option("kafka.compression.type", "zstd")
        .option("kafka.batch.size", "1000000")
        .option("kafka.linger.ms", "100")
        .option("topic", "vitals")
        .save()
    )


def variants(spark: Any, landing: str, kafka: Kafka) -> dict[str, Callable[[], object]]:
    def source(**options: Any) -> Any:
        return spark_source.read(spark, landing, partitionBytes="32m", **options)

    def messages() -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{kafka.port}")
        return reader.option("subscribe", "vitals").option("includeHeaders", "true").load()

    three = ["value", "topic", "timestamp"]
    return {
        "commitlog, all 29 columns": lambda: nowhere(source()),
        "kafka, all 8 columns": lambda: nowhere(messages()),
        "commitlog, 8 columns without body": lambda: nowhere(source(columns=",".join(EIGHT))),
        "commitlog, body, topic and time": lambda: nowhere(source(columns="body,topic,store_time")),
        "kafka, body, topic and time": lambda: nowhere(messages().select(*three)),
        "commitlog, count of all": lambda: source().count(),
        "commitlog, count without rows": lambda: count(spark, landing),
        "commitlog, count of one column": lambda: source(columns="seq").count(),
        "kafka, count": lambda: messages().count(),
    }


def measure(jobs: dict[str, Callable[[], object]], rows: int, rounds: int, until: float) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        if number > 1 and time.monotonic() > until:
            print(f"  the time is over after {number - 1} rounds", flush=True)
            break
        for name, job in jobs.items():
            before, begun = sum(used()), time.perf_counter()
            job()
            took, spent = time.perf_counter() - begun, sum(used()) - before
            if number:  # the first is for warming up
                found[name].append((took, spent))
                print(
                    f"  round {number}: {name:36} {rows / took:12,.0f} rows/s {spent / rows * 1e6:8.2f} us", flush=True
                )
    for name, rounds_of in found.items():
        seconds = statistics.median(took for took, _ in rounds_of)
        spent = statistics.median(cpu for _, cpu in rounds_of)
        print(f"{name:36} {rows / seconds:12,.0f} rows/s {spent / rows * 1e6:8.2f} us of processor time a row")


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--server", type=Path, required=True, metavar="DIR")
    asked.add_argument("--connector", type=Path, required=True, metavar="DIR")
    asked.add_argument("--rows", type=int, default=1_200_000)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--minutes", type=float, default=10, help="no round begins later (10)")
    asked.add_argument("--body", type=int, default=120)
    asked.add_argument("--match", default="", help="only the variants with this in their name")
    asked.add_argument("--seed", type=int, default=7)
    given = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
    until = time.monotonic() + 60 * given.minutes
    kafka = Kafka(given.server.resolve(), folder / "kafka")
    try:
        land(folder / "landing", given.rows, given.body, random.Random(given.seed))
        jars = [str(path) for path in given.connector.resolve().glob("*.jar") if path.name.startswith(CONNECTOR)]
        spark = open_session(
            "bench", master="local[2]", settings={"spark.jars": ",".join(jars), "spark.driver.memory": "1g"}
        )
        fill(spark, str(folder / "landing"), kafka)
        jobs = variants(spark, str(folder / "landing"), kafka)
        sent = jobs["kafka, count"]()
        print(f"{given.rows:,} messages, {sent:,} of them in Kafka, Spark {spark.version}, seed {given.seed}")
        jobs = {name: job for name, job in jobs.items() if given.match in name}
        measure(jobs, given.rows, given.rounds, until)
        spark.stop()
    finally:
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
