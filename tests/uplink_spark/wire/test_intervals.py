"""Interval sets against plain Python sets of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.wire.intervals import Intervals


class Meddler(int):
    """A number that changes a set when it is compared, as another thread may."""

    def meddle(self, intervals: Intervals) -> Meddler:
        self._intervals = intervals
        return self

    def __lt__(self, other: int) -> bool:
        self._intervals.add(0, 15)
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        self._intervals.add(0, 15)
        return int(self) > other


def test_a_look_sees_one_state_whatever_is_added_meanwhile() -> None:
    ranges = [(0, 5), (10, 15), (20, 25), (30, 35)]
    intervals = Intervals(ranges)
    assert intervals.overlapping(Meddler(21).meddle(intervals), 22) == [(20, 25)]
    assert list(intervals) == [(0, 15), (20, 25), (30, 35)]
    seen = []
    for part in intervals:
        seen.append(part)
        intervals.add(0, 26)
    assert seen == [(0, 15), (20, 25), (30, 35)]
    twin = intervals.copy()
    intervals.remove(0, 26)
    assert (list(intervals), list(twin)) == ([(30, 35)], [(0, 26), (30, 35)])


RANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 20)), max_size=20)


@pytest.mark.slow
@given(RANGES, st.integers(0, 80), st.integers(0, 80))
def test_adding_and_removing_is_what_a_set_of_numbers_does(steps: list[tuple[bool, int, int]], a: int, b: int) -> None:
    intervals, plain = Intervals(), set[int]()
    for adding, start, length in steps:
        if adding:
            intervals.add(start, start + length)
            plain |= set(range(start, start + length))
        else:
            intervals.remove(start, start + length)
            plain -= set(range(start, start + length))
    rows = list(intervals)
    assert set().union(*(range(*row) for row in rows)) == plain
    assert all(before[1] < after[0] for before, after in itertools.pairwise(rows))
    low, high = min(a, b), max(a, b)
    assert set().union(*(range(*row) for row in intervals.missing(low, high))) == set(range(low, high)) - plain
    assert intervals.covers(low, high) == (set(range(low, high)) <= plain)
    assert intervals.bytes_in(low, high) == len(set(range(low, high)) & plain)
    assert intervals.end == (max(plain) + 1 if plain else 0)
