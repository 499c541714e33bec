"""Whole segments of another log: a copy has them on its disk first, and in its queues once their records were read."""

import random
from pathlib import Path

import pytest
import trio

from storage_driver.crc import crc32
from storage_driver.errors import NotNext, QueueRestarted
from storage_driver.log.copied_segment import COPY, CopiedSegment
from storage_driver.record import MessageQueue
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small, until

NAMES = [b"%d" % number + b"x" * (number * 97 % 3000) for number in range(300)]


async def source(tmp_path: Path) -> tuple[bytes, int]:
    """Return the log of a store in several segments, and the size of one."""
    async with open_store(small(tmp_path / "source"), now_ms=Clock()) as store:
        await put_all(store, [message(name, queue_id=number % 3) for number, name in enumerate(NAMES)])
        return log_of(store), store.segment_bytes


def log_of(store: MessageStore) -> bytes:
    data = b""
    while part := store.read_log(len(data), 1 << 20):
        data += part
    return data


def fill(copied: CopiedSegment, log: bytes) -> CopiedSegment:
    """Bring all that a copy lacks."""
    copied.begin(lambda: None)
    data = log[copied.start : copied.end]
    copied.write(memoryview(data), crc32(data))
    copied.finish(lambda: None)
    return copied


async def seen(store: MessageStore) -> list[bytes]:
    return [body for queue_id in range(3) for body in await bodies(store, queue_id=queue_id)]


