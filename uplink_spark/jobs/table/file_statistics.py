"""The statistics of a Parquet file as Delta's log carries them, from the file's own footer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq

# Columns that queries choose rows by; the log of a table grows with each of them.
COLUMNS = (
    *("box", "epoch", "log_offset", "topic", "queue_id", "queue_offset", "kind", "born_time", "store_time"),
    *(
        "landed_time",
        "shard",
        "seq",
        "from_offset",
        "to_offset",
        "class",
        "landed",
        "minute",
        "bronze_version",
        "received",
    ),
)
MAX_TEXT = 256  # longer values are left out: half a topic is no bound
MILLISECOND = timedelta(milliseconds=1)


def statistics_of(footer: pq.FileMetaData) -> str:
    """Return the JSON of `stats` in an `add` action (Delta protocol, "Per-file Statistics")."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    names = [name for name in footer.schema.to_arrow_schema().names if name in COLUMNS]
    leaves = {footer.schema.column(at).path: at for at in range(len(footer.schema))}
    for name in names:
        groups = [footer.row_group(at).column(leaves[name]).statistics for at in range(footer.num_row_groups)]
        if any(found is None or not found.has_null_count for found in groups):
            continue
        nulls[name] = sum(found.null_count for found in groups)
        bounded = [found for found in groups if found.has_min_max]
        if bounded and len(bounded) == sum(found.num_values > 0 for found in groups):
            _bound(name, min(found.min for found in bounded), max(found.max for found in bounded), (least, most))
    found = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(found, separators=(",", ":"))


def _bound(name: str, low: Any, high: Any, into: tuple[dict[str, Any], dict[str, Any]]) -> None:
    if isinstance(low, str) and max(len(low), len(high)) > MAX_TEXT:
        return
    if isinstance(low, datetime):
        low, high = _iso(low), _iso(high + MILLISECOND)  # Delta keeps milliseconds, cut off: the upper one rounds up
    into[0][name], into[1][name] = low, high


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
