"""Declared losses: an id of its own for each, on the disk before anybody hears of it, forgotten when old and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from uplink_spark.box.receipts import declared_gaps
from uplink_spark.box.receipts.declared_gaps import DeclaredGaps
from uplink_spark.box.receipts.gaps import Gap

RUN = 7


def gap(number: int, start: int, end: int) -> Gap:
    return Gap(1, RUN, 0, start, end, {"id": [RUN, number], "class": "quota", "reason": "x"})


def opened(path: Path, delivered: set[tuple[int, int]]) -> DeclaredGaps:
    gaps = DeclaredGaps(path)
    gaps.delivered = set(delivered)
    gaps.open()
    return gaps


def test_of_two_losses_that_were_made_at_once_each_waits_for_its_own_receipt(tmp_path: Path) -> None:
    gaps, first = opened(tmp_path / "gaps.log", set()), gap(1, 0, 100)
    for each in (first, gap(1, 100, 200), gap(3, 200, 300), gap(1, 300, 400)):
        gaps.declare(each)
    gaps.note_delivered(first)
    assert [each.gap_id[1] for each in gaps.undelivered()] == [2, 3, 4]
    assert (gaps.next_number(RUN), gaps.next_number(RUN + 1)) == (5, 1)
    again = opened(tmp_path / "gaps.log", gaps.delivered)
    assert [each.gap_id[1] for each in again.log.gaps] == [1, 2, 3, 4]
    assert list(again.synced) == [(0, 400)]


def test_the_oldest_delivered_gaps_are_forgotten_and_no_undelivered_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_gaps, "KEPT_GAPS", 20)
    count, path = 20 + 1001, tmp_path / "gaps.log"
    delivered = {(RUN, number) for number in range(count) if number not in (3, count - 1)}
    opened(path, set()).log.compact([gap(number, number * 10, number * 10 + 5) for number in range(count)])
    again = opened(path, delivered)
    assert [one.gap_id[1] for one in again.log.gaps] == [3, *range(1001, count)]
    assert [one.gap_id[1] for one in again.undelivered()] == [3, count - 1]
    assert min(again.delivered) == (RUN, 1001)
    assert opened(path, again.delivered).log.gaps == again.log.gaps
