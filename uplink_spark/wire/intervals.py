"""A set of log offsets kept as sorted intervals that do not touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Intervals:
    """Half-open ranges [start, end): what is covered; neighbours melt together.

    A change makes new lists and puts them in place at once: a thread that looks meanwhile sees what was or what is.
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        starts, ends = list[int](), list[int]()
        for start, end in ranges:
            _add(starts, ends, start, end)
        self._bounds = starts, ends

    def __iter__(self) -> Iterator[Range]:
        return zip(*self._bounds, strict=True)

    def __len__(self) -> int:
        return len(self._bounds[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"

    @property
    def end(self) -> int:
        """The highest covered end, 0 if nothing is covered."""
        _, ends = self._bounds
        return ends[-1] if ends else 0

    def first(self, count: int) -> list[Range]:
        """The lowest intervals."""
        starts, ends = self._bounds
        return list(zip(starts[:count], ends[:count], strict=True))

    def add(self, start: int, end: int) -> None:
        starts, ends = self._bounds
        starts, ends = starts.copy(), ends.copy()
        _add(starts, ends, start, end)
        self._bounds = starts, ends

    def remove(self, start: int, end: int) -> None:
        starts, ends = self._bounds
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if first >= last or start >= end:
            return
        sides = [(starts[first], start), (end, ends[last - 1])]
        kept = [side for side in sides if side[0] < side[1]]
        self._bounds = (
            [*starts[:first], *(low for low, _ in kept), *starts[last:]],
            [*ends[:first], *(high for _, high in kept), *ends[last:]],
        )

    def overlapping(self, start: int, end: int) -> list[Range]:
        """The covered intervals that share a byte with [start, end), not clipped."""
        starts, ends = self._bounds
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        return list(zip(starts[first:last], ends[first:last], strict=True))

    def within(self, start: int, end: int) -> list[Range]:
        """The covered parts of [start, end)."""
        return [(max(start, low), min(end, high)) for low, high in self.overlapping(start, end)]

    def missing(self, start: int, end: int) -> list[Range]:
        """The parts of [start, end) that are not covered, ascending."""
        holes: list[Range] = []
        for low, high in self.within(start, end):
            if start < low:
                holes.append((start, low))
            start = high
        if start < end:
            holes.append((start, end))
        return holes

    def covers(self, start: int, end: int) -> bool:
        return not self.missing(start, end)

    def bytes_in(self, start: int, end: int) -> int:
        return sum(high - low for low, high in self.within(start, end))

    def copy(self) -> Intervals:
        twin = Intervals()
        twin._bounds = self._bounds
        return twin


def _add(starts: list[int], ends: list[int], start: int, end: int) -> None:
    if start >= end:
        return
    first = bisect_left(ends, start)  # touches or overlaps from here ...
    last = bisect_right(starts, end)  # ... to before here
    if first < last:
        start, end = min(start, starts[first]), max(end, ends[last - 1])
    starts[first:last] = [start]
    ends[first:last] = [end]
