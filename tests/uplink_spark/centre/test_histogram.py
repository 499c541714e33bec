"""Durations in buckets: at an edge, beyond the last one, added up, and of a block that failed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uplink_spark.centre.histogram import BUCKETS_S, Histogram

Seconds = st.lists(st.one_of(st.sampled_from(BUCKETS_S), st.floats(0, 20, allow_nan=False)), max_size=20)


@settings(max_examples=20)
@given(Seconds, Seconds)
def test_counts_are_those_of_a_model_and_adding_is_observing_both(first: list[float], second: list[float]) -> None:
    whole = Histogram(first)
    part = Histogram(second)
    whole += part
    both = first + second
    upper = [sum(value <= edge for value in both) for edge in BUCKETS_S]
    assert [sum(whole.counts[: n + 1]) for n in range(len(BUCKETS_S))] == upper
    assert whole.number == len(both)
    assert whole.total_s == pytest.approx(sum(both))
    assert part.number == len(second)  # not changed by being added


def test_a_block_that_fails_counts_too() -> None:
    histogram = Histogram()
    with pytest.raises(OSError), histogram.measured():  # noqa: PT011 - its own
        raise OSError
    assert (histogram.number, histogram.counts[0]) == (1, 1)
