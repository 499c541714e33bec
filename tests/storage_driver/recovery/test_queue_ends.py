"""Where the files of a queue end below a log offset: found by its entries, confirmed by the records of a real log."""

from storage_driver.queues.consume_queue import ENTRY, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.record import Message, MessageQueue
from storage_driver.recovery.queue_ends import QueueEnds
from storage_driver.store import open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, HOST, config

PER_FILE = 10
KEY = MessageQueue("T", 0)
SETTINGS = config(queue_file_entries=PER_FILE)


async def filled(disk: MemoryDisk, count: int) -> tuple[QueueEnds, QueueFiles, list[int]]:
    """Return the look at a store with so many messages in one queue, its files and where the messages lie."""
    places = []
    async with open_store(SETTINGS, now_ms=lambda: 5, disk=disk) as store:
        for _ in range(count):
            placed = store.put(Message(*KEY, bytes(200), b"", 0, 0, 1, HOST))
            places.append(placed.log_offset)
        await store.wait_committed(placed.end)
        await store.prove()
        segments = tuple(store._log.segments)
    files = QueueFiles(disk, SETTINGS.root, file_entries=PER_FILE)
    return QueueEnds(disk, files, segments), files, places


async def test_the_end_is_behind_the_last_entry_below_the_start_whatever_was_noted() -> None:
    ends, _, places = await filled(MemoryDisk(folders=FOLDERS), 25)
    for hint in (-1, 17, 18, 25):
        queue = ConsumeQueue(KEY, b"T")
        ends.begin(places[18], [])
        firsts, problem = ends.files_of(KEY, -1)
        assert (firsts, problem, ends.whole_log) == ([0, 10, 20], None, False)
        assert ends.find(queue, firsts, hint) is None
        assert (queue.visible, queue.written, queue.next_offset, queue.last_log_offset) == (18, 18, 18, places[17])


async def test_an_entry_that_points_at_another_record_is_told_unless_the_range_was_lost() -> None:
    ends, files, places = await filled(MemoryDisk(folders=FOLDERS), 25)
    files.write(KEY, 24, ENTRY.pack(places[24] + 8, 300, 0), has_files=True)
    ends.begin(1 << 40, [])
    assert ends.find(ConsumeQueue(KEY, b"T"), [0, 10, 20], -1) == "entry 24 points to no record of it"
    files.write(KEY, 24, ENTRY.pack(places[23], 300, 0), has_files=True)
    assert ends.find(ConsumeQueue(KEY, b"T"), [0, 10, 20], -1) == "entry 24 points to no record of it"
    files.write(KEY, 24, ENTRY.pack(places[24] + 8, 300, 0), has_files=True)
    ends.begin(1 << 40, [(places[24], places[24] + 100)])
    assert ends.find(ConsumeQueue(KEY, b"T"), [0, 10, 20], -1) is None


async def test_holes_below_the_noted_end_count_and_entries_may_reach_it_by_holes() -> None:
    ends, files, places = await filled(MemoryDisk(folders=FOLDERS), 25)
    files.write(KEY, 25, ENTRY.pack(places[24], HOLE_SIZE, 0), has_files=True)
    queue = ConsumeQueue(KEY, b"T", first_file=0)
    queue.visible = 25
    assert ends.reaches(queue, 26)
    assert not ends.reaches(queue, 27)
    assert ends.entry(KEY, 25) == (places[24], HOLE_SIZE, 0)
    assert ends.entry(KEY, 26) == (0, 0, 0)


async def test_a_file_of_another_size_or_name_or_a_missing_one_is_told_and_an_empty_one_made_whole() -> None:
    disk = MemoryDisk(folders=FOLDERS)
    ends, files, _ = await filled(disk, 25)
    disk.open(files.path(KEY, 30), create=True)
    assert ends.files_of(KEY, 29)[0] == [0, 10, 20, 30], "one that had just been made"
    disk.open(files.path(KEY, 40), create=True)
    _, problem = ends.files_of(KEY, 41)
    assert problem is not None
    assert problem.endswith("has 0 bytes, expected 200")
    disk.remove(files.path(KEY, 40))
    disk.remove(files.path(KEY, 10))
    assert ends.files_of(KEY, 25) == ([], "a file is missing")
    disk.open(files.folder(KEY) / "notes", create=True)
    assert ends.files_of(KEY, 25) == ([], "foreign file notes")
