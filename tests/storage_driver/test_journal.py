"""A journal with many who change and one who writes: syncs are shared, errors reach who waits, files stay small."""

import errno
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from storage_driver import journal as module
from storage_driver.errors import ENDED
from storage_driver.files.journal_file import JournalFile
from storage_driver.journal import Journal, JournalFailed
from storage_driver.testing import MemoryDisk

PATH = Path("/data/x.journal")


class Table:
    """What the journal keeps: words."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.words: list[bytes] = []
        self.journal = Journal(JournalFile(disk, PATH), lambda: [b"".join(self.words)])

    def add(self, word: bytes) -> int:
        self.words.append(word)
        return self.journal.add(word)


@asynccontextmanager
async def running(disk: MemoryDisk) -> AsyncIterator[Table]:
    table = Table(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.journal.run)
        await trio.testing.wait_all_tasks_blocked()  # the first look of its thread is over
        yield table
        nursery.cancel_scope.cancel()


def stored(disk: MemoryDisk) -> bytes:
    return b"".join(JournalFile(disk.restarted(), PATH).load().payloads)


async def test_a_change_is_durable_when_its_mark_is_reached() -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    async with running(disk) as table:
        for word in (b"a", b"b", b"c"):
            await table.journal.wait_synced(table.add(word))
            assert stored(disk) == b"".join(table.words)


async def test_changes_that_nobody_waits_for_are_written_with_the_next_or_at_the_end() -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    async with running(disk) as table:
        table.add(b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert stored(disk) == b""
    await table.journal.flush()
    assert stored(disk) == b"a"


async def test_changes_that_come_together_share_a_sync() -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    async with running(disk) as table:
        await table.journal.wait_synced(table.add(b"first"))
        before = table.journal.syncs
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(table.journal.wait_synced, table.add(b"x"))
        assert table.journal.syncs - before <= 3


async def test_a_large_journal_is_replaced_by_what_it_amounts_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 1000)
    disk = MemoryDisk(folders=("/", "/data"))
    async with running(disk) as table:
        for number in range(200):
            table.words = [b"%d" % number]
            await table.journal.wait_synced(table.journal.add(b"x" * 100))
        assert table.journal.replacements > 3
        assert table.journal.size < 2500


async def test_who_waits_hears_of_a_disk_that_fails_and_the_next_try_writes_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    async with running(disk) as table:
        await table.journal.wait_synced(table.add(b"a"))
        disk.fail_at, disk.fail_with = len(disk.steps) + 1, errno.EIO
        with pytest.raises(JournalFailed, match=r"x\.journal: .*Input/output"):
            await table.journal.wait_synced(table.add(b"b"))
        assert table.journal.failure is not None
        await table.journal.wait_synced(table.add(b"c"))
        assert (stored(disk), table.journal.syncs) == (b"abc", 2)


async def test_who_waits_when_the_journal_ends_is_told_that_it_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str | None]()
    async with running(MemoryDisk(folders=("/", "/data"))) as table:
        monkeypatch.setattr(table.journal, "_not_before", math.inf)  # the disk failed, and nothing begins yet
        table.journal.when_synced(table.add(b"a"), told.append)
        assert told == []
    assert told == [ENDED]


async def test_what_no_disk_does_ends_the_journal_and_who_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str | None]()
    with pytest.RaisesGroup(ZeroDivisionError):
        async with running(MemoryDisk(folders=("/", "/data"))) as table:
            monkeypatch.setattr(JournalFile, "replace", lambda *_: 1 // 0)
            table.journal.when_synced(table.add(b"a"), told.append)
            with trio.fail_after(60):
                await trio.sleep_forever()
    assert told == [ENDED]
