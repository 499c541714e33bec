"""Counters and their views."""

from datetime import date

import pytest

from appliance.broker.admin import stats as stats_module
from appliance.broker.admin.stats import BrokerCounters, StatsView


class Clock:
    """The two clocks of the statistics."""

    def __init__(self) -> None:
        self.ms, self.day = 1_000_000, date(2026, 1, 1)

    def stats(self) -> BrokerCounters:
        return BrokerCounters("Edge", now_ms=lambda: self.ms, today=lambda: self.day)


async def ticked(clock: Clock, stats: BrokerCounters, ticks: int, first: int = 0) -> None:
    for tick in range(first, first + ticks):
        await stats.sample(tick)
        clock.ms += 10_000


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "T"),
        ("QUEUE_PUT_NUMS", "T@1"),
        ("GROUP_GET_NUMS", "T@g"),
        ("QUEUE_GET_NUMS", "T@1@g"),
        ("SNDBCK_PUT_NUMS", "T@g"),
        ("BROKER_PUT_NUMS", "Edge"),
        ("BROKER_GET_NUMS", "Edge"),
    ],
)
async def test_the_minute_view_is_last_minus_first_sample(name: str, key: str) -> None:
    clock = Clock()
    stats = clock.stats()
    for tick in range(20):
        for _ in range(5):
            stats.put("T", 1, 2, 100)
            stats.got("g", "T", 1, 2, 100)
            stats.sent_back("g", "T")
        await ticked(clock, stats, 1, tick)
    views = stats.views(name, key)
    assert views is not None
    each = 1 if name.startswith("SNDBCK") else 2
    assert views[0] == StatsView(6 * 5 * each, 5 * each / 10, each)


async def test_sizes_are_counted_beside_numbers() -> None:
    clock = Clock()
    stats = clock.stats()
    for tick in range(3):
        stats.put("T", 0, 2, 300)
        await ticked(clock, stats, 1, tick)
    views = stats.views("TOPIC_PUT_SIZE", "T")
    assert views is not None
    assert views[0] == StatsView(900, 30.0, 300.0)


async def test_what_was_never_counted_has_no_view_and_no_sample_is_nothing() -> None:
    clock = Clock()
    stats = clock.stats()
    stats.put("T", 0, 1, 1)
    assert stats.views("TOPIC_PUT_NUMS", "T") == (StatsView(), StatsView(), StatsView())
    for name, key in (
        ("TOPIC_PUT_NUMS", "U"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("QUEUE_PUT_NUMS", "T@" + "9" * 5000),
        ("QUEUE_GET_NUMS", "T@" + "9" * 5000 + "@g"),
        ("COMMERCIAL_X", "T"),
        ("BROKER_PUT_NUMS", "x"),
    ):
        assert stats.views(name, key) is None


async def test_an_idle_counter_falls_to_zero_and_rises_again() -> None:
    clock = Clock()
    stats = clock.stats()
    stats.put("T", 0, 1, 1)
    await ticked(clock, stats, 1)
    stats.put("T", 0, 1, 1)
    await ticked(clock, stats, 12, 1)
    assert stats.put_tps("T") == 0.0
    for tick in range(13, 16):
        stats.put("T", 0, 1, 1)
        await ticked(clock, stats, 1, tick)
    assert stats.put_tps("T") == pytest.approx(0.1)


async def test_messages_of_one_moment_count_in_every_view_also_after_a_rest() -> None:
    clock = Clock()
    stats = clock.stats()
    for first in (0, 10_080):  # the second time a day and three hours later
        stats.put("T", 0, 12, 1)
        await ticked(clock, stats, 1, first)
        minute, hour, day = stats.views("TOPIC_PUT_NUMS", "T") or (StatsView(), StatsView(), StatsView())
        assert minute == StatsView(12, 1.2, 12.0)
        await ticked(clock, stats, 300, first + 1)
        minute, hour, day = stats.views("TOPIC_PUT_NUMS", "T") or (StatsView(), StatsView(), StatsView())
        assert (minute.total, hour.total, day.total) == (0, 12, 12)
        await ticked(clock, stats, 9_779, first + 301)
        assert stats.views("TOPIC_PUT_NUMS", "T") == (StatsView(), StatsView(), StatsView())


async def test_hour_and_day_have_their_own_samples() -> None:
    clock = Clock()
    stats = clock.stats()
    for tick in range(1_000):
        stats.put("T", 0, 1, 1)
        await ticked(clock, stats, 1, tick)
    minute, hour, day = stats.views("TOPIC_PUT_NUMS", "T") or (StatsView(), StatsView(), StatsView())
    assert (minute.total, hour.total, day.total) == (6, 360, 721)


async def test_rates_cover_ten_seconds_a_minute_and_ten() -> None:
    clock = Clock()
    stats = clock.stats()
    for tick in range(70):
        stats.put("T", 0, 10 if tick < 65 else 40, 1)
        stats.got("g", "T", 0, 3, 1)
        stats.missed()
        await ticked(clock, stats, 1, tick)
    puts, found, missed, transferred = stats.rates()
    assert puts == [0.0, pytest.approx(5 * 40 / 60), pytest.approx((54 * 10 + 5 * 40) / 600)]
    assert found[1:] == missed[1:] == [pytest.approx(5 / 60), pytest.approx(59 / 600)]
    assert transferred[1] == pytest.approx(15 / 60)


async def test_totals_of_the_day_turn_at_midnight() -> None:
    clock = Clock()
    stats = clock.stats()
    stats.put("T", 0, 7, 1)
    clock.day = date(2026, 1, 2)
    await ticked(clock, stats, 1)
    stats.put("T", 0, 1, 1)
    clock.day = date(2026, 1, 3)
    await ticked(clock, stats, 1, 1)
    puts, gets = stats.day_totals()
    assert (puts.yesterday_morning, puts.today_morning, puts.now) == (7, 8, 8)
    assert gets.now == 0


async def test_a_deleted_topic_leaves_no_counter() -> None:
    clock = Clock()
    stats = clock.stats()
    stats.put("T", 0, 1, 1)
    stats.got("g", "T", 0, 1, 1)
    await ticked(clock, stats, 1)
    stats.forget_topic("T")
    assert stats.views("TOPIC_PUT_NUMS", "T") is stats.views("GROUP_GET_NUMS", "T@g") is None


@pytest.mark.pure
async def test_counters_of_groups_have_an_end_and_totals_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "MOST_ITEMS", 3)
    stats = Clock().stats()
    for number in range(5):
        for _ in range(2):
            stats.got(f"g{number}", "T", 0, 1, 10)
            stats.sent_back(f"g{number}", "T")
    assert len(stats.counts().got) == 3
    assert [stats.views(name, "T@g3") for name in ("GROUP_GET_NUMS", "SNDBCK_PUT_NUMS")] == [None, None]
    assert stats.views("SNDBCK_PUT_NUMS", "T@g2") is not None
    assert (stats.gets.count, stats.gets.size) == (10, 100)
