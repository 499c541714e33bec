"""A set of log offsets kept as sorted intervals that do not touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Intervals:
    """Half-open ranges [start, end): what is covered; neighbours melt together."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"

    @property
    def end(self) -> int:
        """The highest covered end, 0 if nothing is covered."""
        return self._ends[-1] if self._ends else 0

    def first(self, count: int) -> list[Range]:
        """The lowest intervals."""
        return list(zip(self._starts[:count], self._ends[:count], strict=True))

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self._ends, start)  # touches or overlaps from here ...
        last = bisect_right(self._starts, end)  # ... to before here
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def remove(self, start: int, end: int) -> None:
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last or start >= end:
            return
        sides = [(self._starts[first], start), (end, self._ends[last - 1])]
        kept = [side for side in sides if side[0] < side[1]]
        self._starts[first:last], self._ends[first:last] = [a for a, _ in kept], [b for _, b in kept]

    def overlapping(self, start: int, end: int) -> list[Range]:
        """The covered intervals that share a byte with [start, end), not clipped."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return list(zip(self._starts[first:last], self._ends[first:last], strict=True))

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
        twin._starts, twin._ends = self._starts.copy(), self._ends.copy()
        return twin
