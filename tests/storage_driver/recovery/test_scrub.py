"""The scrub puts queue entries right, and never gives a deleted topic's queue a file again."""

from pathlib import Path

import pytest
import trio
import trio.testing

from storage_driver.config import StoreConfig
from storage_driver.files.disk import Usage
from storage_driver.index.index_file import IndexSize
from storage_driver.log.quarantine import quarantine_range
from storage_driver.log.scan import walk
from storage_driver.log.segment import Segment, segment_name
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE
from storage_driver.record import DispatchEntry, Message, MessageQueue, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
QUEUE_FILE = Path("consumequeue/T/0") / f"{0:020d}"


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root,
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=100,
        index_size=IndexSize(50, 200),
        scrub_mib_per_h=0,
    )


async def put(store: MessageStore, count: int) -> list[int]:
    """Append messages to the queue, return their log offsets once everything is in the files."""
    placed = [
        store.put(Message("T", 0, b"%d" % number, encode_properties({"UNIQ_KEY": f"U{number}"}), 0, 0, 1, HOST))
        for number in range(count)
    ]
    await store.wait_committed(placed[-1].end)
    await store.prove()
    return [place.log_offset for place in placed]


def records(store: MessageStore) -> list[DispatchEntry]:
    return [item for item in walk(store._log.segments[0], 0) if isinstance(item, DispatchEntry)]


def entry(root: Path, number: int) -> tuple[int, int, int]:
    raw = (root / QUEUE_FILE).read_bytes()[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES]
    return ENTRY.unpack(raw)


def spoil(root: Path, number: int, raw: bytes) -> None:
    with (root / QUEUE_FILE).open("r+b") as file:
        file.seek(number * ENTRY_BYTES)
        file.write(raw)


async def test_a_queue_deleted_while_the_scrub_waits_gets_no_old_entry_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await put(store, 9)
        old = records(store)
        async with trio.open_nursery() as nursery, store._flusher.guard:  # as a round under way holds it
            nursery.start_soon(store.delete_topic, "T")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(store._flusher.heal, old)
            await trio.testing.wait_all_tasks_blocked()
        assert not (root / QUEUE_FILE).exists()
        await put(store, 8)
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert store.max_offset(QUEUE) == 8, "entry 8 of the deleted topic came back behind the new ones"


async def test_files_that_left_with_the_log_while_the_scrub_waited_do_not_come_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await put(store, 1500)
        old = records(store)
        assert await store.drop_first()
        kept = sorted(path.name for path in (root / QUEUE_FILE).parent.iterdir())
        assert kept[0] != Path(QUEUE_FILE).name
        await store._flusher.heal(old)
        assert not await store._flusher.replace(store._queues[QUEUE], 0, HOLE)
        assert sorted(path.name for path in (root / QUEUE_FILE).parent.iterdir()) == kept


async def test_a_record_of_a_deleted_topic_does_not_fill_a_hole_of_the_new_one(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await put(store, 9)
        old = records(store)
        await store.delete_topic("T")
        await put(store, 9)
        spoil(root, 8, HOLE)
        assert await store._flusher.heal(old[8:9]) == 0
        assert entry(root, 8) == ENTRY.unpack(HOLE)


async def test_an_entry_that_points_nowhere_is_put_right(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        places = await put(store, 5)
        spoil(root, 3, ENTRY.pack(17, 100, 0))
        await store.check_all()
        assert entry(root, 3)[0] == places[3]
        assert [entry(root, number)[0] for number in range(5)] == places


async def test_a_read_that_ends_after_the_deletion_leaves_no_old_file_open(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await put(store, 9)
        threads = store._lookup._threads
        async with trio.open_nursery() as nursery:
            for _ in range(int(threads.total_tokens)):
                await threads.acquire_on_behalf_of(object())
            held = list(threads.statistics().borrowers)
            nursery.start_soon(lambda: store.read(QUEUE, 0, max_count=32, max_bytes=1 << 20))
            await trio.testing.wait_all_tasks_blocked()
            source = store._lookup.files
            for borrower in held:
                threads.release_on_behalf_of(borrower)
            await store.delete_topic("T")
        assert not [name for name in source._open if name[0] == QUEUE]


async def test_a_small_log_is_read_once_an_hour_and_not_again_and_again(tmp_path: Path) -> None:
    async with open_store(config(tmp_path / "store")._replace(scrub_mib_per_h=1024), now_ms=lambda: 1) as store:
        await put(store, 20)
        scrub = store._maintenance.scrub
        await scrub.round(10)
        checked = scrub.checked_bytes
        assert checked >= store.committed
        for _ in range(300):
            await scrub.round(10)
        assert scrub.checked_bytes == checked
        await scrub.round(1000)
        assert scrub.checked_bytes > checked


async def test_a_large_log_is_read_within_a_week_however_slow_the_pace(tmp_path: Path) -> None:
    async with open_store(config(tmp_path / "store")._replace(scrub_mib_per_h=0), now_ms=lambda: 1) as store:
        await put(store, 20)
        scrub = store._maintenance.scrub
        assert scrub.pace == pytest.approx(store.synced / (6 * 86_400))
        assert store.statistics().scrub_left_s <= 6 * 86_400
        for _ in range(2):  # the end is seen in the round behind it
            await scrub.round(6 * 86_400)
        seen = store.statistics()
        assert seen.scrub_passes in (1, 2), "the store's own round may come in between"
        assert seen.scrub_left_s == 0.0


@pytest.mark.slow
async def test_the_scrub_goes_on_in_its_segment_after_a_restart(tmp_path: Path) -> None:
    settings = config(tmp_path / "store")
    async with open_store(settings, now_ms=lambda: 1) as store:
        while len(store._log.segments) < 3:
            await put(store, 20)
        scrub, second = store._maintenance.scrub, store._log.segments[1].base
        scrub.at = second + 100
        await store._maintenance._scrubbed.write({"segment": scrub.segment_base})
    async with open_store(settings, now_ms=lambda: 1) as store:
        assert store._maintenance.scrub.at == second
        await store._maintenance._scrubbed.write({"segment": second + 7})
    async with open_store(settings, now_ms=lambda: 1) as store:
        assert store._maintenance.scrub.at == 0


def test_the_quarantine_gives_up_its_oldest_bytes_and_keeps_to_five_percent() -> None:
    disk = MemoryDisk({"/d/commitlog/00000000000000000000": b"x" * 4000}, folders=("/", "/d", "/d/commitlog"))
    path = Path("/d/commitlog") / segment_name(0)
    segment = Segment(0, 4000, path, disk.open(path))
    disk.space = Usage(1_000, 19_000)
    names = [quarantine_range(disk, segment, start, start + 400) for start in (0, 1000, 2000)]
    assert {facts.name for facts in disk.list(Path("/d/quarantine"))} == set(names[1:])
    with pytest.raises(OSError, match="may hold 1000"):
        quarantine_range(disk, segment, 0, 2000)
