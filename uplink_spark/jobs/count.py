"""Counting the rows of a landing zone without handing them to Spark.

    count(spark, "/landing", topics=["Vitals"], startingTimestamp="-1d")

Spark does not tell a Python source which columns a query needs, so `count()` of a DataFrame decodes all of them and
copies each row to the JVM. Here a task decodes what chooses rows, and hands over one number for each few MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from uplink_spark.spark.packs import read_batches
from uplink_spark.spark.source_tasks import Content, MessageRows, Work, settle_worker
from uplink_spark.spark_source import CommitLogSource, as_text
from uplink_spark.zone.files import open_files

COUNTS = pa.schema([("rows", pa.int64())])
NARROW = ("seq",)  # a column that costs nothing


class RowCounts(MessageRows):
    """How many rows the pieces of a task have."""

    def batches(self, partition: Work) -> Iterator[pa.RecordBatch]:
        settle_worker()
        options = self.options
        view = replace(options.view, columns=NARROW)
        found = read_batches(open_files(options.path), partition.refs(), view, fail_on_loss=options.fail_on_loss)
        for batch in found:
            yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows], pa.int64())], schema=COUNTS)


class RowCountSource(CommitLogSource):
    """The source `commitlog` with its options, of which only the number of rows is asked."""

    @classmethod
    def name(cls) -> str:
        return "commitlog_count"

    def _arrow_schema(self) -> pa.Schema:
        return COUNTS

    def _content(self) -> Content:
        return RowCounts(self._parsed)


def count(spark: SparkSession, path: str, **options: object) -> int:
    """Return how many rows `spark_source.read` with these options has."""
    spark.dataSource.register(RowCountSource)
    reader: Any = spark.read.format("commitlog_count").options(
        **{name: as_text(value) for name, value in options.items()}
    )
    found = reader.load(path).groupBy().sum("rows").collect()[0][0]
    return int(found or 0)
