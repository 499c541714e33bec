"""A disk error at every step, one after the other: no false acknowledgement, no crash, and a restart that keeps all."""

import errno
import random

import pytest
import trio
import trio.lowlevel

from storage_driver.errors import Busy, Full, LogFailed, StoreRefused, TablesFailed
from storage_driver.files.disk import Usage
from storage_driver.files.state_file import StateFile
from storage_driver.record import MessageQueue, Parts
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import DiskStep, MemoryDisk
from tests.power_cut.harness import FOLDERS, Trace, Workload, check, config, deterministic, open_after

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
MESSAGES = 60


class FailingWorkload(Workload):
    """Goes on where it can when the disk fails."""

    def __init__(self, disk: MemoryDisk, seed: int, messages: int) -> None:
        super().__init__(disk, seed, messages)
        self.refused: list[str] = []

    def _send(self, store: MessageStore) -> int:
        try:
            return super()._send(store)
        except (LogFailed, Full, Busy, TablesFailed) as exc:
            self.refused.append(f"{type(exc).__name__}: {exc}")
            return 1

    async def _save(self, offsets: StateFile) -> None:
        try:
            await super()._save(offsets)
        except OSError as exc:
            self.refused.append(f"{type(exc).__name__}: {exc}")

    async def run(self) -> None:
        try:
            await super().run()
        except* (LogFailed, Full, Busy, StoreRefused, OSError) as group:
            self.refused += [f"{type(e).__name__}: {e}" for e in _leaves(group)]


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found


def steps_of(seed: int) -> int:
    disk = MemoryDisk(folders=FOLDERS)
    deterministic(Workload(disk, seed, MESSAGES).run, seed)
    return len(disk.steps)


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("keep_failing", [False, True])
def test_an_error_at_any_step_acknowledges_nothing_that_is_not_there(keep_failing: bool, every: int) -> None:
    """Of every two steps one fails once, the other for good; in soak each does both."""
    seed = 5
    pick, wrong = random.Random(seed), []
    for number in range(int(keep_failing) % every, steps_of(seed), every):
        disk = MemoryDisk(folders=FOLDERS)
        disk.fail_at, disk.fail_with, disk.keep_failing = number, pick.choice(ERRORS), keep_failing
        workload = FailingWorkload(disk, seed, MESSAGES)
        deterministic(workload.run, seed)
        disk.fail_at = None
        steps = len(disk.steps)
        for left in (disk.copy(), disk.after_power_cut(pick)):
            wrong += [f"step {number} of {steps}: {text}" for text in check(left, workload.trace, steps)]
        wrong += [f"step {number} of {steps}: {text}" for text in restart_and_cut(disk, workload.trace, pick)]
    assert wrong == []


def restart_and_cut(disk: MemoryDisk, trace: Trace, pick: random.Random) -> list[str]:
    """Recover from what the page cache shows after the error, serve, then lose the power: what was shown must stay."""
    left = disk.restarted()
    wrong = [f"after a restart: {text}" for text in check(left, trace, 1 << 59)]
    return wrong or [f"after a restart and a cut: {text}" for text in check(left.after_power_cut(pick), trace, 1 << 59)]


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
async def test_a_failed_sync_seals_the_log_and_reads_go_on(code: int) -> None:
    disk = MemoryDisk(folders=FOLDERS)
    workload = Workload(disk, 1, 0)
    async with open_store(config(), now_ms=workload.now_ms, disk=disk) as store:
        message = workload._message("T0")._replace(sys_flag=0, queue_id=0)
        first = store.put(message)
        await store.wait_committed(first.end)
        disk.before = lambda step: _fail_syncs(step.kind, code)
        with pytest.raises(LogFailed):
            await store.wait_committed(store.put(message).end)
        disk.before = lambda step: None  # the disk works again: that must not matter
        with pytest.raises(LogFailed, match="restart"):
            store.put(message)
        reasons: list[str | None] = []
        store.when_committed(store.end, reasons.append)
        assert reasons[0] is not None
        assert store.evidence().failure is not None
        assert (await store.read(MessageQueue("T0", 0), 0, max_count=9, max_bytes=9000)).records == 1
    opened = open_after(disk.after_power_cut(random.Random(1)))
    assert opened.recovered.end in (first.end, first.end + first.size)


def _fail_syncs(kind: str, code: int) -> None:
    if kind == "sync":
        raise OSError(code, "injected")


async def test_no_room_for_the_next_segment_refuses_and_resumes_without_restart() -> None:
    disk = MemoryDisk(folders=FOLDERS)
    disk.space = Usage(1 << 39, 1 << 40)
    workload = Workload(disk, 1, 0)
    async with open_store(config(), now_ms=workload.now_ms, disk=disk) as store:
        message = workload._message("T0")._replace(sys_flag=0, queue_id=0, body=b"x" * 4000)
        placed = store.put(message)
        await store.wait_committed(placed.end)
        # The first look at the disk would take the full mark back.
        while not store.statistics().disk_percent:  # noqa: ASYNC110
            await trio.sleep(0.001)
        disk.before = _no_room
        failure = None
        while failure is None:
            try:
                await store.wait_committed(store.put(message).end)
            except LogFailed as exc:
                failure = str(exc)
        assert "next segment" in failure
        count = store.max_offset(MessageQueue("T0", 0))
        with pytest.raises(Full):
            store.put(message)
        disk.before = lambda step: None
        await store.check_space()
        placed = store.put(message)
        await store.wait_committed(placed.end)
        assert (placed.queue_offset, placed.log_offset) == (count, config().segment_bytes)
        await trio.lowlevel.checkpoint()
    assert open_after(disk).recovered.verdict.verdict in ("clean", "clean_tail")


def _no_room(step: DiskStep) -> None:
    if any(name.endswith(("spare.tmp", "next.tmp")) for name, _ in step.names):
        raise OSError(errno.ENOSPC, "injected")


async def test_half_a_batch_that_the_full_disk_took_never_comes_back_behind_what_is_written_over_it() -> None:
    disk = MemoryDisk(folders=FOLDERS)
    workload = Workload(disk, 1, 0)
    async with open_store(config(), now_ms=workload.now_ms, disk=disk) as store:
        message = workload._message("T0")._replace(sys_flag=0, queue_id=0, body=b"x" * 200)
        await store.wait_committed(store.put(message).end)
        name = next(name for name in disk.names if name.endswith(f"/commitlog/{0:020d}"))
        disk.fail_with, disk.ends[disk.names[name]] = errno.ENOSPC, 3000
        head = store.put(message)
        batch = store.put_batch(message, Parts.of([(0, b"y" * 200, b"")] * 40))
        told: list[str | None] = []
        store.when_committed(head.end, told.append)
        with pytest.raises(LogFailed, match="write of"):
            await store.wait_committed(batch.end)
        assert told == [None]
        disk.ends.clear()
        await store.check_space()
        placed = store.put(message._replace(body=b"z"))
        await store.wait_committed(placed.end)
        assert (placed.queue_offset, placed.log_offset) == (2, head.end)
    recovered = open_after(disk.after_power_cut(random.Random(1))).recovered
    assert (recovered.end, recovered.verdict.quarantined) == (placed.end, [])
    assert recovered.queues[MessageQueue("T0", 0)].visible == 3
