"""No range is given up at the first failed read, the next ones of a crowd are."""

from __future__ import annotations

from uplink_spark.box.receipts.doubtful import FORGOTTEN_S, MOST_KNOWN, PATIENCE_S, DoubtfulRanges


def test_a_range_is_lost_after_a_while_and_the_next_ones_at_once() -> None:
    ranges = DoubtfulRanges()
    assert not ranges.is_lost(5, 1000.0)
    assert not ranges.is_lost(5, 999.0 + PATIENCE_S)
    assert ranges.is_lost(5, 1000.0 + PATIENCE_S)
    assert ranges.is_lost(50, 1001.0 + PATIENCE_S)
    assert not ranges.is_lost(500, 1001.0 + PATIENCE_S + FORGOTTEN_S)
    assert not ranges.is_lost(500, 1002.0 + PATIENCE_S + 2 * FORGOTTEN_S), "the first failed read is forgotten"


def test_no_more_than_some_are_kept_in_memory() -> None:
    ranges = DoubtfulRanges()
    for start in range(2 * MOST_KNOWN):
        assert not ranges.is_lost(start, 0.0)
    assert len(ranges._failed) == MOST_KNOWN
