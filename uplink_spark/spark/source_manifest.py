"""Manifest entries as rows of `commitlog_manifest`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from uplink_spark.spark import fields
from uplink_spark.spark.fields import LIST, TIMESTAMP
from uplink_spark.zone.manifest import ManifestEntry, decode_entry

MANIFEST_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("box", pa.string()),
        ("epoch", pa.int64()),
        ("run", pa.int64()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("records", pa.int64()),
        ("raw_bytes", pa.int64()),
        ("stored_bytes", pa.int64()),
        ("store_time_min", TIMESTAMP),
        ("store_time_max", TIMESTAMP),
        ("cut_time", TIMESTAMP),
        ("landed_time", TIMESTAMP),
        ("clock_ok", pa.bool_()),
        ("topics", LIST),
        ("skip", LIST),
        ("gap", pa.string()),
        ("pack", pa.string()),
        ("pack_offset", pa.int64()),
        ("entry", pa.binary()),
    ]
)


def manifest_batch(items: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    """Return the rows of (shard, encoded entry) pairs."""
    entries = [decode_entry(data) for _, data in items]
    plain = {
        "shard": [shard for shard, _ in items],
        "seq": [entry.seq for entry in entries],
        "kind": [entry.kind for entry in entries],
        "box": [entry.box for entry in entries],
        "epoch": [entry.epoch for entry in entries],
        "run": [entry.run for entry in entries],
        "from_offset": [entry.start for entry in entries],
        "to_offset": [entry.end for entry in entries],
        "records": [entry.records for entry in entries],
        "raw_bytes": [entry.raw_bytes for entry in entries],
        "stored_bytes": [entry.stored_bytes for entry in entries],
        "clock_ok": [bool(entry.clock_ok) for entry in entries],
        "topics": [None if entry.topics is None else sorted(entry.topics) for entry in entries],
        "skip": [list(entry.skip) for entry in entries],
        "gap": [_gap_text(entry) for entry in entries],
        "pack": [entry.pack for entry in entries],
        "pack_offset": [entry.offset for entry in entries],
        "entry": [data for _, data in items],
    }
    times = {
        "store_time_min": [entry.stored_ms_min for entry in entries],
        "store_time_max": [entry.stored_ms_max for entry in entries],
        "cut_time": [entry.cut_ms for entry in entries],
        "landed_time": [entry.landed_ms for entry in entries],
    }
    arrays = [
        fields.times(np.array([min(ms, 1 << 62) for ms in times[column.name]], np.int64))
        if column.name in times
        else pa.array(plain[column.name], column.type)
        for column in MANIFEST_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MANIFEST_SCHEMA)


def _gap_text(entry: ManifestEntry) -> str | None:
    return None if entry.gap is None else json.dumps(entry.gap, default=repr, ensure_ascii=False, sort_keys=True)
