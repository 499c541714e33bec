"""Are the bytes of a range that comes again those that landed? A receipt lets a box delete what it has.

The newest pieces of each box are known by their place: what a box sends twice it sends soon. They are read only when a
piece overlaps what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from uplink_spark.errors import PieceDamaged, Refused
from uplink_spark.wire.batch import PieceHeader, open_piece
from uplink_spark.zone.manifest import ManifestEntry

NEWEST = 64  # pieces of a box: its window
Read = Callable[[str, int, int], bytes]  # path, offset, length
Keep = Callable[[str, bytes, int], object]  # box, container, time


class LandedRange(NamedTuple):
    """Where a landed range is."""

    epoch: int
    kind: str
    start: int
    end: int
    pack: str
    offset: int
    stored_bytes: int


def landed_range(entry: ManifestEntry) -> LandedRange:
    """Return where an entry's piece is."""
    return LandedRange(entry.epoch, entry.kind, entry.start, entry.end, entry.pack, entry.offset, entry.stored_bytes)


class ContentCheck:
    """Compares pieces with what is held; all calls block."""

    def __init__(self, read: Read, keep: Keep) -> None:
        self._read, self._keep = read, keep

    def check(self, container: bytes, places: Iterable[LandedRange], mates: Iterable[bytes], now_ms: int) -> None:
        """Raise Refused, diverged, when a piece has other bytes than one that landed or lands with it in their range.

        What cannot be read any more (retention took its pack) cannot be compared. The refused bytes are kept.
        """
        piece = open_piece(container)
        header = piece.header
        near = [place for place in places if meet(header, place.epoch, place.kind, place.start, place.end)]
        for other in (*mates, *(found for place in near if (found := self._fetch(place)) is not None)):
            held = open_piece(other)
            if held.header.sha == header.sha and held.header.start == header.start:
                continue
            if not _same(header, piece.raw, held.header, held.raw):
                self._put_aside(header.box, container, now_ms)
                start, end = max(header.start, held.header.start), min(header.end, held.header.end)
                raise Refused(
                    "diverged",
                    f"range {start}..{end} has landed with other bytes: sha256 {held.header.sha.hex()} of "
                    f"{held.header.start}..{held.header.end}, now {header.sha.hex()} of {header.start}..{header.end}",
                    fork=header.start,
                )

    def _fetch(self, place: LandedRange) -> bytes | None:
        try:
            container = self._read(place.pack, place.offset, place.stored_bytes)
            open_piece(container)
        except (OSError, PieceDamaged):
            return None
        return container

    def _put_aside(self, box: str, container: bytes, now_ms: int) -> None:
        try:
            self._keep(box, container, now_ms)
        except OSError:
            pass  # refused all the same


def meet(header: PieceHeader, epoch: int, kind: str, start: int, end: int) -> bool:
    """Tell whether a piece and a range of a kind share bytes."""
    return (epoch, kind) == (header.epoch, header.kind) and start < header.end and header.start < end


def _same(header: PieceHeader, raw: Callable[[], bytes], held: PieceHeader, held_raw: Callable[[], bytes]) -> bool:
    """Tell whether two pieces that meet agree; picked records are told apart in the same range only."""
    if header.kind != "log":
        return (header.start, header.end) != (held.start, held.end)
    low, high = max(header.start, held.start), min(header.end, held.end)
    new, old = raw(), held_raw()
    return new[low - header.start : high - header.start] == old[low - held.start : high - held.start]
