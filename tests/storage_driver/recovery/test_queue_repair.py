"""A reader that meets an entry which leads nowhere gets the message all the same, when the log has it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage_driver.config import StoreConfig
from storage_driver.index.index_file import IndexSize
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE
from storage_driver.reading import ReadRequest
from storage_driver.record import Message, MessageQueue, decode_record, encode_host
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
COUNT = 130


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root,
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=50,
        index_size=IndexSize(50, 200),
        scrub_mib_per_h=0,
    )


def queue_file(root: Path, number: int) -> Path:
    return root / "consumequeue" / "T" / "0" / f"{number * 50 * ENTRY_BYTES:020d}"


async def fill(store: MessageStore) -> list[int]:
    """Store numbered messages in two queues; return the log offsets of the first queue's."""
    places = []
    for number in range(COUNT):
        for queue_id in (0, 1):
            placed = store.put(Message("T", queue_id, b"%d " % number + bytes(1500), b"", 0, 0, 1, HOST))
            places += [placed.log_offset] if queue_id == 0 else []
    await store.wait_committed(placed.end)
    await store.prove()
    return places


async def numbers(store: MessageStore) -> list[int]:
    """Read the queue as a consumer does, from memory where that is possible."""
    found, at = [], 0
    while at < store.max_offset(QUEUE):
        got = store.read_hot(ReadRequest(QUEUE, at, 32, 1 << 20))
        if got is None:
            got = await store.read(QUEUE, at, max_count=32, max_bytes=1 << 20)
        assert got.next_offset > at
        for chunk in got.chunks:
            i = 0
            while i < len(chunk):
                record = decode_record(chunk, i)
                assert (record.topic, record.queue_id) == QUEUE
                found.append(int(record.body.split()[0]))
                i += record.size
        at = got.next_offset
    return found


def overwrite(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def zero_some(root: Path) -> None:
    overwrite(queue_file(root, 0), 10 * ENTRY_BYTES, bytes(7 * ENTRY_BYTES))


def zero_a_whole_file(root: Path) -> None:
    overwrite(queue_file(root, 1), 0, bytes(50 * ENTRY_BYTES))


def point_elsewhere(root: Path) -> None:
    overwrite(queue_file(root, 0), 3 * ENTRY_BYTES, ENTRY.pack(4711, 100, 0) + ENTRY.pack(1 << 40, 1600, 7))


def remove_a_file(root: Path) -> None:
    queue_file(root, 1).unlink()


def remove_all_files(root: Path) -> None:
    for number in range(3):
        queue_file(root, number).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("harm", [zero_some, zero_a_whole_file, point_elsewhere, remove_a_file, remove_all_files])
async def test_entries_damaged_under_a_running_store_are_put_right_before_anything_is_skipped(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        places = await fill(store)
        assert await numbers(store) == list(range(COUNT))
        store._lookup.files.forget(QUEUE)
        store._flusher._files.forget(QUEUE)
        harm(root)
        assert await numbers(store) == list(range(COUNT))
        raw = b"".join(queue_file(root, number).read_bytes() for number in range(3))
        assert [entry[0] for entry in ENTRY.iter_unpack(raw)][:COUNT] == places
        mended = store._parts.queue_repair.mended
        assert mended > 0
        assert await numbers(store) == list(range(COUNT))
        assert store._parts.queue_repair.mended == mended, "the same entries were put right twice"


async def test_a_damaged_record_is_a_gap_for_every_reader_and_is_looked_for_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        places = await fill(store)
        segment = next(s for s in store.segments() if s.base <= places[20] < s.end)
        overwrite(segment.path, places[20] - segment.base + 200, b"\xff")
        wanted = [number for number in range(COUNT) if number != 20]
        await store.read(QUEUE, 20, max_count=1, max_bytes=1)
        assert await numbers(store) == wanted
        assert queue_file(root, 0).read_bytes()[20 * ENTRY_BYTES : 21 * ENTRY_BYTES] == HOLE
        assert store.statistics().damaged_ranges == 1
        assert list((root / "quarantine").iterdir())
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert await numbers(store) == wanted


async def test_two_entries_of_one_batch_that_lead_nowhere_are_both_put_right(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 5) as store:
        places = await fill(store)
        for number in (3, 9, 20):
            overwrite(queue_file(root, 0), number * ENTRY_BYTES, ENTRY.pack(places[number] ^ 64, 1600, 0))
        assert await numbers(store) == list(range(COUNT))
