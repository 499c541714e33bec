"""Queue files that a recovery writes, cuts and removes: all of it is on stable storage once they are synced."""

import random
from pathlib import Path

from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue, QueueFiles
from storage_driver.record import MessageQueue
from storage_driver.recovery.recovered_files import RecoveredFiles
from storage_driver.testing import MemoryDisk

ROOT, PER_FILE = Path("/data"), 5
KEY = MessageQueue("T", 0)


def disk_with_folder() -> MemoryDisk:
    disk = MemoryDisk(folders=("/", "/data"))
    disk.make_folder(ROOT / "consumequeue")
    disk.sync_folder(ROOT)
    return disk


def entries(first: int, count: int) -> bytes:
    return b"".join(ENTRY.pack(1000 + at, 100, 0) for at in range(first, first + count))


def read(disk: MemoryDisk, count: int) -> bytes:
    files = QueueFiles(disk, ROOT, file_entries=PER_FILE)
    return b"".join(files.read(KEY, at, 1) for at in range(count))


def made(disk: MemoryDisk, count: int) -> tuple[RecoveredFiles, ConsumeQueue]:
    files, queue = RecoveredFiles(disk, ROOT, QueueFiles(disk, ROOT, file_entries=PER_FILE)), ConsumeQueue(KEY, b"T")
    files.write(queue, entries(0, count))
    queue.visible = queue.written = count
    return files, queue


def test_what_was_written_survives_a_power_cut_once_it_is_synced() -> None:
    disk = disk_with_folder()
    files, queue = made(disk, 12)
    assert (files.touched, queue.first_file, files.firsts) == (3, 0, {KEY: []})
    files.sync()
    files.synced()
    assert files.touched == 0
    for seed in range(5):
        assert read(disk.after_power_cut(random.Random(seed)), 12) == entries(0, 12)


def test_entries_behind_the_end_are_zeros_and_files_behind_it_go() -> None:
    disk = disk_with_folder()
    files, queue = made(disk, 12)
    files.firsts[KEY] = [0, 5, 10]
    queue.visible = 7
    files.cut_behind(queue)
    assert files.cut == 1
    assert read(disk, 10) == entries(0, 7) + bytes(3 * ENTRY_BYTES)
    assert [facts.name for facts in disk.list(ROOT / "consumequeue/T/0")] == ["0" * 20, f"{5 * ENTRY_BYTES:020d}"]
    files.firsts[KEY] = [0, 5]
    files.cut_behind(queue)
    assert files.cut == 1, "nothing was left to cut"


def test_a_queue_that_begins_again_has_no_files_and_none_to_sync() -> None:
    disk = disk_with_folder()
    files, _ = made(disk, 12)
    files.remove(KEY)
    assert (files.touched, files.firsts) == (0, {KEY: []})
    assert disk.list(ROOT / "consumequeue/T") == []
