"""Group commit over a disk in memory: what is durable when, who is told, what a full or failing disk takes back."""

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from storage_driver.errors import Busy, LogFailed
from storage_driver.log.commit_log import CommitLog, SyncCounters
from storage_driver.log.marks import reached
from storage_driver.log.segment import SegmentWriter, segment_name
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.pending import PendingAppend, PendingRecord
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, MessageQueue, encode_topic
from storage_driver.testing import MemoryDisk

FOLDER = Path("/store/commitlog")
SIZE = 1000
QUEUE = ConsumeQueue(MessageQueue("T", 0), encode_topic("T"))


class Bench:
    """A log with what it dispatched, took back and woke, in the order in which it happened."""

    def __init__(self, end: int = 0) -> None:
        self.disk = MemoryDisk(folders=("/", "/store", "/store/commitlog"))
        self.events: list[str] = []
        writer = SegmentWriter(self.disk, FOLDER, SIZE, None)
        self.log = CommitLog(
            [],
            end,
            writer,
            segment_bytes=SIZE,
            dispatch=self.dispatch,
            on_truncated=self.on_truncated,
            no_room=self.no_room,
        )

    def dispatch(self, records: Sequence[PendingAppend]) -> int:
        self.events += [f"dispatch {r.log_offset} durable {self.log.committed}" for r in records]
        return len(records)

    def on_truncated(self, records: Sequence[PendingAppend]) -> None:
        self.events += [f"truncated {r.log_offset}" for r in records]

    def no_room(self, reason: str) -> None:
        self.events.append("no room")

    def put(self, size: int, byte: bytes = b"x") -> int:
        """Append `size` bytes; the wake is noted under their end."""
        at = self.log.reserve(size)
        end = self.log.append(byte * size, PendingRecord(QUEUE, at, size, 0, 0, 0, b""))
        self.log.when_committed(end, lambda reason: self.events.append(f"woke {end} {reason}"))
        return at

    def file(self, base: int) -> bytes:
        inode = self.disk.inodes[self.disk.names[str(FOLDER / segment_name(base))]]
        return inode.stable

    async def wait(self, log_offset: int) -> str | None:
        told: list[str | None] = []
        done = trio.Event()

        def wake(reason: str | None) -> None:
            told.append(reason)
            done.set()

        self.log.when_committed(log_offset, wake)
        with trio.fail_after(25):
            await done.wait()
        return told[0]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.log.run)
            yield
            nursery.cancel_scope.cancel()


async def test_a_message_can_be_pulled_before_it_is_acknowledged_and_both_only_once_it_is_on_the_disk() -> None:
    bench = Bench()
    bench.put(100)
    bench.put(50)
    await trio.testing.wait_all_tasks_blocked()
    assert (bench.events, bench.log.committed, bench.log.end) == ([], 0, 150)
    async with bench.running():
        assert await bench.wait(150) is None
    assert bench.events == ["dispatch 0 durable 0", "dispatch 100 durable 0", "woke 100 None", "woke 150 None"]
    assert (bench.file(0)[:150], bench.log.counters.syncs) == (b"x" * 150, 1)
    assert (bench.log.dispatched, bench.log.counters.bytes, bench.log.waiting_s) == (2, 150, 0.0)


async def test_a_late_asker_for_an_early_offset_waits_for_the_group_before_it() -> None:
    bench = Bench()
    bench.put(10)
    bench.put(20)
    bench.log.when_committed(10, lambda reason: bench.events.append("late"))
    async with bench.running():
        await bench.wait(30)
    assert bench.events[-3:] == ["woke 10 None", "woke 30 None", "late"]


async def test_what_is_durable_waits_for_nobody_who_waits_for_what_is_yet_to_come() -> None:
    bench = Bench()
    async with bench.running():
        await bench.wait(bench.put(100) + 100)
        told: list[str | None] = []
        bench.log.when_committed(bench.log.committed + 1, lambda reason: None)  # as the uplink does
        bench.log.when_committed(bench.log.committed, told.append)
        assert told == [None]


