"""A read that fails wherever the store reads: an error for who asked, never a false answer or a lost message."""

import errno
from pathlib import Path

import pytest
import trio

from storage_driver.errors import StorageError
from storage_driver.files import unreadable
from storage_driver.record import MessageQueue, decode_record
from storage_driver.store import AppendResult, MessageStore, open_store
from storage_driver.testing import MemoryDisk, MemoryFile
from tests.power_cut.harness import FOLDERS, Workload, check, config, deterministic

SEED, MESSAGES = 7, 150


class BadSectors(MemoryDisk):
    """A disk whose n-th read fails with EIO, and all after it when that is asked for."""

    def __init__(self, fail_at: int, *, for_good: bool) -> None:
        super().__init__(folders=FOLDERS)
        self.reads, self.fail_reads_at, self.for_good = 0, fail_at, for_good
        self.resting = False  # the test itself reads

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        super().open(path, create=create, read_only=read_only)
        return BadFile(self, self.inodes[self.names[str(path)]])

    def count_read(self) -> None:
        if self.resting:
            return
        number, self.reads = self.reads, self.reads + 1
        if number == self.fail_reads_at or (self.for_good and number > self.fail_reads_at >= 0):
            raise OSError(errno.EIO, "injected")


class BadFile(MemoryFile):
    """An open file of such a disk."""

    def read(self, count: int, at: int) -> bytes:
        assert isinstance(self._disk, BadSectors)
        self._disk.count_read()
        return super().read(count, at)


class Reader(Workload):
    """Sends, starts anew, asks for messages in every way there is: the answer is an error, or it is right."""

    def __init__(self, disk: BadSectors) -> None:
        super().__init__(disk, SEED, MESSAGES)
        self._sectors = disk
        self.errors: list[str] = []
        self.wrong: list[str] = []

    async def run(self) -> None:
        for _ in range(3):
            try:
                async with open_store(config(), now_ms=self.now_ms, disk=self.disk, new_id=lambda: 9) as store:
                    await self._serve(store)
            except* StorageError as group:
                self.errors.append(f"start or end: {group.exceptions}")

    def _bytes_of(self, store: MessageStore, place: AppendResult) -> bytes:
        self._sectors.resting = True
        raw = super()._bytes_of(store, place)
        self._sectors.resting = False
        return raw

    async def _serve(self, store: MessageStore) -> None:
        for number in range(self._messages // 3):
            try:
                self._send(store)
                await store.wait_committed(store.end)
                if number % 10 == 0:
                    await self._save(store.state_file("consumerOffset"))
                if number == 40 and len(store.segments()) > 2:
                    self.trace.floors.append((len(self.disk.steps), store.segments()[1].base))
                    await store.drop_first()
            except (OSError, StorageError) as exc:
                self.errors.append(f"{type(exc).__name__}: {exc}")
            if number % 7 == 0:
                await self._ask(store)
                await trio.sleep(0.5)
        try:
            await store.check_all()
        except OSError as exc:
            self.errors.append(f"check of all: {exc}")

    async def _ask(self, store: MessageStore) -> None:
        for _, place, message in self.trace.acknowledged[:: max(1, len(self.trace.acknowledged) // 3)]:
            queue = MessageQueue(message.topic, message.queue_id)
            if message.sys_flag or place.log_offset < store.first:
                continue
            for ask in (by_number, by_log_offset, by_time, by_key):
                try:
                    if (problem := await ask(store, queue, place)) is not None:
                        self.wrong.append(f"{ask.__name__}: {queue} {place} {problem}")
                except OSError as exc:
                    self.errors.append(f"{ask.__name__}: {exc}")


async def by_number(store: MessageStore, queue: MessageQueue, place: AppendResult) -> str | None:
    found = await store.read(queue, place.queue_offset, max_count=1, max_bytes=1 << 20)
    right = found.chunks and decode_record(found.chunks[0]).log_offset == place.log_offset
    return None if right else str(found.status)


async def by_log_offset(store: MessageStore, queue: MessageQueue, place: AppendResult) -> str | None:
    raw = await store.record_at(place.log_offset)
    return None if raw is not None and decode_record(raw).queue_offset == place.queue_offset else "not there"


async def by_time(store: MessageStore, queue: MessageQueue, place: AppendResult) -> str | None:
    at = await store.offset_by_time(queue, place.stored_ms, boundary="lower")
    return None if at <= place.queue_offset else f"{at}"


async def by_key(store: MessageStore, queue: MessageQueue, place: AppendResult) -> str | None:
    """The index may lag behind an error, so a key may not be found yet; what is found is right."""
    raw = await store.record_at(place.log_offset)
    key = decode_record(raw).property_map["UNIQ_KEY"] if raw is not None else ""
    found = [decode_record(each).log_offset for each in await store.find_by_key(queue.topic, key, 9, 0, 1 << 62)]
    return None if found in ([], [place.log_offset]) else f"found {found}"


def play(fail_at: int, *, for_good: bool = False) -> tuple[BadSectors, Reader]:
    disk = BadSectors(fail_at, for_good=for_good)
    reader = Reader(disk)
    deterministic(reader.run, SEED)
    return disk, reader


@pytest.mark.slow
@pytest.mark.parametrize("every", [301, pytest.param(151, marks=pytest.mark.soak)])
def test_a_read_that_fails_anywhere_costs_no_message_and_gives_no_false_answer(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    disk, reader = play(-1)
    assert (reader.wrong, reader.errors) == ([], [])
    reads, wrong, failed = disk.reads, [], 0
    assert check(disk.restarted(), reader.trace, 1 << 59) == []
    for number in range(0, reads, every):
        disk, reader = play(number, for_good=number % 2 == 1)
        failed += bool(reader.errors)
        found = reader.wrong + check(disk.restarted(), reader.trace, 1 << 59)
        wrong += [f"read {number} of {reads}: {text}" for text in found]
    assert failed > 10
    assert wrong == []
