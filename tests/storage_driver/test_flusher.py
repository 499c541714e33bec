"""Rounds of the tables, asked for by somebody who does not wait for their end."""

import errno
import random
import threading
from copy import deepcopy
from pathlib import Path

import pytest
import trio

from storage_driver.files.checkpoint import PositionFile
from storage_driver.index.index_file import IndexSize
from storage_driver.record import Message, encode_properties
from storage_driver.restart_position import INDEX_BEHIND
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import DiskStep, MemoryDisk
from tests.power_cut.harness import FOLDERS, HOST, config

SETTINGS = config(position_every_bytes=1, flush_every_s=600.0)


@pytest.mark.slow
async def test_a_failed_sync_makes_the_next_start_distrust_the_index_although_who_asked_has_hung_up() -> None:
    disk, begun, may_fail = MemoryDisk(folders=FOLDERS), threading.Event(), threading.Event()

    def fail(step: DiskStep) -> None:
        if step.kind == "sync" and step.inode in {disk.names[name] for name in disk.names if "/index/" in name}:
            begun.set()
            may_fail.wait(30)
            raise OSError(errno.EIO, "no")

    async def search(scope: trio.CancelScope) -> None:
        with scope:
            await store.find_by_key("T", "k", 9, 0, 1 << 62)

    async with open_store(SETTINGS, now_ms=lambda: 1, disk=disk) as store:
        placed = store.put(Message("T", 0, b"x", encode_properties({"KEYS": "k"}), 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        disk.before = fail
        async with trio.open_nursery() as nursery:
            asker = trio.CancelScope()
            nursery.start_soon(search, asker)
            await trio.to_thread.run_sync(begun.wait, 30)
            asker.cancel()
            may_fail.set()
        position = PositionFile(disk, SETTINGS.root / "rocketbox" / "position").load()
    assert position is not None
    assert position.boot == bytes(16)


@pytest.mark.parametrize("cut", [False, True])
async def test_under_load_the_index_is_synced_less_often_than_the_queues_and_loses_nothing_by_it(cut: bool) -> None:
    disk, size = MemoryDisk(folders=FOLDERS), 0
    async with open_store(config(flush_every_s=600.0, position_every_bytes=100), now_ms=lambda: 1, disk=disk) as store:
        flusher = store._flusher
        positions = []
        for number in range(20):
            placed = store.put(Message("T", 0, b"x" * 100, encode_properties({"KEYS": f"k{number:02}"}), 0, 0, 1, HOST))
            await store.wait_committed(placed.end)
            size = size or placed.end
            async with flusher.guard:
                await flusher.round(index=True)
            positions.append(flusher.restart.values)
        left = disk.after_power_cut(random.Random(7)) if cut else disk.copy()
    assert [position.queues_to for position in positions] == [number * size for number in range(1, 21)]
    behind = [(position.queues_to - position.index_to) // size for position in positions]
    assert max(behind) > 0, "not with every position of the queues"
    assert max(behind) * size <= INDEX_BEHIND * 100 + size
    async with open_store(SETTINGS, now_ms=lambda: 1, disk=left) as store:
        await store.prove()
        for number in range(20):
            assert len(await store.find_by_key("T", f"k{number:02}", 9, 0, 1 << 62)) == 1


async def put_keys(store: MessageStore, numbers: range, *, save: bool = False) -> None:
    """Send a message with each key, all indexed in one round."""
    for number in numbers:
        placed = store.put(Message("T", 0, b"x" * 100, encode_properties({"KEYS": f"k{number:02}"}), 0, 0, 1, HOST))
    await store.wait_committed(placed.end)
    async with store._flusher.guard:
        await store._flusher.round(index=True, save=save)


async def lacking(store: MessageStore, count: int) -> list[int]:
    """Return the keys of the first messages that are not found."""
    await store.prove()
    return [at for at in range(count) if len(await store.find_by_key("T", f"k{at:02}", 9, 0, 1 << 62)) != 1]


@pytest.mark.parametrize("seed", range(8))
async def test_a_power_cut_after_a_kill_leaves_no_unit_that_was_counted_and_never_synced(seed: int) -> None:
    settings, disk = config(flush_every_s=600.0, index_size=IndexSize(3, 1000)), MemoryDisk(folders=FOLDERS)
    async with open_store(settings, now_ms=lambda: 1, disk=disk) as store:
        await put_keys(store, range(20), save=True)
        await put_keys(store, range(20, 40))
        killed = deepcopy(disk)
    async with open_store(settings, now_ms=lambda: 1, disk=killed) as store:
        left = killed.after_power_cut(random.Random(seed))
    async with open_store(settings, now_ms=lambda: 1, disk=left) as store:
        assert await lacking(store, 40) == []


async def test_keys_of_a_lost_index_file_come_again_from_the_log() -> None:
    settings, disk = config(flush_every_s=600.0, index_size=IndexSize(40, 20)), MemoryDisk(folders=FOLDERS)
    async with open_store(settings, now_ms=lambda: 1, disk=disk) as store:
        await put_keys(store, range(30), save=True)
        left = deepcopy(disk)
    files = [Path(name) for name in sorted(left.names) if "/index/" in name]
    assert len(files) == 2
    left.remove(files[1])
    async with open_store(settings, now_ms=lambda: 1, disk=left) as store:
        assert await lacking(store, 30) == []
