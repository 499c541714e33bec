"""Declared losses as rows: one for each queue a gap touches, one without queue where the queues are not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from uplink_spark.spark import fields
from uplink_spark.spark.fields import TIMESTAMP
from uplink_spark.wire.batch import gap_range
from uplink_spark.zone.manifest import ManifestEntry

GAPS_SCHEMA = pa.schema(
    [
        ("box", pa.string()),
        ("epoch", pa.int64()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("class", pa.string()),
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("first_queue_offset", pa.int64()),
        ("last_queue_offset", pa.int64()),
        ("records", pa.int64()),  # null: not known, never 0
        ("since", TIMESTAMP),
        ("until", TIMESTAMP),
        ("declared", TIMESTAMP),
        ("landed", TIMESTAMP),
        ("bytes_path", pa.string()),  # of a blob: where its bytes are
    ]
)
_TIMES = ("since", "until", "declared", "landed")
_UNKNOWN_QUEUE: tuple[Any, ...] = (None, None, None, None, None)


def lost_entry(entry: ManifestEntry, now_ms: int) -> ManifestEntry:
    """Return the declared loss that stands for a piece which had landed and can be read no more."""
    whole = entry.kind == "log" and entry.raw_bytes == entry.end - entry.start  # else part of it is in other entries
    gap = {"class": "damaged", "reason": "pack_lost", "queues": [], "declared": now_ms}
    return replace(entry, kind="gap", gap=gap | ({"records": entry.records} if whole else {}))


def gap_rows(entries: Iterable[ManifestEntry]) -> pa.RecordBatch:
    """Return the rows of entries of kind `gap` and `blob`; other entries have none."""
    rows = [row for entry in entries if entry.kind in ("gap", "blob") for row in _rows(entry)]
    arrays = [_array(column, [row[column.name] for row in rows]) for column in GAPS_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=GAPS_SCHEMA)


def _array(column: pa.Field, values: list[Any]) -> pa.Array:
    """A number that the column cannot hold, or no number where there should be one, is not known."""
    if column.name in _TIMES:
        return _times([_number(value, 62) for value in values])
    if pa.types.is_integer(column.type):
        values = [_number(value, column.type.bit_width - 1) for value in values]
    return pa.array(values, column.type)


def _number(value: object, bits: int) -> int | None:
    return value if isinstance(value, int) and -1 << bits <= value < 1 << bits else None


def _times(values: list[int | None]) -> pa.Array:
    """Epoch 0 is what a box without clock says: not known."""
    times = fields.times(np.array([value or 0 for value in values], np.int64))
    return pa.array([time if value else None for time, value in zip(times, values, strict=True)], TIMESTAMP)


def _rows(entry: ManifestEntry) -> Iterator[dict[str, Any]]:
    gap = entry.gap or {}
    queues = [tuple(queue) for queue in gap.get("queues", ())]
    epoch, start, end = gap_range(gap, entry.epoch, entry.start, entry.end)
    for topic, queue_id, first, last, count in queues or [(*_UNKNOWN_QUEUE[:4], gap.get("records"))]:
        yield {
            "box": entry.box,
            "epoch": epoch,
            "from_offset": start,
            "to_offset": end,
            "class": gap.get("class", "damaged"),
            "reason": gap.get("reason"),
            "topic": topic,
            "queue_id": queue_id,
            "first_queue_offset": first,
            "last_queue_offset": last,
            "records": count,
            "since": gap.get("since"),
            "until": gap.get("until"),
            "declared": gap.get("declared"),
            "landed": entry.landed_ms,
            "bytes_path": f"{entry.pack}@{entry.offset}" if entry.kind == "blob" else None,
        }
