"""What leaves with the log's oldest file, and what a start finds afterwards."""

import errno
import os
import random
from functools import partial
from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import LogFailed
from storage_driver.files.disk import RealDisk
from storage_driver.index.index_file import IndexSize
from storage_driver.queues.consume_queue import ENTRY_BYTES
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.store import open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, deterministic
from tests.power_cut.harness import config as small
from tests.waiting import until

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root,
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=20,
        index_size=IndexSize(50, 60),
    )


async def test_of_a_topic_that_ended_at_a_log_offset_queues_with_later_messages_stay(tmp_path: Path) -> None:
    settings = config(tmp_path / "store")
    async with open_store(settings, now_ms=lambda: 1) as store:

        def put(queue_id: int) -> int:
            return store.put(Message("T", queue_id, b"x", b"", 0, 0, 1, HOST)).end

        at = [put(queue_id) for queue_id in (0, 1, 2)][-1]
        await store.wait_committed(put(1))
        store.share(lambda log_offset: None)
        put(2)  # on its way
        await store.delete_ended("T", 0)
        assert store.queues("T") == [0, 1, 2]
        await store.delete_ended("T", at)
        assert store.queues("T") == [1, 2]
        assert not (settings.root / "consumequeue" / "T" / "0").exists()
        store.commit_alone()
        await store.wait_committed(store.end)
        await store.delete_ended("T", store.end)
        assert store.queues("T") == []
        assert not (settings.root / "consumequeue" / "T").exists()
    async with open_store(settings, now_ms=lambda: 1) as store:
        assert (store.verdict.verdict, store.queues("T")) == ("clean", [])


async def test_a_box_proves_its_disk_while_a_deletion_waits_for_other_disks(tmp_path: Path) -> None:
    async with open_store(config(tmp_path / "store"), now_ms=lambda: 1) as store, trio.open_nursery() as nursery:
        await store.wait_committed(store.put(Message("T", 0, b"x", b"", 0, 0, 1, HOST)).end)
        store.share(lambda log_offset: None)
        end = store.put(Message("U", 0, b"x", b"", 0, 0, 1, HOST)).end
        nursery.start_soon(store.delete_topic, "T")
        await until(lambda: store.queues("T") == [])
        with trio.fail_after(30):
            await store.prove()
        await until(lambda: store.synced == end)
        store.commit(end)


async def test_queue_and_index_files_leave_with_the_log_and_a_restart_misses_none(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = config(root)

    def files(folder: str) -> list[str]:
        return sorted(path.name for path in (root / folder).iterdir())

    async with open_store(settings, now_ms=lambda: 5) as store:
        for number in range(120):
            properties = encode_properties({"UNIQ_KEY": f"k{number}"})
            placed = store.put(Message("T", 0, b"%d" % number + bytes(9_000), properties, 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        await store.prove()
        assert (len(files("consumequeue/T/0")), len(files("index"))) == (6, 3)
        while len(store.segments()) > 2:
            await store.drop_first()
        low = store.min_offset(QUEUE)
        assert 80 < low < 120
        assert files("consumequeue/T/0")[0] == f"{low // 20 * 20 * ENTRY_BYTES:020d}"
        assert len(files("index")) == 2
        kept = (await store.read(QUEUE, low, max_count=99, max_bytes=1 << 24)).chunks
        assert len(await store.find_by_key("T", "k119", 9, 0, 9)) == 1
    async with open_store(settings, now_ms=lambda: 5) as store:
        assert store.verdict.verdict == "clean"
        assert (store.min_offset(QUEUE), store.max_offset(QUEUE)) == (low, 120)
        assert b"".join((await store.read(QUEUE, low, max_count=99, max_bytes=1 << 24)).chunks) == b"".join(kept)


class Stubborn(RealDisk):
    """A disk that keeps one file."""

    kept = Path()

    def remove(self, path: Path) -> None:
        if path == self.kept:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        super().remove(path)


async def test_while_the_oldest_file_cannot_be_removed_none_behind_it_goes(tmp_path: Path) -> None:
    disk, settings = Stubborn(), config(tmp_path / "store")
    async with open_store(settings, now_ms=lambda: 5, disk=disk) as store:
        for number in range(40):
            placed = store.put(Message("T", 0, b"%d" % number + bytes(9_000), b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        disk.kept, before = store.segments()[0].path, store.segments()
        assert len(before) > 2
        for _ in range(2):
            with pytest.raises(PermissionError):
                await store.drop_first()
        assert store.segments() == before
    async with open_store(settings, now_ms=lambda: 5) as store:
        assert (store.verdict.verdict, store.min_offset(QUEUE), store.max_offset(QUEUE)) == ("clean", 0, 40)
        assert await store.drop_first()
        assert store.first == before[1].base


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_entries_that_wait_for_a_sync_are_not_forgotten_when_the_queues_oldest_file_goes(seed: int) -> None:
    """The power fails right after the deletion: the position must not have gone past entries nobody synced."""
    disk, bodies = MemoryDisk(folders=FOLDERS), list[bytes]()
    deterministic(partial(_fill_and_drop, disk, bodies), seed)
    deterministic(partial(_compare, disk.after_power_cut(random.Random(seed)), bodies), seed)


async def _fill_and_drop(disk: MemoryDisk, bodies: list[bytes]) -> None:
    async with open_store(small(), now_ms=lambda: 5, disk=disk) as store:
        for number in range(130):
            body = b"%d " % number + bytes(1_500)
            bodies.append(body)
            await store.wait_committed(store.put(Message("T", 0, body, b"", 0, 0, 1, HOST)).end)
            if number == 127:
                await store.prove()
        await trio.sleep(0.25)  # the last two entries are in the file and not synced
        assert await store.drop_first()


async def _compare(disk: MemoryDisk, bodies: list[bytes]) -> None:
    async with open_store(small(), now_ms=lambda: 5, disk=disk) as store:
        assert store.max_offset(QUEUE) == len(bodies)
        last = await store.read(QUEUE, len(bodies) - 2, max_count=9, max_bytes=1 << 20)
        assert [decode_record(last.chunks[0], at).body for at in (0, len(last.chunks[0]) // 2)] == bodies[-2:]


@pytest.mark.pure
async def test_a_deletion_ends_although_the_full_disk_took_back_what_was_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk(folders=FOLDERS)
    async with open_store(small(), now_ms=lambda: 1, disk=disk) as store:
        message = Message("T", 0, b"x" * 200, b"", 0, 0, 1, HOST)
        placed = store.put(message)
        await store.wait_committed(placed.end)
        name = next(name for name in disk.names if name.endswith(f"/commitlog/{0:020d}"))
        disk.fail_with, disk.ends[disk.names[name]] = errno.ENOSPC, placed.end + 10
        save, save_ends = store._flusher.save, store._flusher.save_ends

        async def save_then_send() -> None:
            await save()
            if not store.truncations:
                store.put(message._replace(topic="U"))

        async def save_ends_late(as_of: int) -> None:
            if store.end > store.committed:
                with pytest.raises(LogFailed, match="write of"):
                    await store.wait_committed(store.end)
            await save_ends(as_of)

        monkeypatch.setattr(store._flusher, "save", save_then_send)
        monkeypatch.setattr(store._flusher, "save_ends", save_ends_late)
        with trio.fail_after(60):
            await store.delete_topic("T")
        assert (store.truncations, store.end, store.committed) == (1, placed.end, placed.end)
        disk.ends.clear()
