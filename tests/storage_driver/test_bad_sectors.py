"""What the disk does not give back: an error first, then it is skipped and told, where the disk works otherwise."""

import errno
from pathlib import Path
from typing import Any, cast

import pytest

from storage_driver import bad_sectors
from storage_driver.config import StoreConfig
from storage_driver.lookup import first_entry
from storage_driver.queues.consume_queue import ENTRY
from storage_driver.reader import ColdSource
from storage_driver.reading import ReadResult
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.store import AppendResult, MessageStore, open_store
from tests.bad_disk import BadDisk

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
FIRST = f"commitlog/{0:020d}"
SEGMENT = 128 * 1024


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {"segment_bytes": SEGMENT, "max_message_bytes": 32 * 1024, "index_enabled": False}
    return StoreConfig(root / "store", HOST, **settings | changes)


async def fill(store: MessageStore, count: int = 20, size: int = 500) -> list[AppendResult]:
    placed: list[AppendResult] = []
    for number in range(count):
        placed.append(store.put(Message(*QUEUE, bytes(size), b"", 0, 0, 1, HOST)))
        if number % 50 == 49:  # so few that a slow disk refuses none
            await store.wait_committed(placed[-1].end)
    await store.wait_committed(placed[-1].end)
    return placed


async def read(store: MessageStore, at: int = 0) -> ReadResult:
    return await store.read(QUEUE, at, max_count=100, max_bytes=1 << 20)


async def test_a_record_that_cannot_be_read_is_skipped_and_told_once_the_disk_took_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        placed = await fill(store)
        disk.bad[FIRST] = [(placed[7].log_offset + 200, placed[8].log_offset + 200)]  # of two records
        for _ in range(2):
            with pytest.raises(OSError, match=f"record at {placed[7].log_offset}"):
                await read(store)
        await store.prove()
        found = await read(store)
        assert (found.records, found.next_offset) == (18, 20)
        assert (await read(store, 7)).records == 11
        (loss,) = store.losses.found
        assert (loss.damaged, loss.messages, loss.queues) == (True, 2, [("T", 0, 2)])
        disk.bad.clear()
        assert (await read(store)).records == 18, "an offset that was passed never comes again"
    async with open_store(config(tmp_path), now_ms=lambda: 5) as store:
        assert (await read(store)).records == 20


async def test_nothing_is_skipped_at_once_nor_on_a_disk_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        placed = await fill(store)
        disk.bad[FIRST] = [(placed[7].log_offset, placed[7].log_offset + 1)]
        for _ in range(3):
            with pytest.raises(OSError, match="record at"):
                await read(store)
            await store.prove()
        monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
        store.seal("it is gone")
        with pytest.raises(OSError, match="record at"):
            await read(store)
        assert store.losses.found == []


async def test_a_bad_sector_keeps_neither_the_scrub_nor_retention_from_what_is_behind_it(tmp_path: Path) -> None:
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        await fill(store, count=200, size=2000)
        bases = [each.base for each in store.segments()]
        disk.bad = {f"commitlog/{base:020d}": [(0, 512)] for base in bases[1:2]}
        with pytest.raises(OSError, match="Input"):
            await store.check_all()
        assert store._maintenance.scrub.at == bases[2]
        found = await store._maintenance._ages.deletable(5)
        assert [each.base for each in found] == bases[:-1]


async def test_a_bad_sector_below_what_a_start_scans_refuses_no_start(tmp_path: Path) -> None:
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        placed = await fill(store, count=8, size=4000)
        other = store.put(Message("U", 1, b"", b"", 0, 0, 1, HOST))
        await store.wait_committed(other.end)
        await store.prove()
    for at in [each.log_offset for each in placed[:-1]]:  # the last one shares a block with the end
        disk.bad[FIRST] = [(at + 50, at + 51)]
        async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
            assert (store.max_offset(QUEUE), store.max_offset(MessageQueue("U", 1))) == (8, 1)
            assert store.verdict.verdict in ("clean", "repaired")
            assert (store.verdict.quarantined, store.losses.found) == ([], [])


async def test_a_bad_sector_in_a_queues_file_is_written_anew_from_the_log_when_somebody_reads_there(
    tmp_path: Path,
) -> None:
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        await fill(store, count=700, size=10)
        await store.prove()
        file = f"0/{0:020d}"
        disk.bad[file] = [(4096, 8192)]  # entries 204 to 409
        found = await store.read(QUEUE, 0, max_count=800, max_bytes=1 << 20)
        assert (found.records, found.next_offset) == (700, 700)
        assert disk.bad[file] == []
        assert store._parts.queue_repair.mended >= 206
        assert store.losses.found == []


@pytest.mark.parametrize("block", [0, 1, 2])
@pytest.mark.parametrize("harm", ["unreadable", "zeros", "garbage"])
async def test_a_harmed_part_of_a_queues_file_moves_not_where_the_queue_begins(
    tmp_path: Path, harm: str, block: int
) -> None:
    """Entries 410 to 614 are those where who looks for the beginning looks first, it is in the block before."""
    disk, file = BadDisk(), tmp_path / "store/consumequeue/T/0" / f"{0:020d}"
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        await fill(store, count=1000)
        if block:
            await store.drop_first()
        begins = store.min_offset(QUEUE)
        await store.prove()
    assert 204 < begins < 300 or not block + begins
    at = 4096 * block
    if harm == "unreadable":
        disk.bad[f"0/{0:020d}"] = [(at, at + 4096)]
    else:
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(bytes(4096) if harm == "zeros" else b"\xee" * 4096)
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        assert 0 <= begins - store.min_offset(QUEUE) <= 205 * (block == 1)
        found = [await read(store, at) for at in range(begins, 1000, 100)]
        assert sum(each.records for each in found) == 1000 - begins


@pytest.mark.parametrize("fails_at", range(8))
@pytest.mark.parametrize("log_offset", [0, 100, 350, 700, 800])
def test_an_entry_that_comes_at_the_second_try_is_not_passed_over(fails_at: int, log_offset: int) -> None:
    class Source:
        """Eight entries, one every 100 bytes of the log; one of them is not read at the first try."""

        def __init__(self, fails_at: int | None) -> None:
            self.fails_at = fails_at

        def entries(self, at: int, count: int) -> bytes:
            if at == self.fails_at:
                self.fails_at = None
                raise OSError(errno.EIO, "once")
            return ENTRY.pack(100 * at, 100, 0)

    right = first_entry(cast(ColdSource, Source(None)), 0, 8, log_offset)
    assert first_entry(cast(ColdSource, Source(fails_at)), 0, 8, log_offset) == right
