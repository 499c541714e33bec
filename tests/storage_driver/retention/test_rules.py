from pathlib import Path

from storage_driver.config import StoreConfig
from storage_driver.record import Message, encode_host
from storage_driver.retention.rules import (
    MIB,
    DeletableSegment,
    DiskState,
    Forecast,
    RetentionClass,
    RetentionRules,
    choose,
    full_reason,
)
from storage_driver.store import open_store

RULES = RetentionRules()
ROOMY = DiskState(40, 1 << 40, 1 << 41)
HOUR = 3_600_000


def candidates(*ages_h: int, size: int = 256 * MIB) -> list[DeletableSegment]:
    return [DeletableSegment(i * size, (i + 1) * size, size, age * HOUR) for i, age in enumerate(ages_h)]


def bases(found: list[int], size: int = 256 * MIB) -> list[int]:
    return [base // size for base in found]


def ask(ages: list[DeletableSegment], disk: DiskState = ROOMY, **changes: object) -> list[int]:
    settings: dict[str, object] = {"log_bytes": 0, "age_counts": True, "may_go": lambda base, end: True, **changes}
    rules = settings.pop("rules", RULES)
    return bases(choose(ages, disk, rules, **settings))  # type: ignore[arg-type]


def test_only_what_is_older_than_the_limit_goes_and_nothing_behind_what_stays() -> None:
    assert ask(candidates(100, 73, 71, 80)) == [0, 1]
    assert ask(candidates(71)) == []


def test_age_rests_while_the_clock_is_not_trusted_but_space_rules_work() -> None:
    assert ask(candidates(100, 99), age_counts=False) == []
    assert ask(candidates(1, 1), DiskState(86, 1 << 38, 1 << 34), age_counts=False) == [0]


def test_the_veto_stops_age_quota_and_pressure() -> None:
    def may_go(base: int, end: int) -> bool:
        return base == 0

    assert ask(candidates(100, 100), may_go=may_go) == [0]
    assert ask(candidates(1, 1), DiskState(95, 1 << 30, 1 << 40), may_go=may_go) == [0]


def test_the_quota_takes_as_much_as_it_needs() -> None:
    rules = RetentionRules(quota_bytes=1000 * MIB)
    assert ask(candidates(1, 1, 1), rules=rules, log_bytes=1400 * MIB) == [0, 1]
    assert ask(candidates(1, 1, 1), rules=rules, log_bytes=900 * MIB) == []


def test_at_most_ten_go_at_once() -> None:
    assert len(ask(candidates(*[100] * 50))) == 10


def test_full_begins_above_90_and_ends_at_88_percent() -> None:
    segment = 256 * MIB

    def full(percent: int, was_full: bool, available: int = 1 << 40) -> bool:
        return full_reason(DiskState(percent, available, 1 << 41), RULES, segment, was_full=was_full) is not None

    assert [full(p, False) for p in (90, 91)] == [False, True]
    assert [full(p, True) for p in (89, 88)] == [True, False]
    assert full(10, False, available=319 * MIB)
    assert not full(10, False, available=320 * MIB)
    assert full(10, True, available=330 * MIB)
    assert full_reason(DiskState(80, 100 * MIB, 648 * MIB), RULES, 0, was_full=True) is None, "the next one is there"


def test_the_forecast_follows_the_last_hour() -> None:
    forecast, gib = Forecast(), 1 << 30
    disk = DiskState(50, 60 * gib, 100 * gib)
    assert forecast.full_in_h(disk, RULES) is None
    forecast.add(0, 70 * gib)
    forecast.add(3600, 60 * gib)
    hours = forecast.full_in_h(disk, RULES)
    assert hours is not None
    assert abs(hours - 5.0) < 0.01
    forecast.add(7300, 61 * gib)
    assert forecast.full_in_h(disk, RULES) is None


def test_a_segment_is_kept_as_long_as_the_most_durable_topic_in_it() -> None:
    rules = RetentionRules(classes=(RetentionClass(("alarm*", "audit"), 720 * HOUR), RetentionClass(("vitals",), HOUR)))
    assert [rules.keep_of(topic) // HOUR for topic in ("alarm-7", "audit", "vitals", "orders")] == [720, 720, 1, 72]
    old = [DeletableSegment(0, 1, 1, 100 * HOUR, 720 * HOUR), DeletableSegment(1, 2, 1, 90 * HOUR, 72 * HOUR)]
    assert bases(choose(old, ROOMY, rules, log_bytes=0, age_counts=True, may_go=lambda a, b: True), size=1) == []
    short = [DeletableSegment(0, 1, 1, 2 * HOUR, HOUR), DeletableSegment(1, 2, 1, 2 * HOUR, 72 * HOUR)]
    assert bases(choose(short, ROOMY, rules, log_bytes=0, age_counts=True, may_go=lambda a, b: True), size=1) == [0]


async def test_only_the_segment_that_was_chosen_goes(tmp_path: Path) -> None:
    host = encode_host("127.0.0.1", 1)
    settings = StoreConfig(tmp_path / "store", host, segment_bytes=128 * 1024, max_message_bytes=32 * 1024)
    async with open_store(settings, now_ms=lambda: 5) as store:
        for _ in range(40):
            placed = store.put(Message("T", 0, bytes(10_000), b"", 0, 0, 1, host))
        await store.wait_committed(placed.end)
        first, second = [segment.base for segment in store.segments()][:2]
        assert await store.drop_first(first)
        assert not await store.drop_first(first), "somebody else was faster"
        assert store.first == second