@pytest.mark.parametrize(("left", "rolls"), [(BLANK_BYTES, False), (BLANK_BYTES - 1, True)])
async def test_a_segment_keeps_room_for_its_blank_to_the_byte(left: int, rolls: bool) -> None:
    bench = Bench()
    bench.put(600)
    at = bench.put(400 - left)
    assert at == (SIZE if rolls else 600)
    async with bench.running():
        await bench.wait(bench.log.end)
    if rolls:
        assert bench.file(0)[600:] == BLANK.pack(400, MAGIC_BLANK) + bytes(392)
        assert bench.file(SIZE)[: 400 - left] == b"x" * (400 - left)
        assert [segment.base for segment in bench.log.segments] == [0, SIZE]
    assert bench.log.segment_of(at) is not None
    assert bench.log.segment_of(bench.log.segments[-1].end) is None
    assert bench.log.segment_of(-1) is None


async def test_a_log_that_ends_with_its_segment_goes_on_in_the_next_with_nothing_of_a_blank_left() -> None:
    bench = Bench(end=SIZE)
    assert bench.put(20, b"y") == SIZE
    async with bench.running():
        await bench.wait(SIZE + 20)
    assert (bench.file(SIZE), bench.log.first) == (b"y" * 20 + bytes(SIZE - 20), SIZE)


async def test_a_failed_sync_is_never_tried_again_and_everybody_is_told() -> None:
    bench = Bench()
    async with bench.running():
        bench.put(10)
        await bench.wait(10)
        bench.disk.fail_at, bench.events = len(bench.disk.steps) + 1, []  # the write works, its sync fails
        bench.put(10)
        assert "Input/output error" in (await bench.wait(20) or "")
        steps = len(bench.disk.steps)
        assert bench.log.failure is not None
        with pytest.raises(LogFailed, match="Input/output error"):
            bench.put(10)
        assert await bench.wait(30) == bench.log.failure
        assert await bench.wait(10) is None, "what was durable stays so"
    assert (bench.log.committed, len(bench.disk.steps)) == (10, steps)
    assert [event.split(":")[0][:7] for event in bench.events] == ["woke 20"], "nothing was dispatched"


