"""Divergence: one test row for every line of the alignment rule and of the event table."""

from __future__ import annotations

import pytest

from uplink_spark.wire.identity import Run, find_fork, owner_of, run_of, spans

A, B, C, D = 0xA, 0xB, 0xC, 0xD


@pytest.mark.parametrize(
    ("event", "known", "told", "covered", "durable", "fork"),
    [
        ("first contact", [], [(A, 0)], 0, 500, None),
        ("same run goes on", [(A, 0)], [(A, 0)], 100, 200, None),
        ("re-flash keeping data: a new run behind what is held", [(A, 0)], [(A, 0), (B, 150)], 100, 200, None),
        ("uplink switched on late, nothing held", [], [(A, 0), (B, 70)], 0, 200, None),
        ("the centre lost its run list but the box begins behind", [], [(A, 300)], 200, 400, None),
        ("no shared run and the box begins below", [(A, 0)], [(B, 50)], 200, 400, 50),
        ("image of 80 restored, centre has 200", [(A, 0), (B, 100)], [(A, 0), (C, 80)], 200, 90, 80),
        ("image restored, the other history began earlier", [(A, 0), (B, 60)], [(A, 0), (C, 80)], 200, 90, 60),
        ("restored copy that has not begun a run yet", [(A, 0), (B, 100)], [(A, 0)], 200, 80, 80),
        ("restored, only one run known", [(A, 0)], [(A, 0), (C, 80)], 200, 300, 80),
        ("durable bytes lost: recovery below what is held", [(A, 0)], [(A, 0), (B, 90)], 100, 90, 90),
        ("resumed snapshot, same run, less log", [(A, 0)], [(A, 0)], 200, 120, 120),
        ("old runs fell off the box's list", [(A, 0), (B, 50), (C, 90)], [(B, 50), (C, 90), (D, 95)], 95, 99, None),
        ("old runs fell off the centre's list", [(B, 50)], [(A, 0), (B, 50), (C, 90)], 90, 99, None),
        ("same run id with another start", [(A, 10)], [(A, 20)], 15, 99, 10),
        ("new run exactly at what is held", [(A, 0)], [(A, 0), (B, 100)], 100, 100, None),
    ],
)
def test_the_fork_is_where_the_histories_part(
    event: str, known: list[Run], told: list[Run], covered: int, durable: int, fork: int | None
) -> None:
    assert find_fork(known, told, covered, durable) == fork, event


def test_an_offset_belongs_to_the_epoch_whose_origin_is_the_last_below_it() -> None:
    lineage = [(1, 0), (2, 80), (3, 80), (4, 200)]
    assert owner_of(lineage, 79) == (1, 0, 80)
    assert owner_of(lineage, 80) == (3, 80, 200)
    assert owner_of(lineage, 10_000) == (4, 200, 1 << 63)
    assert spans(lineage)[1] == (2, 80, 80)


def test_an_offset_belongs_to_the_last_run_that_began_at_or_below_it() -> None:
    runs = [(1, 100), (2, 300), (3, 300)]
    assert run_of(runs, 299) == (1, 100, 300)
    assert run_of(runs, 300) == (3, 300, 1 << 63)
    assert run_of(runs, 50) == (1, 50, 300)  # older than the oldest known run
