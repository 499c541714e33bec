"""Rounds of upkeep over a real store: what is deleted when, what a failing step leaves undone, what refuses senders."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.files.disk import RealDisk, Usage
from storage_driver.queues.consume_queue import ENTRY_BYTES
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.retention.rules import RetentionClass, RetentionRules
from storage_driver.retention.segment_ages import REST_AFTER_STEP_S
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
NOW = 1_700_000_000_000
HOUR = 3_600_000


@pytest.mark.slow
async def test_segments_go_by_the_topics_in_them(tmp_path: Path) -> None:
    clock = [1_700_000_000_000]
    rules = RetentionRules(classes=(RetentionClass(("vital*",), HOUR), RetentionClass(("alarms",), 100 * HOUR)))
    host = encode_host("127.0.0.1", 1)
    settings = StoreConfig(
        tmp_path / "store", host, segment_bytes=128 * 1024, max_message_bytes=32 * 1024, retention=rules
    )
    async with open_store(settings, now_ms=lambda: clock[0]) as store:
        for topic, count in (("vitals", 40), ("orders", 10), ("vitals", 30), ("alarms", 1), ("vitals", 40)):
            for _ in range(count):
                placed = store.put(Message(topic, 0, bytes(10_000), b"", 0, 0, 1, host))
        await store.wait_committed(placed.end)
        bases = [segment.base for segment in store.segments()]
        upkeep, left = store._maintenance, []
        for hours in (2, 80, 120):
            clock[0] += hours * HOUR
            upkeep._ticked_at = trio.current_time() - hours * 3600
            await upkeep.round()
            left.append(bases.index(store.first))
        orders_in, alarms_in = 40 * 10_100 // (128 * 1024), 80 * 10_100 // (128 * 1024)
        assert left[0] == orders_in, "segments with vitals alone go after an hour"
        assert left[1] == alarms_in, "the alarm keeps its segment"
        assert left[2] == len(bases) - 1


async def test_a_full_disk_that_takes_no_table_is_freed_all_the_same(tmp_path: Path) -> None:
    """Retention must not wait for what needs the space that it frees."""
    host = encode_host("127.0.0.1", 1)
    settings = StoreConfig(tmp_path / "store", host, segment_bytes=128 * 1024, max_message_bytes=32 * 1024)
    settings = settings._replace(retention=RetentionRules(quota_bytes=1))

    async def full(value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_store(settings, now_ms=lambda: 5) as store:
        for _ in range(40):
            placed = store.put(Message("T", 0, bytes(10_000), b"", 0, 0, 1, host))
        await store.wait_committed(placed.end)
        store._maintenance.clock.changed = True
        store._maintenance._file.write = full  # type: ignore[method-assign]
        await store._maintenance.round()
        assert len(store.segments()) == 1
        assert "No space left" in (store.statistics().trouble or "")


class SmallDisk(RealDisk):
    """A disk that is full while there is more than one segment."""

    def usage(self, path: Path) -> Usage:
        used = 95 if len(list((path / "commitlog").glob("0*"))) > 1 else 50
        return Usage(used << 30, (100 - used) << 30)


async def test_a_full_disk_takes_messages_again_in_the_round_that_deletes(tmp_path: Path) -> None:
    settings = StoreConfig(tmp_path / "store", HOST, segment_bytes=128 * 1024, max_message_bytes=32 * 1024)
    async with open_store(settings, now_ms=lambda: NOW, disk=SmallDisk()) as store:
        for _ in range(40):
            placed = store.put(Message("T", 0, bytes(10_000), b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        await store.check_space()
        seen = [(len(store.segments()), bool(store.full))]
        await store._maintenance.round()
        seen.append((len(store.segments()), bool(store.full)))
        assert seen == [(4, True), (1, False)]


async def test_old_segments_go_by_running_time(tmp_path: Path) -> None:
    now, vetoed = [NOW], [True]
    config = StoreConfig(
        tmp_path / "store",
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=100,
        retention=RetentionRules(keep_ms=30_000),
    )
    queue = MessageQueue("T", 0)
    async with open_store(config, now_ms=lambda: now[0]) as store:
        for _ in range(60):
            placed = store.put(Message("T", 0, bytes(9000), b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        await store._maintenance.round()
        now[0] += 50_000
        store.retain = lambda base, end: not vetoed[0]
        await store._maintenance.round()
        assert store.min_offset(queue) == 0
        vetoed[0] = False
        await store._maintenance.round()
        assert (store.statistics().deleted_segments, len(store.segments())) == (4, 1)
        low = store.min_offset(queue)
        assert 0 < low < 60
        found = await store.read(queue, low, max_count=100, max_bytes=1 << 20)
        assert found.records == 60 - low
        assert (await store.read(queue, 0, max_count=1, max_bytes=1)).next_offset == low
    async with open_store(config, now_ms=lambda: now[0]) as store:
        assert (store.min_offset(queue), store.max_offset(queue)) == (low, 60)


async def test_nothing_is_deleted_before_its_owner_has_a_say(tmp_path: Path) -> None:
    rules = RetentionRules(keep_ms=0)
    config = StoreConfig(
        tmp_path / "store", HOST, segment_bytes=128 * 1024, max_message_bytes=32 * 1024, retention=rules
    )
    asked = trio.Event()

    def retain(base: int, end: int) -> bool:
        asked.set()
        return False

    async with open_store(config, now_ms=lambda: NOW, retain=retain) as store:
        for _ in range(60):
            placed = store.put(Message("T", 0, bytes(9000), b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
    asked = trio.Event()
    async with open_store(config, now_ms=lambda: NOW + 10, retain=retain) as store:
        await asked.wait()
        assert store.first == 0


class Box:
    """A store whose clocks and disk a test sets; every message is 10 000 bytes."""

    def __init__(self, root: Path, rules: RetentionRules) -> None:
        self.now_ms, self.trusted = NOW, True
        self.config = StoreConfig(
            root / "store",
            HOST,
            segment_bytes=128 * 1024,
            max_message_bytes=32 * 1024,
            queue_file_entries=100,
            retention=rules,
            scrub_mib_per_h=0,
            index_enabled=False,
        )
        self.usage: Usage | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MessageStore]:
        box = self

        class Disk(RealDisk):
            def usage(self, path: Path) -> Usage:
                return box.usage or super().usage(path)

        async with open_store(
            self.config, now_ms=lambda: self.now_ms, clock_trusted=lambda: self.trusted, disk=Disk()
        ) as store:
            await store._maintenance.round()
            yield store

    async def put(self, store: MessageStore, count: int) -> None:
        for _ in range(count):
            placed = store.put(Message("T", 0, bytes(10_000), b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)

    async def pass_h(self, store: MessageStore, hours: float) -> None:
        """Let the box run for so long, then do a round."""
        self.now_ms += int(hours * HOUR)
        store._maintenance._ticked_at -= hours * 3600
        await store._maintenance.round()


async def test_a_segment_before_a_lost_one_is_as_old_as_its_own_messages(tmp_path: Path) -> None:
    box = Box(tmp_path, RetentionRules(keep_ms=72 * HOUR))
    async with box.open() as store:
        await box.put(store, 1)
        await box.pass_h(store, 70)
        await box.put(store, 60)  # segments 0 to 4; all of 1 to 4 and most of 0 an hour old when the box stops
        await box.pass_h(store, 1)
        lost = store.segments()[2]
    lost.path.unlink()
    async with box.open() as store:
        assert [damage.start for damage in store.verdict.quarantined] == [lost.base]
        await box.pass_h(store, 2)
        assert store.first == 0, "messages of three hours went although 72 were asked for"
        await box.pass_h(store, 70)
        assert store.first == store.segments()[-1].base, "a lost segment must not keep the disk full either"


async def test_age_rests_while_the_clock_is_not_trusted_and_after_a_step_of_more_than_an_hour(tmp_path: Path) -> None:
    box = Box(tmp_path, RetentionRules(keep_ms=HOUR))
    async with box.open() as store:
        await box.put(store, 40)
        box.trusted = False
        await store._maintenance.round()
        await box.pass_h(store, 5)
        assert store.first == 0
        await box.put(store, 1)
        box.trusted = True
        box.now_ms += 3 * HOUR  # a step: the monotonic clock knows nothing of it
        await store._maintenance.round()
        await store._maintenance.round()
        assert store.first == 0
        assert store._maintenance._ages.rest_until == pytest.approx(trio.current_time() + REST_AFTER_STEP_S, abs=5)
        store._maintenance._ages.rest_until = 0.0
        await store._maintenance.round()
        assert store.first > 0


async def test_a_measurement_that_fails_is_noted_and_the_other_steps_are_done(tmp_path: Path) -> None:
    box = Box(tmp_path, RetentionRules(quota_bytes=1))
    async with box.open() as store:
        await box.put(store, 40)

        async def broken() -> None:
            raise OSError(errno.EIO, "Input/output error")

        store._maintenance.check_space = broken  # type: ignore[method-assign]
        await store._maintenance.round()
        assert "space: [Errno 5]" in (store.statistics().trouble or "")
        assert len(store.segments()) == 1, "retention waits for nobody"


async def test_a_queue_that_ends_in_a_hole_is_not_taken_for_damaged(tmp_path: Path) -> None:
    box = Box(tmp_path, RetentionRules())
    async with box.open() as store:
        await box.put(store, 3)
        await store.prove()
        path = store._log.segments[0].path
        raw = bytearray(path.read_bytes())
        raw[2 * len(raw) // 13] ^= 0xFF
        path.write_bytes(bytes(raw))
        keys = [MessageQueue("T", 0), MessageQueue("None", 0)]
        assert await store._flusher.wrong_ends(keys) == 0
        file = box.config.root / "consumequeue" / "T" / "0" / f"{0:020d}"
        content = file.read_bytes()
        file.write_bytes(content[: 2 * ENTRY_BYTES] + bytes(ENTRY_BYTES) + content[3 * ENTRY_BYTES :])
        store._flusher._files.forget(keys[0])
        assert await store._flusher.wrong_ends(keys) == 1


async def test_epochs_of_the_clock_outlive_a_restart_and_a_damaged_list_begins_anew(tmp_path: Path) -> None:
    box = Box(tmp_path, RetentionRules())
    for runs in (1, 2, 3):
        async with box.open() as store:
            await box.put(store, 1)
            assert len(store._maintenance.clock.epochs) == runs
    for path in (box.config.root / "rocketbox").glob("clock.json*"):
        path.write_bytes(b"{{{")
    async with box.open() as store:
        assert len(store._maintenance.clock.epochs) == 1
        assert store.max_offset(MessageQueue("T", 0)) == 3
