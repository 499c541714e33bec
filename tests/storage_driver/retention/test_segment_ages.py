"""Ages of a real store's segments: by the record behind each, by their topics, none after a step of the clock."""

from pathlib import Path

import trio
from trio.testing import MockClock

from storage_driver.config import StoreConfig
from storage_driver.record import Message, encode_host
from storage_driver.retention.rules import RetentionClass, RetentionRules
from storage_driver.retention.segment_ages import REST_AFTER_STEP_S
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
NOW, HOUR = 1_700_000_000_000, 3_600_000
RULES = RetentionRules(keep_ms=72 * HOUR, classes=(RetentionClass(("vitals",), HOUR),))


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root / "store", HOST, segment_bytes=128 * 1024, max_message_bytes=32 * 1024, retention=RULES, scrub_mib_per_h=0
    )


async def put(store: MessageStore, topic: str, count: int) -> None:
    for _ in range(count):
        placed = store.put(Message(topic, 0, bytes(10_000), b"", 0, 0, 1, HOST))
    await store.wait_committed(placed.end)


def pass_h(store: MessageStore, clock: list[int], hours: int) -> None:
    """Let the box run for so long."""
    clock[0] += hours * HOUR
    store._maintenance.clock.tick(clock[0], hours * HOUR, store.end, trusted=True)


async def test_a_segment_is_as_old_as_the_record_behind_it_and_kept_by_its_topics(tmp_path: Path) -> None:
    clock = [NOW]
    async with open_store(config(tmp_path), now_ms=lambda: clock[0], retain=lambda base, end: False) as store:
        ages = store._maintenance._ages
        await put(store, "vitals", 20)
        pass_h(store, clock, 1)
        await put(store, "orders", 20)
        first, second, third = await ages.deletable(clock[0])
        bases = [segment.base for segment in store.segments()]
        assert [first.base, second.base, third.base] == bases[:-1], "the tail is not offered"
        assert (first.age_ms, second.age_ms, third.age_ms) == (HOUR, 0, 0)
        assert (first.keep_ms, second.keep_ms) == (HOUR, None), "of young segments no topic is looked up"
        pass_h(store, clock, 2)
        assert [each.keep_ms for each in await ages.deletable(clock[0])] == [HOUR, 72 * HOUR, 72 * HOUR]


async def test_no_age_counts_for_ten_minutes_after_a_step_of_more_than_an_hour(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: NOW) as store:
        ages = store._maintenance._ages
        ages.stepped(HOUR)
        assert not ages.rest
        ages.stepped(HOUR + 1)
        assert ages.rest
        until = trio.current_time() + REST_AFTER_STEP_S
        mock_clock.jump(REST_AFTER_STEP_S)
        assert trio.current_time() >= until
        assert not ages.rest
