"""What the disk does not give back: an error first, then it is skipped and told, where the disk works otherwise."""

import errno
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from storage_driver import bad_sectors
from storage_driver.config import StoreConfig
from storage_driver.files import unreadable
from storage_driver.index.index_file import IndexSize
from storage_driver.lookup import first_entry
from storage_driver.queues.consume_queue import ENTRY, HOLE
from storage_driver.reader import ColdSource
from storage_driver.reading import ReadResult
from storage_driver.record import Message, MessageQueue, encode_host, encode_properties
from storage_driver.retention.rules import RetentionClass, RetentionRules
from storage_driver.store import AppendResult, MessageStore, open_store
from tests.bad_disk import BadDisk

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
FIRST = f"commitlog/{0:020d}"
SEGMENT = 128 * 1024


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)


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


@pytest.mark.parametrize("holes", [0, 1, 300])
def test_holes_behind_entries_that_cannot_be_read_do_not_move_where_the_queue_begins(holes: int) -> None:
    class Source:
        """Ten entries that are not given back, holes, five entries."""

        def entries(self, at: int, count: int) -> bytes:
            if at < 10:
                raise OSError(errno.EIO, "bad")
            return HOLE if at < 10 + holes else ENTRY.pack(100 * at, 100, 0)

    assert first_entry(cast(ColdSource, Source()), 0, 15 + holes, 0) == 0


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


async def test_nothing_is_skipped_on_a_disk_that_is_gone_though_another_took_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        await fill(store)
        await store.prove()
        disk.gone, disk.cached[f"0/{0:020d}"] = True, [(0, 1 << 30)]
        for _ in range(3):
            with pytest.raises(OSError, match="record at"):
                await read(store)
            await store.prove()
        disk.gone = False
        assert ((await read(store)).records, store.losses.found) == (20, [])


async def test_a_bad_sector_of_the_log_keeps_no_entries_from_being_written_anew(tmp_path: Path) -> None:
    """The consumer of a queue whose file has a bad sector would stand still for ever."""
    disk = BadDisk()
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        placed = await fill(store, count=700, size=10)
        await store.prove()
        hurt = placed[300].log_offset // 4096 * 4096
        disk.bad = {f"0/{0:020d}": [(4096, 8192)], FIRST: [(hurt, hurt + 4096)]}  # entries 204 to 409
        lost = sum(p.log_offset < hurt + 4096 and p.log_offset + p.size > hurt for p in placed)
        found = await store.read(QUEUE, 0, max_count=800, max_bytes=1 << 20)
        assert (found.records, found.next_offset) == (700 - lost, 700)
        (loss,) = store.losses.found
        assert loss.damaged
        assert loss.ranges[0][0] <= hurt < hurt + 4096 <= loss.ranges[-1][1]


@pytest.mark.parametrize("behind", [0, 1])
async def test_a_bad_sector_of_the_log_keeps_no_index_from_being_made_nor_senders_from_sending(
    tmp_path: Path, behind: int
) -> None:
    settings = {"index_enabled": True, "index_size": IndexSize(50, 4000)}
    disk, placed = BadDisk(), list[AppendResult]()
    async with open_store(config(tmp_path, **settings), now_ms=lambda: 5, disk=disk) as store:
        for number in range(300):
            properties = encode_properties({"UNIQ_KEY": f"k{number}"})
            placed.append(store.put(Message(*QUEUE, bytes(700), properties, 0, 0, 1, HOST)))
            await store.wait_committed(placed[-1].end)
        await store.prove()
    for path in (tmp_path / "store/index").iterdir():
        path.unlink()
    disk.bad[FIRST] = [(8192, 8192 + 4096)]
    lost = [n for n, p in enumerate(placed) if p.log_offset < 8192 + 4096 and p.log_offset + p.size > 8192]
    async with open_store(config(tmp_path, **settings), now_ms=lambda: 5, disk=disk) as store:
        with trio.fail_after(20):
            while store.statistics().index_to < placed[-1].end:
                assert store._flusher.failure is None
                await trio.sleep(0.01)
        store.put(Message(*QUEUE, b"", b"", 0, 0, 1, HOST))
        key = f"k{lost[-1] + 1 if behind else lost[0] - 1}"
        assert len(await store.find_by_key("T", key, 1, 0, 1 << 60)) == 1


async def test_a_search_by_time_passes_a_bad_sector_once_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    disk, clock = BadDisk(), count(1_700_000_000_000, 1000)
    async with open_store(config(tmp_path), now_ms=lambda: next(clock), disk=disk) as store:
        placed = await fill(store, count=700, size=10)
        await store.prove()
        wanted = placed[500].stored_ms
        disk.bad[FIRST] = [(placed[350].log_offset, placed[350].log_offset + 1)]  # where the search looks first
        for _ in range(2):
            with pytest.raises(OSError, match="record at"):
                await store.offset_by_time(QUEUE, wanted)
        await store.prove()
        assert await store.offset_by_time(QUEUE, wanted) == 500
        disk.bad[f"0/{0:020d}"] = [(4096, 8192)]  # entries 204 to 409
        assert await store.offset_by_time(QUEUE, wanted) == 500


async def test_a_bad_sector_in_a_queues_file_keeps_no_segment_from_being_deleted(tmp_path: Path) -> None:
    classes = (RetentionClass(("T",), 1), RetentionClass(("U*",), 10_000))
    rules, disk = RetentionRules(keep_ms=5, classes=classes), BadDisk()
    async with open_store(config(tmp_path, retention=rules), now_ms=lambda: 5, disk=disk) as store:
        await fill(store, count=700, size=600)
        await store.prove()
        base = store.segments()[1].base
        disk.bad[f"0/{0:020d}"] = [(0, 16384)]
        for segment in store.segments()[:-1]:
            assert await store._lookup.longest_kept(segment.base, segment.base + SEGMENT) in (0, 1)
        assert await store._lookup.longest_kept(base, base + SEGMENT) == 1
