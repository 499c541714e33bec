"""Ranges of the log that the gateway refuses as damaged: read again, then halved, at last sent unparsed.

One bad record neither stops the uplink nor disappears. Of one connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

REFUSALS = 3  # of one range, then it is halved


class Suspects:
    """What is cut otherwise than planned, by the log offset where it begins."""

    def __init__(self) -> None:
        self._refusals: Counter[tuple[int, int]] = Counter()
        self._picks: Counter[tuple[int, int]] = Counter()
        self._ends: dict[int, int] = {}  # a piece that begins here ends there
        self._parted: set[int] = set()  # parts of a range that was refused three times
        self._blobs: set[int] = set()

    def end_of(self, start: int) -> int:
        """Where a piece that begins here ends at the latest."""
        return self._ends.get(start, 1 << 63)

    def is_blob(self, start: int) -> bool:
        return start in self._blobs

    def landed(self, start: int) -> None:
        self._ends.pop(start, None)
        self._blobs.discard(start)
        self._parted.discard(start)

    def refused(self, start: int, end: int, sizes: Sequence[int]) -> bool:
        """Note a refusal of a range with records of these sizes; returns whether it goes unparsed from now on."""
        self._refusals[start, end] += 1
        if self._refusals[start, end] < REFUSALS and start not in self._parted:
            self._ends[start] = end  # the same range again, so that its refusals are counted
            return False
        parts = halves(start, end, sizes)
        if len(parts) == 1:
            self._blobs.add(start)
        for low, high in parts:
            self._ends[low] = high
            self._parted.add(low)
        return len(parts) == 1

    def pick_refused(self, start: int, end: int) -> bool:
        """Note a refusal of an express piece; returns whether there were so many that it is not sent again."""
        self._picks[start, end] += 1
        return self._picks[start, end] >= REFUSALS


def halves(start: int, end: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Split a refused range at the record border nearest its middle; one record cannot be split."""
    if len(sizes) < 2:
        return [(start, end)]
    middle = start + sum(sizes[: len(sizes) // 2])
    return [(start, middle), (middle, end)]