async def test_segments_are_synced_at_once_and_seen_once_they_are_committed_and_read(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    async with open_store(small(tmp_path / "copy", shared=True, copies_only="it follows"), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        first = log[: log.index(NAMES[5]) - 100]  # the beginning of the first segment came as records
        first = first[: sum(int.from_bytes(first[at : at + 4], "big") for at in starts(first))]
        store.append_raw(0, first)
        await until(lambda: store.synced == len(first))
        assert not store.copies.unread
        for number in range(2):
            copied = fill(store.copies.begin(), log)
            assert (copied.start, copied.end) == (len(first) if not number else size, (number + 1) * size)
            assert store.copies.fits(copied)
            await store.copies.install(copied)
            assert store.end == store.synced == copied.end
        assert store.copies.unread
        store.commit(2 * size)
        assert store.committed == len(first), "what nobody has read is in no queue"
        with pytest.raises(NotNext):
            store.append_raw(2 * size, log[2 * size :])
        while store.copies.unread:
            await store.copies.read_some()
        assert store.committed == 2 * size
        more = log[2 * size :]
        store.append_raw(2 * size, more[: starts(more)[5]])
        await until(lambda: store.synced == store.end)
        store.commit(store.end)
        assert log_of(store) == log[: store.end]
        assert set(await seen(store)) == {name for name in NAMES if name in log[: store.end]}
        assert store.max_offset(MessageQueue("T", 0)) > 10


def starts(data: bytes) -> list[int]:
    """Return where whole records begin."""
    found, at = list[int](), 0
    while at + 4 <= len(data) and (size := int.from_bytes(data[at : at + 4], "big")) and at + size <= len(data):
        found.append(at)
        at += size
    return found


@pytest.mark.parametrize("shared", [True, False])
async def test_what_came_of_a_segment_goes_at_the_next_start_also_of_a_box_that_left_its_group(
    tmp_path: Path, shared: bool
) -> None:
    config = small(tmp_path / "store", shared=shared)
    async with open_store(config, now_ms=Clock()):
        (config.root / COPY).write_bytes(b"of a segment that was never whole")
    async with open_store(config, now_ms=Clock()):
        assert not (config.root / COPY).exists()


async def test_a_start_reads_what_was_not_read_and_keeps_apart_what_may_not_be_committed(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    for noted in (True, False):
        root = tmp_path / f"copy{noted}"
        config = small(root, shared=True, copies_only="it follows")
        async with open_store(config, now_ms=Clock()) as store:
            store.share(lambda log_offset: None)
            await store.copies.install(fill(store.copies.begin(), log))
            if noted:
                await store.copies.note_committed(size)
        async with open_store(config, now_ms=Clock()) as store:
            assert (store.end, store.committed) == (size, size if noted else 0)
            store.share(lambda log_offset: None)
            store.commit(size)
            assert log_of(store) == log[:size]
            assert set(await seen(store)) == {name for name in NAMES if name in log[:size]}


async def test_a_cut_within_what_nobody_has_read_leaves_the_records_below_it(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    at = starts(log[:size])[7]
    async with open_store(small(tmp_path / "copy", shared=True, copies_only="it follows"), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        await store.copies.install(fill(store.copies.begin(), log))
        done = await store.truncate(at, "another leader has other records")
        assert done is not None
        assert done.end == size
        while store.copies.unread:
            await store.copies.read_some()
        store.commit(at)
        assert (store.end, store.committed) == (at, at)
        *_, last = starts(log[:size])[:-1]  # the blank parses as the last one
        assert store.append_raw(at, log[at:last]) == last
        await until(lambda: store.synced == last)
        store.commit(last)
        assert set(await seen(store)) == {name for name in NAMES if name in log[:last]}


async def test_a_topic_that_begins_anew_within_a_segment_is_told_with_all_below_taken(tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "source"), now_ms=Clock()) as store:
        await put_all(store, [message(b"old"), message(b"other", topic="U")])
        await store.delete_topic("T")
        await put_all(store, [message(b"new")])
        await put_all(store, [message(b"x" * 30_000, topic="U") for _ in range(6)])
        log, size = log_of(store), store.segment_bytes
    async with open_store(small(tmp_path / "copy", shared=True, copies_only="it follows"), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        await store.copies.install(fill(store.copies.begin(), log))
        store.commit(size)
        with pytest.raises(QueueRestarted, match="queue 0 of T again"):
            await store.copies.read_some()
        assert await bodies(store) == [b"old"]
        with trio.fail_after(60):
            await store.restart_queue("T", 0)
        while store.copies.unread:
            await store.copies.read_some()
        assert await bodies(store) == [b"new"]
        assert store.committed == size


async def test_whatever_a_power_cut_leaves_is_the_log_before_a_segment_or_with_all_of_it(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    disk, pick, left = MemoryDisk({}, ("/", "/data")), random.Random(1), list[MemoryDisk]()
    config = small(Path("/data"), shared=True, copies_only="it follows")
    first = log[: starts(log[:size])[9]]
    async with open_store(config, now_ms=Clock(), disk=disk) as store:
        store.share(lambda log_offset: None)
        store.append_raw(0, first)
        await until(lambda: store.synced == len(first))
        store.commit(len(first))
        disk.before = lambda step: left.append(disk.after_power_cut(pick))
        await store.copies.install(fill(store.copies.begin(), log))
        installed = len(left)
        await store.copies.note_committed(size)
        left.append(disk.after_power_cut(pick))
    ends = list[int]()
    for state in left:
        async with open_store(config, now_ms=Clock(), disk=state) as store:
            ends.append(store.end)
            store.share(lambda log_offset: None)
            store.commit(store.end)
            assert log_of(store) == log[: store.end]
    assert set(ends[:installed]) <= {len(first), size}
    assert ends[0] == len(first)
    assert set(ends[installed:]) == {size}


async def test_what_is_appended_after_a_cut_within_a_segment_that_was_begun_here_is_in_the_log(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    found, config = starts(log[:size])[:-1], small(tmp_path / "copy", shared=True, copies_only="it follows")
    begun, cut, last = found[3], found[7], found[12]
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        store.append_raw(0, log[:begun])
        await until(lambda: store.synced == begun)
        stale = fill(store.copies.begin(), log)
        await store.copies.install(fill(store.copies.begin(), log))
        await store.truncate(cut, "another leader has other records")
        while store.copies.unread:
            await store.copies.read_some()
        store.append_raw(cut, log[cut:last])
        await until(lambda: store.synced == last)
        store.commit(last)
        assert log_of(store) == log[:last]
        assert not store.copies.fits(stale)
    async with open_store(config, now_ms=Clock()) as store:
        assert store.end == last
        store.share(lambda log_offset: None)
        store.commit(last)
        assert log_of(store) == log[:last]


async def test_a_copy_that_was_begun_before_a_cut_is_no_longer_of_this_log(tmp_path: Path) -> None:
    log, size = await source(tmp_path)
    found = starts(log[:size])[:-1]
    begun, cut = found[9], found[4]
    async with open_store(small(tmp_path / "copy", shared=True, copies_only="it follows"), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        store.append_raw(0, log[:begun])
        await until(lambda: store.synced == begun)
        copied = fill(store.copies.begin(), log)
        assert store.copies.fits(copied)
        await store.truncate(cut, "another leader has other records")
        store.append_raw(cut, log[cut:begun])
        await until(lambda: store.synced == begun)
        assert not store.copies.fits(copied), "other records may stand below it"
