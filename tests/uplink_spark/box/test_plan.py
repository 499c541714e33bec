"""Which range goes next and when it is cut: plain values, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from uplink_spark.box.caps import Allowed
from uplink_spark.box.plan import (
    MIB,
    MIN_TARGET,
    CutFacts,
    Flight,
    LinkRate,
    SendPiece,
    Wait,
    make_plan,
    target_bytes,
)

FACTS = CutFacts(0.0, 1000 * MIB, 4 * MIB, 10.0, Allowed(), lambda at: 1 << 62)


def test_without_backlog_what_is_missing_goes_in_order() -> None:
    plan = make_plan([(0, 10), (20, 100)], 100, order="live_first", backlog_share=0.3, oldest_age_s=5)
    assert (list(plan.backlog), plan.live) == ([(0, 10)], 20)


def test_with_real_backlog_new_data_goes_first_and_the_hole_gets_its_share() -> None:
    plan = make_plan([(0, 500 * MIB)], 500 * MIB, order="live_first", backlog_share=0.3, oldest_age_s=5)
    sent = {"live": 0, "backlog": 0}
    for _ in range(60):
        plan.note_durable(1000 * MIB, 0.0)
        cut = plan.next_cut(replace(FACTS, now=1.0))
        assert isinstance(cut, SendPiece)
        end = min(cut.start + 4 * MIB, cut.end)
        plan.sent(cut.lane, cut.start, end, 1.0, 1000 * MIB)
        sent[cut.lane] += end - cut.start
    assert sent["backlog"] / sum(sent.values()) == pytest.approx(0.3, abs=0.05)


def test_oldest_first_is_strictly_in_order() -> None:
    plan = make_plan([(0, 200 * MIB), (300 * MIB, 500 * MIB)], 500 * MIB, order="oldest_first", backlog_share=0.3,
                     oldest_age_s=9e9)  # fmt: skip
    at = 0
    for _ in range(100):
        plan.note_durable(1000 * MIB, 0.0)
        cut = plan.next_cut(replace(FACTS, now=1.0))
        assert isinstance(cut, SendPiece)
        assert cut.start >= at
        at = min(cut.start + 4 * MIB, cut.end)
        plan.sent(cut.lane, cut.start, at, 1.0, 1000 * MIB)


def test_live_is_cut_when_full_when_it_has_waited_at_a_border_or_at_once_on_demand() -> None:
    def decide(durable: int, now: float, border: int = 1 << 62, ship_now: int = 0) -> SendPiece | Wait:
        plan = make_plan([], 0, order="live_first", backlog_share=0.3, oldest_age_s=None)
        plan.note_durable(durable, 0.0)
        plan.ship_now = ship_now
        return plan.next_cut(replace(FACTS, now=now, durable=durable, boundary=lambda at: border))

    assert decide(1000, 3.0) == Wait(7.0)
    assert decide(1000, 10.0) == SendPiece("live", 0, 1000, 4 * MIB)
    assert decide(5 * MIB, 0.0) == SendPiece("live", 0, 5 * MIB, 4 * MIB)
    assert decide(1000, 0.0, border=1000) == SendPiece("live", 0, 1000, 4 * MIB)
    assert decide(1000, 0.0, ship_now=500) == SendPiece("live", 0, 1000, 4 * MIB)
    assert isinstance(decide(0, 99.0), Wait)


def test_what_is_not_allowed_waits_and_a_refused_range_comes_back() -> None:
    plan = make_plan([(0, 100)], 1000, order="oldest_first", backlog_share=1, oldest_age_s=None)
    plan.note_durable(2000, 0.0)
    only_live = replace(FACTS, now=99.0, durable=2000, allowed=Allowed(backlog=False))
    assert plan.next_cut(only_live) == SendPiece("live", 1000, 2000, 4 * MIB)
    none = replace(FACTS, now=99.0, durable=2000, allowed=Allowed(live=False, backlog=False))
    assert isinstance(plan.next_cut(none), Wait)
    plan.sent("backlog", 0, 100, 1.0, 2000)
    plan.again(20, 60)
    assert list(plan.backlog) == [(20, 60)]


@pytest.mark.parametrize(("rate", "target"), [(None, 256 << 10), (1000, 64 << 10), (26_000, 208_000), (1e9, 4 * MIB)])
def test_a_piece_is_what_goes_through_in_eight_seconds(rate: float | None, target: int) -> None:
    assert target_bytes(rate, 4 * MIB) == target


def test_a_slow_link_has_two_pieces_in_flight_and_a_window_of_0_none() -> None:
    slow = Flight(32 << 20, 64)
    for _ in range(2):
        assert slow.room(MIN_TARGET, 100_000)
        slow.add(MIN_TARGET)
    assert not slow.room(MIN_TARGET, 100_000)
    assert slow.room(MIN_TARGET, 200_000)
    assert slow.room(2000, 100_000)  # a gap or an express piece takes no place of theirs
    flight = Flight(100, 3)
    assert flight.room(1000, None)  # one piece always may go
    flight.add(60)
    assert not flight.room(50, None)
    assert flight.room(40, None)
    flight.window = 0
    flight.remove(60)
    assert not flight.room(1, None)


def test_the_rate_of_a_link_is_measured_while_something_is_on_its_way() -> None:
    rate = LinkRate()
    for begin in (0.0, 500.0):  # the pause between the two does not count
        rate.sent(begin, idle=True)
        rate.receipted(100_000, 30_000, begin + 1.0)
        assert rate.raw == pytest.approx(100_000)
        assert rate.wire == pytest.approx(30_000)


def test_pieces_that_are_receipted_together_do_not_make_a_link_look_fast() -> None:
    rate = LinkRate()
    rate.sent(0.0, idle=True)
    rate.receipted(200_000, 80_000, 10.0)
    for _ in range(5):  # express pieces in the same frame
        rate.receipted(500, 300, 10.0)
    assert rate.raw == pytest.approx(20_000, rel=0.05)


def test_a_few_small_pieces_say_nothing_about_the_link() -> None:
    rate = LinkRate()
    rate.sent(0.0, idle=True)
    rate.receipted(300, 200, 1.2)
    assert rate.raw is None


def test_a_link_is_fast_only_once_it_was_seen_to_be() -> None:
    rate = LinkRate()
    assert not rate.fast
    for mbit_s, fast in ((4, False), (40, False), (100, True)):
        rate.sent(0.0, idle=True)
        rate.receipted(mbit_s * 125_000, mbit_s * 60_000, 1.0)
        assert rate.fast == fast


def test_too_many_holes_are_mended_smallest_first_before_anything_new() -> None:
    holes = [(n * 1000, n * 1000 + 10 + n) for n in range(1, 41)]
    plan = make_plan([(0, 900), *holes], 1 << 40, order="live_first", backlog_share=0.3, oldest_age_s=9e9)
    plan.note_durable(1 << 41, 0.0)
    lengths = []
    while len(plan.backlog) > 8:
        cut = plan.next_cut(replace(FACTS, now=99.0, durable=1 << 41))
        assert isinstance(cut, SendPiece)
        assert cut.lane == "backlog"
        plan.sent("backlog", cut.start, cut.end, 99.0, 1 << 41)
        lengths.append(cut.end - cut.start)
    assert lengths == sorted(lengths)


def test_a_broken_link_does_not_make_a_hole_each_time() -> None:
    holes = [(0, 500 * MIB), (600 * MIB, 610 * MIB)]  # the backlog, and live data that did not get through
    plan = make_plan(holes, 610 * MIB, order="live_first", backlog_share=0.3, oldest_age_s=None)
    assert (list(plan.backlog), plan.live) == ([(0, 500 * MIB)], 600 * MIB)
