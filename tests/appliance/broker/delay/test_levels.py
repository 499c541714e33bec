"""Delayed delivery by level over a real store."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from appliance.broker.delay import levels as delay
from appliance.broker.delay import redelivery
from appliance.broker.delay.levels import DelayLevels, parse_levels
from appliance.broker.intake import Intake, MessageDraft
from appliance.testing import STORE_HOST, MemoryStateFile, NoStats, SmallStore, small_store, wall_ms
from netstack.errors import Refused
from storage_driver import bad_sectors
from storage_driver.record import MessageQueue
from tests.bad_disk import BadDisk
from tests.waiting import Clock, until

LEVELS_MS = (40, 80, 60_000)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a test sets forward is noticed soon."""
    monkeypatch.setattr(delay, "CLOCK_STEP_S", 0.01)


def draft(body: bytes = b"x", **properties: str) -> MessageDraft:
    return MessageDraft("T", 2, body, dict(properties), 7, 0, 123, STORE_HOST, 1)


@asynccontextmanager
async def delays(
    folder: Path, file: MemoryStateFile, *, run: bool = True, clock: Callable[[], int] = wall_ms
) -> AsyncIterator[tuple[SmallStore, DelayLevels, Intake]]:
    async with small_store(folder, delays_ms=LEVELS_MS, now_ms=clock) as bench, trio.open_nursery() as nursery:
        levels = DelayLevels(bench.store, bench.arrivals, file, LEVELS_MS, stats=NoStats(), now_ms=clock)
        if run:
            nursery.start_soon(levels.run)
        yield bench, levels, Intake(bench.store, [levels.divert])
        nursery.cancel_scope.cancel()


def test_levels_are_read_with_their_units() -> None:
    assert parse_levels("1s 5m 2h 1d") == (1_000, 300_000, 7_200_000, 86_400_000)
    with pytest.raises(ValueError, match="'5x'"):
        parse_levels("1s 5x")


async def test_a_delayed_message_comes_after_its_delay_with_all_it_had(tmp_path: Path) -> None:
    async with delays(tmp_path, MemoryStateFile()) as (bench, _, intake):
        for number in range(20):
            intake.put(draft(b"%d" % number, DELAY="1", TAGS="t"))
        delivered = await bench.wait_for("T", 20, 2)
        resting = await bench.all("SCHEDULE_TOPIC_XXXX", 0)
    assert [message.body for message in delivered] == [b"%d" % number for number in range(20)]
    for late, early in zip(delivered, resting, strict=True):
        assert late.stored_ms >= early.stored_ms + 40
    first = delivered[0]
    assert (first.flag, first.born_ms, first.reconsume_times) == (7, 123, 1)
    assert first.property_map == {"DELAY": "1", "TAGS": "t", "REAL_TOPIC": "T", "REAL_QID": "2"}


async def test_a_level_above_the_last_is_the_last_and_none_is_no_delay(tmp_path: Path) -> None:
    async with delays(tmp_path, MemoryStateFile(), run=False) as (bench, _, intake):
        intake.put(draft(DELAY="99"))
        intake.put(draft(DELAY="0"))
        intake.put(draft(DELAY="-3"))
        assert len(await bench.wait_for("SCHEDULE_TOPIC_XXXX", 1, 2)) == 1
        assert len(await bench.wait_for("T", 2, 2)) == 2
        with pytest.raises(Refused, match="'soon'"):
            intake.put(draft(DELAY="soon"))


async def test_levels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    clock = Clock()
    async with delays(tmp_path, MemoryStateFile(), clock=clock) as (bench, levels, intake):
        for body, level in ((b"late", "2"), (b"early", "1"), (b"never", "3")):
            intake.put(draft(body, DELAY=level))
        clock.ms += LEVELS_MS[0]
        assert [message.body for message in await bench.wait_for("T", 1, 2)] == [b"early"]
        clock.ms += LEVELS_MS[1]
        assert [message.body for message in await bench.wait_for("T", 2, 2)] == [b"early", b"late"]
        await until(lambda: [(item.delivered, item.end) for item in levels.progress()] == [(1, 1), (1, 1), (0, 1)])


async def test_after_a_restart_what_was_delivered_is_not_repeated_and_what_waits_still_comes(tmp_path: Path) -> None:
    file, clock = MemoryStateFile(), Clock()
    async with delays(tmp_path, file, clock=clock) as (bench, levels, intake):
        intake.put(draft(b"one", DELAY="1"))
        clock.ms += LEVELS_MS[0]
        await until(lambda: levels.progress()[0].delivered == 1)
        await levels.flush()
        await bench.store.wait_committed(intake.put(draft(b"two", DELAY="2")).end)
    assert file.content == {"offsetTable": {"1": 1, "2": 0, "3": 0}}
    async with delays(tmp_path, file, clock=clock) as (bench, _, _):
        clock.ms += LEVELS_MS[1]
        assert [message.body for message in await bench.wait_for("T", 2, 2)] == [b"one", b"two"]