async def test_without_room_for_the_next_segment_what_was_synced_stays_and_the_rest_is_taken_back() -> None:
    bench = Bench()
    for _ in range(3):
        bench.put(400)  # two in the first segment, one in the next
    bench.put(300)
    bench.disk.fail_with = errno.ENOSPC

    def fail(step: object) -> None:
        if getattr(step, "kind", "") == "name" and segment_name(SIZE) in str(step):
            bench.disk.fail_at = len(bench.disk.steps)

    bench.disk.before = fail
    async with bench.running():
        told = await bench.wait(bench.log.end)
        assert "No space left" in (told or "")
        assert (bench.log.committed, bench.log.end, bench.log.failure) == (SIZE, SIZE, None)
        assert bench.events[:4] == ["dispatch 0 durable 0", "dispatch 400 durable 0", "woke 400 None", "woke 800 None"]
        assert bench.events[4:6] == [f"truncated {SIZE}", f"truncated {SIZE + 400}"]
        assert bench.events[6] == "no room"
        assert all("No space left" in event for event in bench.events[7:])
        bench.disk.before, bench.disk.fail_at, bench.events = (lambda step: None), None, []
        assert bench.put(40, b"z") == SIZE
        assert await bench.wait(SIZE + 40) is None
    assert bench.file(SIZE)[:50] == b"z" * 40 + bytes(10)
    assert bench.file(0)[800:808] == BLANK.pack(200, MAGIC_BLANK)
    assert bench.events == [f"dispatch {SIZE} durable {SIZE}", f"woke {SIZE + 40} None"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_write_that_ends_early_is_answered_record_by_record(code: int) -> None:
    bench = Bench()
    async with bench.running():
        bench.put(10)
        await bench.wait(10)
        bench.disk.ends[bench.disk.names[str(FOLDER / segment_name(0))]], bench.disk.fail_with = 350, code
        bench.events = []
        for _ in range(4):
            bench.put(100)
        told = await bench.wait(bench.log.end)
        assert os.strerror(code) in (told or "")
        assert (bench.log.committed, bench.log.failure) == (310, None if code == errno.ENOSPC else told)
        woken = [event for event in bench.events if event.startswith("woke")]
        assert woken[:3] == ["woke 110 None", "woke 210 None", "woke 310 None"]
        assert woken[3:] == [f"woke 410 {told}"]
        assert [event for event in bench.events if event.startswith("truncated")] == (
            ["truncated 310"] if code == errno.ENOSPC else []
        )
        assert bench.file(0)[:360] == b"x" * 310 + bytes(50)
        if code == errno.ENOSPC:
            bench.disk.ends.clear()
            assert bench.put(20, b"z") == 310
            assert await bench.wait(330) is None
            assert bench.file(0)[300:360] == b"x" * 10 + b"z" * 20 + bytes(30)


async def test_a_segment_that_was_begun_before_the_disk_was_full_is_known() -> None:
    bench = Bench()

    def fill(step: object) -> None:
        if getattr(step, "kind", "") == "folder_sync":
            bench.disk.ends[bench.disk.names[str(FOLDER / segment_name(0))]] = 0

    bench.disk.before, bench.disk.fail_with = fill, errno.ENOSPC
    async with bench.running():
        bench.put(100)
        assert "No space left" in (await bench.wait(100) or "")
        bench.disk.ends.clear()
        bench.put(50)
        assert await bench.wait(50) is None
    assert [segment.base for segment in bench.log.segments] == [0]


async def test_appends_are_refused_while_the_oldest_has_waited_for_a_second(mock_clock: trio.testing.MockClock) -> None:
    bench = Bench()
    bench.put(1)
    mock_clock.jump(0.9)
    for _ in range(15):
        bench.put(1)
    assert bench.log.waiting_s == pytest.approx(0.9)
    mock_clock.jump(0.2)
    with pytest.raises(Busy) as busy:
        bench.log.reserve(1)
    assert busy.value.waited_ms == pytest.approx(1100, abs=1)
    assert bench.log.end == 16


async def test_a_batch_that_the_disk_has_begun_is_finished_although_the_task_is_cancelled() -> None:
    bench, inside, go_on = Bench(), trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hold(step: object) -> None:
        if getattr(step, "kind", "") == "write":
            bench.disk.before = lambda step: None
            token.run_sync_soon(inside.set)
            trio.from_thread.run(go_on.wait, trio_token=token)

    bench.disk.before = hold
    bench.put(30)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await bench.log.run()
            bench.events.append("ended")

        nursery.start_soon(run)
        await inside.wait()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert bench.events == []
        go_on.set()
    assert bench.events == ["dispatch 0 durable 0", "woke 30 None", "ended"]
    assert bench.log.committed == 30


async def test_a_seal_tells_those_who_wait_and_keeps_the_first_bytes_durable() -> None:
    bench = Bench()
    bench.put(10)
    bench.log.seal("asked to")
    assert bench.events == ["woke 10 asked to"]
    with pytest.raises(LogFailed, match="asked to"):
        bench.log.reserve(1)
    bench.log.when_committed(0, lambda reason: bench.events.append(f"zero {reason}"))
    assert bench.events[-1] == "zero None"


async def test_clients_wait_at_a_mark_of_their_own_that_moves_and_fails_with_the_other_and_may_end_early() -> None:
    bench, told = Bench(), list[tuple[int, str | None]]()
    log = bench.log
    log.share(lambda log_offset: None)
    mark = log.bound_answers()
    async with bench.running():
        for end in (100, 200, 300):
            bench.put(100)
            log.when_answered(end, lambda reason, end=end: told.append((end, reason)))  # type: ignore[misc]
        await reached(log.when_synced, 300)
        log.commit(100)
        assert told == [(100, None)]
        mark.expire(2, "nobody else has it")
        assert told[1:] == [(200, "nobody else has it")]
        assert log.committed == 100, "a message that is answered so may be committed later"
        log.seal("broken")
        assert told[2:] == [], "what is synced may still be committed"
        log.commit(300)
        assert told[2:] == [(300, None)]
        log.when_answered(400, lambda reason: told.append((400, reason)))
        assert told[3:] == [(400, "broken")]


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (1e-6, 1), (2e-6, 2), (0.001, 10), (60.0, 25), (1e9, 25)])
def test_a_sync_counts_in_the_bucket_of_its_microseconds(seconds: float, bucket: int) -> None:
    counters = SyncCounters()
    counters.add(100, seconds)
    assert [at for at, count in enumerate(counters.histogram) if count] == [bucket]
    assert (counters.syncs, counters.bytes, counters.slowest_s) == (1, 100, seconds)
