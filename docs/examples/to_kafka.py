"""Messages into a topic of Kafka with Spark's own sink; the headers of each say which record of which box it is.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 docs/examples/to_kafka.py \\
  LANDING SERVERS TOPIC CHECKPOINT

Spark's sink writes a batch again when it was killed in the middle. The key of a record is its place in the log of its
box, the same each time: a consumer leaves out a key that it has seen, or the topic is compacted. Tasks write side by
side, so the order within a partition is not that of a log.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from uplink_spark import spark_source

COLUMNS = ["box", "epoch", "log_offset", "topic", "body"]
HEADERS = ("box", "epoch", "log_offset", "topic")


def records(messages: DataFrame) -> DataFrame:
    """Return what Kafka's sink takes: key, value and headers."""
    named = ", ".join(f"named_struct('key', '{name}', 'value', cast(string({name}) as binary))" for name in HEADERS)
    return messages.selectExpr("concat_ws(' ', box, epoch, log_offset) key", "body value", f"array({named}) headers")


def run(spark: SparkSession, landing: str, servers: str, topic: str, checkpoint: str) -> None:
    rows = spark_source.read(spark, landing, stream=True, columns=",".join(COLUMNS))
    query = records(rows).writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
    query = query.option("includeHeaders", "true").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    run(SparkSession.builder.getOrCreate(), *sys.argv[1:5])


if __name__ == "__main__":
    main()
