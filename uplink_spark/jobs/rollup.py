"""Small files of ranges and gaps joined while the table grows: a day of short triggers would leave thousands of them.

Each commit of bronze adds one file of ranges. Above MOST small ones of a landed day the driver joins them: it reads
them itself, a few MiB at most, and commits one file for them. `compact` does the rest at night.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from uplink_spark.jobs.table.commits import DataFile, NewFile, TableError
from uplink_spark.jobs.table.delta import Schemas, Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.table.swap import FilesGone, swap

MOST = 100  # small files of a part and landed day; every so many commits one more commit
SMALL_BYTES = 1 << 20
READERS = 16  # files at a time: each is a request where the table is in a bucket
PARTS = ("ranges", "gaps")  # `data` has files of many MiB a task, and silver reads each of them once


def small_groups(files: Iterable[DataFile], most: int = MOST) -> list[list[DataFile]]:
    """Return the files to be joined, by part and landed day."""
    small = [file for file in files if file.part in PARTS and file.bytes < SMALL_BYTES]
    small.sort(key=lambda file: (file.part, file.day))
    groups = [list(found) for _, found in groupby(small, key=lambda file: (file.part, file.day))]
    return [group for group in groups if len(group) >= most]


def roll_up(table: Table, schemas: Schemas, *, most: int = MOST) -> int:
    """Join small files; return how many. Another driver's care of them wins: then they stay for the next time."""
    joined = 0
    for group in small_groups(table.snapshot().files.values(), most):
        try:
            swap(table, group, [join(table, group, _with_foreign(table, schemas[group[0].part]))])
        except FilesGone:
            continue
        joined += len(group)
    return joined


def _with_foreign(table: Table, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a part with those that another program added."""
    return pa.schema([*schema, *pa.schema(Schema(table.foreign()).to_arrow())])


def join(table: Table, group: Sequence[DataFile], schema: pa.Schema) -> NewFile:
    """Write one file with the rows of files of one part and day. Raises TableError where they would not be the same."""
    part, day = group[0].part, group[0].day
    new = write_file(table.root, day, schema, _rows(table, group, schema), part=part)
    if new.rows != sum(file.rows for file in group):
        raise TableError(f"joining {part} of {day} would change rows of {table.root}; nothing was committed")
    return new


def _rows(table: Table, group: Iterable[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    system = table.location.file_system()
    with ThreadPoolExecutor(READERS) as pool:
        for found in pool.map(lambda file: pq.read_table(file.path, filesystem=system, partitioning=None), group):
            for name in set(schema.names) - set(found.column_names):
                found = found.append_column(schema.field(name), pa.nulls(found.num_rows, schema.field(name).type))
            yield from found.select(schema.names).cast(schema).to_batches()
