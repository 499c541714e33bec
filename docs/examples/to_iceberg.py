"""Messages into an Iceberg table of your own with Spark, each once, whatever is killed or lost.

spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 \
    docs/examples/to_iceberg.py LANDING lake.db.messages CHECKPOINT WAREHOUSE

Needs PySpark 4.0 with that runtime. Iceberg has no txnVersion: each snapshot says in its summary where it ends, and a
batch that the newest snapshot already has is left out. Run one of these programs at a time: a check by itself does not
keep a second writer out.
"""

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from uplink_spark import spark_source
from uplink_spark.jobs.offset_range import offset_range

VERSION, OFFSETS = "rocketbox.version", "rocketbox.offsets"  # in the summary of a snapshot
CATALOG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.cache-enabled": "false",  # a batch has a session of its own: another would not see its rows
}


def position(spark: SparkSession, table: str) -> tuple[int, str] | None:
    """Return where the table stands: version and offsets of the newest snapshot that this program made."""
    if not spark.catalog.tableExists(table):
        return None
    made = spark.table(f"{table}.snapshots").where(f"summary['{VERSION}'] is not null")
    newest = made.orderBy("committed_at", ascending=False).select("summary").first()
    return None if newest is None else (int(newest[0][VERSION]), str(newest[0][OFFSETS]))


def run(spark: SparkSession, landing: str, table: str, checkpoint: str) -> None:
    def write(batch: DataFrame, number: int) -> None:
        found, have = offset_range(checkpoint, number), position(spark, table)
        if have is not None and found.version <= have[0]:
            return  # it was killed between the table's commit and Spark's note of it
        written = batch.writeTo(table)
        if have is None and not spark.catalog.tableExists(table):
            batch.limit(0).writeTo(table).using("iceberg").create()
        written.option(f"snapshot-property.{VERSION}", str(found.version))
        written.option(f"snapshot-property.{OFFSETS}", found.text).append()

    have = position(spark, table)
    start: dict[str, Any] = {} if have is None else {"startingOffsets": have[1]}  # for a lost checkpoint
    rows = spark_source.read(spark, landing, stream=True, **start)
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    builder: Any = SparkSession.builder
    for name, value in (CATALOG | {"spark.sql.catalog.lake.warehouse": sys.argv[4]}).items():
        builder = builder.config(name, value)
    run(builder.getOrCreate(), *sys.argv[1:4])


if __name__ == "__main__":
    main()
