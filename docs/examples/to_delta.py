"""Messages into a Delta table of your own with Spark's Delta connector, each once, whatever is killed or lost.

spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 docs/examples/to_delta.py LANDING TABLE CHECKPOINT

Needs PySpark 4.1 or 4.2: there is no Delta connector for 4.3 (the table of bronze needs none).
"""

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from uplink_spark import spark_source
from uplink_spark.jobs.offset_range import offset_range

APP = "rocketbox-messages"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def position(spark: SparkSession, table: str) -> str | None:
    """Return where the table stands: what its newest commit of this program says."""
    from delta.tables import DeltaTable

    if not DeltaTable.isDeltaTable(spark, table):
        return None
    found = DeltaTable.forPath(spark, table).history().where("userMetadata like '{\"0\"%'")
    newest = found.orderBy("version", ascending=False).select("userMetadata").first()
    return None if newest is None else str(newest[0])


def run(spark: SparkSession, landing: str, table: str, checkpoint: str) -> None:
    def write(batch: DataFrame, number: int) -> None:
        found = offset_range(checkpoint, number)
        written = batch.write.format("delta").mode("append").option("userMetadata", found.text)
        written.option("txnAppId", APP).option("txnVersion", found.version).save(table)

    start: dict[str, Any] = {"startingOffsets": at} if (at := position(spark, table)) else {}  # without a checkpoint
    rows = spark_source.read(spark, landing, stream=True, **start)
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    builder: Any = SparkSession.builder
    for name, value in DELTA.items():
        builder = builder.config(name, value)
    run(builder.getOrCreate(), *sys.argv[1:4])


if __name__ == "__main__":
    main()
