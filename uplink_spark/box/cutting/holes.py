"""Ranges of the log that the disk does not give back: what is readable before and behind them is shipped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage_driver.files.unreadable import BLOCK, only_unreadable
from uplink_spark.box.cutting.cutter import CutOrder, ReadLog, Taken, next_record, readable_end, take_piece
from uplink_spark.wire.batch import MAX_RAW_BYTES

AGAIN_S = 5.0  # to the next try
MOST_BAD = 256  # blocks of one hole: each may take the disk seconds, and what is behind them is the next hole's
_STEP = 16 * BLOCK  # bytes that are read at once


@dataclass(frozen=True, slots=True)
class Hole:
    """Whole records end at `start`; the next one behind the unreadable blocks, or the next bytes, are at `end`.

    These bytes may be unreadable, too, where there are so many.
    """

    start: int
    end: int


def take_around(read: ReadLog, order: CutOrder) -> Taken | Hole:
    """Return what the next piece of an order holds, up to a hole; a hole where the order begins with it. Blocks.

    Raises OSError for any other error than that of a sector, and where nothing near can be read.
    """
    try:
        return take_piece(read, order)
    except OSError as exc:
        only_unreadable(exc)
    hole = find_hole(read, order)
    if hole is not None and hole.start == order.start:
        return hole
    return take_piece(read, order if hole is None else replace(order, limit=hole.start))


def find_hole(read: ReadLog, order: CutOrder) -> Hole | None:
    """Return the first hole in the range of an order that could not be read, None when it can be now. Blocks.

    Raises OSError for any other error than that of a sector, and where nothing near can be read.
    """
    end = min(order.limit, order.file_end)
    raw, bad = _readable(read, order.start, min(end, order.start + MAX_RAW_BYTES))
    if bad is None:
        return None
    if (whole := readable_end(raw, order)) is not None:
        return Hole(whole, bad)
    at, found, tried = bad, bool(raw), 0
    while at < end and tried < MOST_BAD:
        tried += 1
        raw, bad = _readable(read, at, min(end, at + MAX_RAW_BYTES))
        if raw and (behind := next_record(raw, at, 0)) is not None:
            return Hole(order.start, at + behind)
        found |= bool(raw)
        at += len(raw)
        if bad is None:
            break  # no record begins in all of this: what follows is damaged, but there
        at = min(end, bad - bad % BLOCK + BLOCK)
    if not found and not _is_readable_before(read, order.start):
        read(order.start, 1)  # the disk is gone: its error is the answer
    return Hole(order.start, at)


def _readable(read: ReadLog, start: int, end: int) -> tuple[bytes, int | None]:
    """Return the bytes from start up to the first block that cannot be read, and where that is."""
    parts, at, step = list[bytes](), start, _STEP
    while at < end:
        try:
            part = read(at, min(end, at - at % BLOCK + step) - at)
        except OSError as exc:
            only_unreadable(exc)
            if step == BLOCK:
                return b"".join(parts), at
            step = BLOCK
            continue
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts), None


def _is_readable_before(read: ReadLog, start: int) -> bool:
    """Tell whether one of some blocks before the range can be read."""
    for back in (1, 16, 256):
        try:
            if start >= back * BLOCK and read(start - back * BLOCK, 1):
                return True
        except OSError as exc:
            only_unreadable(exc)
    return False
