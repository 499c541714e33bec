"""Parquet files of a table in a bucket as a DataFrame: Python tasks read them, Spark needs no jar for the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from uplink_spark.jobs.table.commits import DataFile
from uplink_spark.jobs.table.location import locate

TASK_BYTES = 64 << 20  # of files in one task
BATCH_ROWS = 1 << 15
Term = tuple[str, str, Any]  # column, "in" or ">=", value


def read_bucket(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, rows: Sequence[Term] = ()
) -> DataFrame:
    """Return the rows of listed files for which all terms hold; columns that a file lacks are null."""
    tasks, columns = group_by_bytes(files), to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read_paths(root, tasks[number], columns, rows)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(read, schema)


def group_by_bytes(files: Iterable[DataFile]) -> list[list[str]]:
    """Return the paths of files, in order, in groups of about TASK_BYTES."""
    groups: list[list[str]] = []
    size = TASK_BYTES
    for file in files:
        if size + file.bytes > TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file.path)
        size += file.bytes
    return groups


def read_paths(
    root: str, paths: Sequence[str], columns: pa.Schema, rows: Sequence[Term] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns."""
    found = ds.dataset(list(paths), schema=columns, format="parquet", filesystem=locate(root).file_system())
    chosen = pq.filters_to_expression(list(rows)) if rows else None
    yield from found.to_batches(filter=chosen, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
