"""Messages into an Iceberg table, each once, whatever is killed or lost; one program writes the table.

spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 \
    docs/examples/to_iceberg.py LANDING WAREHOUSE CHECKPOINT

Iceberg has no txnAppId: the snapshot that a batch makes says where the batch ends, and a batch that is not after the
newest one is left out. Needs PySpark 4.0: there is no Iceberg runtime for later versions in this release of Iceberg.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from uplink_spark import spark_source
from uplink_spark.jobs.offset_range import offset_range

TABLE, END = "lake.messages", "rocketbox.end"


def settings(warehouse: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
    }


def position(spark: SparkSession) -> str | None:
    """Return where the table stands: what its newest snapshot of this program says."""
    if not spark.catalog.tableExists(TABLE):
        return None
    ends = spark.sql(f"SELECT summary['{END}'] FROM {TABLE}.snapshots WHERE summary['{END}'] IS NOT NULL "
                     "ORDER BY committed_at DESC LIMIT 1").collect()  # fmt: skip
    return str(ends[0][0]) if ends else None


def version(text: str) -> int:
    return sum(seq for shard, seq in json.loads(text).items() if shard.isdigit())


def run(spark: SparkSession, landing: str, checkpoint: str) -> None:
    def write(batch: DataFrame, number: int) -> None:
        found, at = offset_range(checkpoint, number), position(spark)
        if at is not None and found.version <= version(at):
            return  # it is there: the program was killed between the commit and Spark's note of it
        rows = batch.writeTo(TABLE).option(f"snapshot-property.{END}", found.text)
        rows.append() if at is not None or spark.catalog.tableExists(TABLE) else rows.create()

    start: dict[str, Any] = {"startingOffsets": at} if (at := position(spark)) else {}
    stream = spark_source.read(spark, landing, stream=True, **start)
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    landing, warehouse, checkpoint = sys.argv[1:4]
    builder: Any = SparkSession.builder
    for name, value in settings(warehouse).items():
        builder = builder.config(name, value)
    run(builder.getOrCreate(), landing, checkpoint)


if __name__ == "__main__":
    main()
