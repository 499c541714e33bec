"""Caps: the bucket, weekly windows over borders and midnight, the month's budget, and clocks that are wrong."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.box.caps import Allowed, Bucket, Caps, MonthUse, allowed_now, read_window
from uplink_spark.config import CapWindow, Metered, UplinkConfig
from uplink_spark.errors import ConfigError


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 65536), st.floats(0, 3)), min_size=20, max_size=200))
def test_a_bucket_never_lets_more_pass_than_its_rate_and_one_burst(chunks: list[tuple[int, float]]) -> None:
    bucket, now, sent = Bucket(50_000, 0.0), 0.0, 0
    for length, pause in chunks:
        now += bucket.take(length, now)
        sent += length
        assert sent <= 50_000 * now + bucket.burst + 1
        now += pause


def test_a_bucket_without_rate_never_waits() -> None:
    assert Bucket().take(1 << 40, 0.0) == 0


MONDAY = datetime(2026, 11, 16)


@pytest.mark.parametrize(
    ("day", "hour", "minute", "inside"),
    [(0, 7, 0, True), (0, 6, 59, False), (4, 18, 59, True), (4, 19, 0, False), (5, 12, 0, False)],
)
def test_a_window_holds_from_its_first_minute_to_before_its_last(
    day: int, hour: int, minute: int, inside: bool
) -> None:
    window = read_window(CapWindow("mon-fri", "07:00-19:00", 1000))
    assert window.holds(MONDAY.replace(day=16 + day, hour=hour, minute=minute)) == inside


def test_a_window_past_midnight_belongs_to_the_day_it_began() -> None:
    window = read_window(CapWindow("fri", "22:00-06:00", 10))
    assert window.holds(MONDAY.replace(day=20, hour=23))
    assert window.holds(MONDAY.replace(day=21, hour=5, minute=59))
    assert not window.holds(MONDAY.replace(day=20, hour=5))
    assert not window.holds(MONDAY.replace(day=21, hour=6))


@pytest.mark.parametrize("days", ["monday", "mon-", "x-fri", ""])
def test_wrong_days_are_named(days: str) -> None:
    with pytest.raises(ConfigError, match="write mon-fri"):
        read_window(CapWindow(days, "07:00-19:00", 1))


@pytest.mark.parametrize("hours", ["7-19", "07:00", "25:00-26:00", "aa:bb-cc:dd"])
def test_wrong_hours_are_named(hours: str) -> None:
    with pytest.raises(ConfigError, match="hours"):
        read_window(CapWindow("mon", hours, 1))


def test_the_lowest_cap_in_force_counts_and_the_tightest_without_a_clock() -> None:
    windows = (CapWindow("mon-fri", "07:00-19:00", 1000), CapWindow("sat,sun", "00:00-24:00", 64))
    caps = Caps(UplinkConfig("x", "b", kbit_s=2000, windows=windows))
    assert caps.rate(MONDAY.replace(hour=12), clock_ok=True) == 125_000
    assert caps.rate(MONDAY.replace(hour=20), clock_ok=True) == 250_000
    assert caps.rate(MONDAY.replace(hour=12), clock_ok=False) == 8_000
    caps.gateway_rate = 5_000
    assert caps.rate(MONDAY.replace(hour=12), clock_ok=True) == 5_000
    assert Caps(UplinkConfig("x", "b")).rate(MONDAY, clock_ok=False) == 0


@pytest.mark.parametrize(
    ("used", "metered", "allowed"),
    [
        (0, True, Allowed(backlog=False)),
        (89_999_999, True, Allowed(backlog=False)),
        (90_000_000, True, Allowed(live=False, backlog=False)),
        (100_000_000, True, Allowed(False, False, False)),
        (500_000_000, False, Allowed()),
    ],
)
def test_the_months_budget_leaves_gaps_and_express_then_gaps_alone(used: int, metered: bool, allowed: Allowed) -> None:
    settings = Metered(("wwan0",), 100)
    assert allowed_now(settings, MonthUse("2026-11", used), on_metered=metered) == allowed


def test_a_new_month_begins_at_nothing_even_when_the_clock_goes_back() -> None:
    use = MonthUse("2026-11", 500).add("2026-12", 7)
    assert use == MonthUse("2026-12", 7)
    assert use.add("1970-01", 3) == MonthUse("1970-01", 3)
