"""Source and jobs with the PySpark of this interpreter; prints one line of JSON: what works, what does not and why.

one.py FOLDER [JAR...]      run by run.py with one environment for each version of PySpark; CHECKS=...: these
one.py --make FOLDER        the landing zone, and a table of it made without Spark
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyspark

from uplink_spark.jobs.testing import Fleet
from uplink_spark.testing import MadeLanding

Check = Callable[[], Any]
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def example(name: str) -> Any:
    """Return a program of docs/examples."""
    folder = str(Path(__file__).parents[2] / "docs/examples")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(name)


class Checks:
    """One landing zone, one session, the checks in order."""

    def __init__(self, folder: Path, jars: list[str]) -> None:
        self.folder, self.jars = folder, jars
        self.landing = MadeLanding(folder / "landing")
        self.fleet = filled(self.landing)
        self.spark = self._session()

    def _session(self) -> Any:
        from uplink_spark.jobs.session import open_session

        chosen: dict[str, str] = {"spark.sql.shuffle.partitions": "2"}
        if self.jars:
            chosen["spark.jars"] = ",".join(self.jars)
        if any("delta-spark" in jar for jar in self.jars):
            chosen |= DELTA
        if any("iceberg" in jar for jar in self.jars):
            iceberg = example("to_iceberg").CATALOG
            extensions = "spark.sql.extensions"
            both = ",".join(filter(None, (chosen.get(extensions), iceberg[extensions])))
            chosen |= iceberg | {extensions: both, "spark.sql.catalog.lake.warehouse": str(self.folder / "lake")}
        return open_session("versions", master="local[2]", settings=chosen)

    def same(self, rows: Any) -> str:
        found = Counter((row["box"], bytes(row["body"])) for row in rows.select("box", "body").collect())
        if found != self.fleet.expected:
            raise AssertionError(f"{sum(found.values())} rows, not {sum(self.fleet.expected.values())}")
        return "ok"

    def batch(self) -> str:
        from uplink_spark import spark_source

        return self.same(spark_source.read(self.spark, str(self.landing.root)))

    def push_down(self) -> str:
        from uplink_spark import spark_source

        rows = spark_source.read(self.spark, str(self.landing.root)).where("box = 'box-1'")
        plan = rows._jdf.queryExecution().toString()
        if rows.count() != 200:
            raise AssertionError("other rows")
        return "ok" if "Filter (isnotnull(box" not in plan.rpartition("Physical Plan")[2] else "filtered by Spark"

    def stream(self) -> str:
        from uplink_spark import spark_source

        rows = spark_source.read(self.spark, str(self.landing.root), stream=True, maxPiecesPerTrigger=5)
        query = rows.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
        query.option("checkpointLocation", str(self.folder / "streamed")).start().awaitTermination()
        self.same(self.spark.table("streamed"))
        batches = len(list((self.folder / "streamed/commits").glob("[0-9]*")))
        from uplink_spark.spark.spark_api import HAS_LIMITS

        told = "ok" if HAS_LIMITS else "ok, without limits per trigger"
        return told if batches == (3 if HAS_LIMITS else 1) else f"rows are right, {batches} batches"

    def bronze(self) -> str:
        from uplink_spark.jobs import tables
        from uplink_spark.jobs.bronze import BronzeConfig, run_bronze

        config = BronzeConfig(str(self.landing.root), str(self.folder / "bronze"), str(self.folder / "ck"))
        run_bronze(self.spark, config, once=True)
        run_bronze(self.spark, config, once=True)
        return self.same(tables.messages(self.spark, config.table))

    def care(self) -> str:
        from uplink_spark.jobs import care, silver, tables

        root, sums = str(self.folder / "bronze"), str(self.folder / "per_minute")
        silver.take_in(self.spark, root, sums)
        rows = tables.per_minute(self.spark, sums).agg({"rows": "sum"}).collect()[0][0]
        for day in care.days(tables.open_table(root).snapshot()):
            care.compact(self.spark, root, day)
        states = {row["state"] for row in tables.coverage(self.spark, root).collect()}
        if rows != 600 or states != {"landed"} or tables.freshness(self.spark, root).count() != 3:
            raise AssertionError(f"rows={rows} states={states}")
        return self.same(tables.messages(self.spark, root))

    def delta_reads_bronze(self) -> str:
        from uplink_spark.jobs import tables

        made = str(self.folder / "made/bronze")
        rows = self.spark.read.format("delta").load(made).where("part = 'data'")
        ours = tables.spark_schema(tables.open_table(made))
        other = [field.name for field in ours if rows.schema[field.name].dataType != field.dataType]
        return self.same(rows) if not other else f"other types of {', '.join(other)}"

    def to_delta(self) -> str:
        to_delta = example("to_delta")
        table, checkpoint = str(self.folder / "own"), self.folder / "own-ck"
        to_delta.run(self.spark, str(self.landing.root), table, str(checkpoint))
        forget_last_commit(checkpoint)
        to_delta.run(self.spark, str(self.landing.root), table, str(checkpoint))
        shutil.rmtree(checkpoint)  # lost
        self.fleet.land("box-1", 5)
        to_delta.run(self.spark, str(self.landing.root), table, str(checkpoint))
        return self.same(self.spark.read.format("delta").load(table))

    def to_iceberg(self) -> str:
        to_iceberg = example("to_iceberg")
        table, checkpoint = "lake.db.messages", self.folder / "iceberg-ck"
        to_iceberg.run(self.spark, str(self.landing.root), table, str(checkpoint))
        forget_last_commit(checkpoint)
        to_iceberg.run(self.spark, str(self.landing.root), table, str(checkpoint))
        self.same(self.spark.table(table))
        self.fleet.land("box-1", 5)
        to_iceberg.run(self.spark, str(self.landing.root), table, str(checkpoint))
        shutil.rmtree(checkpoint)  # lost
        self.fleet.land("box-2", 5)
        to_iceberg.run(self.spark, str(self.landing.root), table, str(checkpoint))
        return self.same(self.spark.table(table))


def filled(landing: MadeLanding) -> Fleet:
    fleet = Fleet(landing)
    for number in range(12):
        fleet.land(f"box-{number % 3}", 50)
    return fleet


def make(folder: Path) -> None:
    from uplink_spark.jobs.bronze import Bronze, BronzeConfig
    from uplink_spark.jobs.testing import landed_items

    folder.mkdir(parents=True)
    landing = MadeLanding(folder / "landing")
    filled(landing)
    config = BronzeConfig(str(landing.root), str(folder / "bronze"), str(folder / "checkpoint"))
    Bronze(config).write(landed_items(landing.root))


def forget_last_commit(checkpoint: Path) -> None:
    """As if the program had been killed between the table's commit and Spark's note of it."""
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def tried(check: Check) -> str:
    try:
        return str(check())
    except Exception as error:
        traceback.print_exc()
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def main() -> None:
    if sys.argv[1] == "--make":
        make(Path(sys.argv[2]))
        return
    folder, jars = Path(sys.argv[1]).absolute(), sys.argv[2:]
    checks = Checks(folder, jars)
    names = ["batch", "push_down", "stream", "bronze", "care"]
    names += ["delta_reads_bronze", "to_delta"] if any("delta-spark" in jar for jar in jars) else []
    names += ["to_iceberg"] if any("iceberg" in jar for jar in jars) else []
    wanted = os.environ.get("CHECKS", " ".join(names)).split()
    told = {name: tried(getattr(checks, name)) for name in names if name in wanted}
    print(json.dumps({"pyspark": pyspark.__version__} | told), flush=True)


if __name__ == "__main__":
    main()