async def test_lost_offsets_repeat_messages_and_lose_none(tmp_path: Path) -> None:
    async with delays(tmp_path, MemoryStateFile()) as (bench, _, intake):
        intake.put(draft(b"one", DELAY="1"))
        await bench.wait_for("T", 1, 2)
    async with delays(tmp_path, MemoryStateFile()) as (bench, _, _):
        assert [message.body for message in await bench.wait_for("T", 2, 2)] == [b"one", b"one"]


async def test_a_message_that_belongs_nowhere_or_to_the_half_topic_is_passed_over(tmp_path: Path) -> None:
    async with delays(tmp_path, MemoryStateFile()) as (bench, _, intake):
        lost = draft(b"lost", DELAY="1")
        lost.topic, lost.queue_id = "SCHEDULE_TOPIC_XXXX", 0
        with_half = draft(b"half", DELAY="1", REAL_TOPIC="RMQ_SYS_TRANS_HALF_TOPIC", REAL_QID="0")
        with_half.topic, with_half.queue_id = "SCHEDULE_TOPIC_XXXX", 0
        for odd in (lost, with_half):
            bench.store.put(odd.to_message())
        intake.put(draft(b"good", DELAY="1"))
        assert [message.body for message in await bench.wait_for("T", 1, 2)] == [b"good"]


async def test_a_clock_set_back_keeps_no_message_for_ever_and_sends_none_early(tmp_path: Path) -> None:
    shift_ms = 3_600_000
    async with small_store(tmp_path, delays_ms=LEVELS_MS, now_ms=lambda: wall_ms() + shift_ms) as bench:
        levels = DelayLevels(bench.store, bench.arrivals, MemoryStateFile(), LEVELS_MS, stats=NoStats(), now_ms=wall_ms)
        Intake(bench.store, [levels.divert]).put(draft(DELAY="1"))
        put_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(levels.run)
            assert len(await bench.wait_for("T", 1, 2)) == 1
            assert trio.current_time() - put_at >= LEVELS_MS[0] / 1000
            nursery.cancel_scope.cancel()


async def test_a_level_made_shorter_sends_nothing_early_that_rests_already(tmp_path: Path) -> None:
    shorter = (1, *LEVELS_MS[1:])
    async with small_store(tmp_path, delays_ms=(120, *LEVELS_MS[1:])) as bench, trio.open_nursery() as nursery:
        levels = DelayLevels(bench.store, bench.arrivals, MemoryStateFile(), shorter, stats=NoStats(), now_ms=wall_ms)
        placed = Intake(bench.store, [levels.divert]).put(draft(DELAY="1"))
        nursery.start_soon(levels.run)
        (message,) = await bench.wait_for("T", 1, 2)
        assert message.stored_ms >= placed.stored_ms + 120
        nursery.cancel_scope.cancel()


async def test_a_record_that_the_disk_does_not_give_back_ends_nothing_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    monkeypatch.setattr(redelivery, "RETRY_S", 0.01)
    disk, file = BadDisk(), MemoryStateFile()
    async with small_store(tmp_path, delays_ms=LEVELS_MS, disk=disk) as small, trio.open_nursery() as nursery:
        levels = DelayLevels(small.store, small.arrivals, file, LEVELS_MS, stats=NoStats(), now_ms=wall_ms)
        intake = Intake(small.store, [levels.divert])
        bodies = bytes(8192), b"1", b"2"  # what follows the first is in another block
        placed = [intake.put(draft(body, DELAY="1")) for body in bodies]
        await small.store.wait_committed(placed[-1].end)
        disk.bad[f"commitlog/{0:020d}"] = [(placed[0].log_offset, placed[0].log_offset + 1)]
        nursery.start_soon(levels.run)
        while small.store.max_offset(MessageQueue("T", 2)) < 2:
            await small.store.prove()
            await trio.sleep(0.02)
        assert [message.body for message in await small.all("T", 2)] == [b"1", b"2"]
        nursery.cancel_scope.cancel()


async def test_a_clock_set_forward_hurries_no_message_that_rests(tmp_path: Path) -> None:
    clock = Clock()
    right_ms, clock.ms = clock.ms, 60_000  # 1970: no battery, no network yet
    async with delays(tmp_path, MemoryStateFile(), clock=clock) as (bench, levels, intake):
        await bench.store.wait_committed(intake.put(draft(b"minute", DELAY="3")).end)
        clock.ms = right_ms
        await bench.store.wait_committed(intake.put(draft(b"short", DELAY="1")).end)
        clock.ms += LEVELS_MS[0]
        assert [message.body for message in await bench.wait_for("T", 1, 2)] == [b"short"]
        assert levels.progress()[2].delivered == 0
        clock.ms += LEVELS_MS[2] - LEVELS_MS[0]
        assert [message.body for message in await bench.wait_for("T", 2, 2)] == [b"short", b"minute"]
