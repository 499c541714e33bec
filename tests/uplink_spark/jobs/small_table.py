"""Small tables, for tests of what lists their files."""

import pyarrow as pa

from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file

COLUMNS = pa.schema([("box", pa.string()), ("topic", pa.string()), ("seq", pa.int64())])


def add(table: Table, day: str, rows: int = 5) -> str:
    """Write and commit one file of a landed day; return its path."""
    have = table.declare({"data": COLUMNS}, ["0"])
    seq = have.end.get("0", 0)
    batch = pa.record_batch({"box": ["a"] * rows, "topic": ["T"] * rows, "seq": range(rows)}, COLUMNS)
    file = write_file(table.root, day, COLUMNS, [batch], part="data")
    table.append(have, [file], {"0": seq + 1}, {"0": f"seq {seq}"})
    return file.path
