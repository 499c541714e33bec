"""Record batches to a Parquet file that a commit can list: written, synced, measured."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from uplink_spark.jobs.commits import DataFile
from uplink_spark.wire.durable import sync_folder

DICTIONARY = frozenset(
    (
        *("box", "epoch", "topic", "queue_id", "kind", "tags", "body_state", "flag", "sys_flag", "reconsume_times"),
        *("prepared_offset", "landed_time", "born_host", "store_host", "shard", "seq", "properties.key_value.key"),
    )
)  # with DELTA for other whole numbers: 74.9 -> 67.3 bytes a row of 294, and 15 % less CPU than plain pages
NO_STATISTICS = frozenset(("body", "properties", "keys"))  # nobody looks for a range of these
ROW_GROUP = 1 << 17  # rows, or
ROW_GROUP_BYTES = 32 << 20  # of Arrow buffers, whichever comes first: what a worker holds back
MAX_TOPICS = 64


def day_of(landed_ms: int) -> str:
    return datetime.fromtimestamp(landed_ms / 1000, UTC).date().isoformat()


def spark_columns(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return (name, Spark type) of each column, as a table declares them."""
    return [(column.name, column.dataType.simpleString()) for column in from_arrow_schema(schema)]


def folder_of(part: str, day: str) -> str:
    """Return where files of a landed day are; other engines read the day as a partition column."""
    return f"{part}/landed_day={day}"


class _Extent:
    """Smallest and largest values and the topics of the rows written."""

    def __init__(self) -> None:
        self.rows = 0
        self._ends: dict[str, tuple[object, object]] = {}
        self._topics: set[str] = set()

    def add(self, batch: pa.Table) -> None:
        self.rows += batch.num_rows
        for name in ("box", "store_time", "landed_time"):
            if name in batch.schema.names:
                self._widen(name, pc.min_max(batch[name]))
        if "topic" in batch.schema.names and len(self._topics) <= MAX_TOPICS:
            self._topics |= {topic for topic in pc.unique(batch["topic"]).to_pylist() if topic is not None}

    def _widen(self, name: str, ends: pa.StructScalar) -> None:
        column = ends["min"].type
        low, high = (
            (ends[end].value if pa.types.is_timestamp(column) else ends[end].as_py()) for end in ("min", "max")
        )
        if low is not None:
            before = self._ends.get(name, (low, high))
            self._ends[name] = (min(before[0], low), max(before[1], high))

    def times(self, name: str) -> tuple[int, int] | None:
        ends = self._ends.get(name)
        return None if ends is None else (int(ends[0]) // 1000, -(-int(ends[1]) // 1000))  # type: ignore[call-overload]

    def boxes(self) -> tuple[str, str] | None:
        ends = self._ends.get("box")
        return None if ends is None else (str(ends[0]), str(ends[1]))

    def topics(self) -> tuple[str, ...] | None:
        return tuple(sorted(self._topics)) if len(self._topics) <= MAX_TOPICS else None


def _settings(schema: pa.Schema) -> dict[str, Any]:
    """Return the writer's settings: pages as small as one quick pass makes them."""
    delta = {
        column.name: "DELTA_BINARY_PACKED"
        for column in schema
        if column.name not in DICTIONARY
        and (column.type in (pa.int32(), pa.int64()) or pa.types.is_timestamp(column.type))
    }
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [path for path in DICTIONARY if path.partition(".")[0] in schema.names],
        "column_encoding": delta or None,
        "write_statistics": [name for name in schema.names if name not in NO_STATISTICS],
    }


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches, which are as small as the decoder likes them, into row groups as readers like them."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > ROW_GROUP or size + batch.nbytes > ROW_GROUP_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def write_file(root: str, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, part: str) -> DataFile:
    """Write one file of the table and return its entry; it is part of the table once a commit lists it."""
    relative = f"{folder}/{secrets.token_hex(16)}.parquet"
    path = Path(root, relative)
    path.parent.mkdir(parents=True, exist_ok=True)
    extent = _Extent()
    with pq.ParquetWriter(path, schema, **_settings(schema)) as writer:
        for table in _row_groups(batches):
            extent.add(table)
            writer.write_table(table, row_group_size=ROW_GROUP)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    sync_folder(path.parent)
    return DataFile(
        relative,
        extent.rows,
        size,
        part,
        extent.boxes(),
        extent.topics() if "topic" in schema.names else None,
        extent.times("store_time"),
        extent.times("landed_time"),
    )
