"""Which queue offsets are in a range of the log: a bisection in each ConsumeQueue, the log itself is not read.

A unit is 20 bytes: i64 log offset, i32 size, i64 tags code (RocketMQ 4.9.8 ConsumeQueue). Files are named by the byte
position of their first unit.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage_driver.files.unreadable import only_unreadable

UNIT = struct.Struct(">qi8x")
UNIT_BYTES = 20
MAX_QUEUES = 2000
QueueRow = tuple[str, int, int, int, int]  # topic, queue id, first and last queue offset, count


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """The queue offsets of a range."""

    queues: tuple[QueueRow, ...]  # at most 2,000
    records: int
    more: int  # rows left out
    newest_at: int | None = None  # log offset of the newest record, None: none is there


class _Units(Sequence[int]):
    """Log offsets of the units of one queue, by position from its first file; what is not written is past the end."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted((int(f.name), f) for f in folder.iterdir() if f.name.isdigit() and len(f.name) == 20)
        self.first = self._files[0][0] // UNIT_BYTES if self._files else 0
        self._end = max(((base + file.stat().st_size) // UNIT_BYTES for base, file in self._files), default=0)

    def __len__(self) -> int:
        return self._end - self.first

    def __getitem__(self, at: int) -> int:  # type: ignore[override]
        position = (self.first + at) * UNIT_BYTES
        base, file = next((b, f) for b, f in reversed(self._files) if b <= position)
        with open(file, "rb") as unit_file:
            data = os.pread(unit_file.fileno(), UNIT_BYTES, position - base)
        if len(data) < UNIT_BYTES:
            return 1 << 63
        log_offset, size = UNIT.unpack(data)
        return int(log_offset) if size else 1 << 63


def lost_queues(store_root: Path | None, start: int, end: int) -> LostOffsets | None:
    """Return what of each queue is in log [start, end); None when the queues do not tell. Blocks. Raises OSError.

    They do not where they reach not back that far, or the disk does not give them back.
    """
    try:
        return _lost_queues(store_root, start, end)
    except OSError as exc:
        only_unreadable(exc)
        return None


def _lost_queues(store_root: Path | None, start: int, end: int) -> LostOffsets | None:
    root = store_root / "consumequeue" if store_root is not None else None
    if root is None or not root.is_dir():
        return None
    rows: list[QueueRow] = []
    newest_at: int | None = None
    for folder in sorted(root.glob("*/*")):
        if not folder.name.isdigit():
            continue
        units = _Units(folder)
        low = bisect_left(units, start)
        if units.first and not low:
            return None  # its older units are gone, so nobody can count them
        high = bisect_left(units, end, low)
        if high > low:
            rows.append((folder.parent.name, int(folder.name), units.first + low, units.first + high - 1, high - low))
            newest_at = max(units[high - 1], newest_at or 0)
    return LostOffsets(tuple(rows[:MAX_QUEUES]), sum(row[4] for row in rows), max(0, len(rows) - MAX_QUEUES), newest_at)
