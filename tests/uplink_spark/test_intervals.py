"""Interval sets against plain Python sets of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.intervals import Intervals

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
