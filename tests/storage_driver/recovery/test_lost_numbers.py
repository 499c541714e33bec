"""What a recovery counts as lost: numbers of queues whose messages lay in a lost range, by what the queue files say."""

from pathlib import Path

import pytest

from storage_driver.queues.consume_queue import ENTRY, HOLE, ConsumeQueue, QueueFiles
from storage_driver.record import SMALLEST_RECORD, DispatchEntry, MessageQueue
from storage_driver.recovery import lost_numbers
from storage_driver.recovery.lost_numbers import LostNumbers
from storage_driver.recovery.recovered_files import RecoveredFiles
from storage_driver.testing import MemoryDisk

ROOT, KEY, SIZE = Path("/data"), MessageQueue("T", 0), 100


def entry(log_offset: int, size: int = SIZE) -> bytes:
    return ENTRY.pack(log_offset, size, 0)


def counted(entries: bytes, *lost: tuple[int, int], end: int = 0) -> tuple[LostNumbers, ConsumeQueue]:
    """Return the count over a queue whose files hold these entries and whose log was scanned up to number `end`."""
    disk = MemoryDisk(folders=("/", "/data"))
    disk.make_folder(ROOT / "consumequeue")
    files, queue = QueueFiles(disk, ROOT, file_entries=7), ConsumeQueue(KEY, b"T")
    if entries:
        RecoveredFiles(disk, ROOT, files).write(queue, entries)
    queue.visible = queue.next_offset = end
    numbers = LostNumbers(files)
    numbers.ranges += lost
    return numbers, queue


def record(queue_offset: int, log_offset: int) -> DispatchEntry:
    return DispatchEntry(log_offset, SIZE, KEY.topic, KEY.queue_id, queue_offset, 0, 0, b"")


def test_a_log_offset_is_lost_from_the_begin_of_a_range_up_to_its_end() -> None:
    numbers, _ = counted(b"", (100, 200), (500, 501))
    assert [numbers.has(at) for at in (99, 100, 199, 200, 499, 500, 501)] == [
        False,
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_nothing_is_counted_while_nothing_of_the_log_is_lost() -> None:
    numbers, _ = counted(b"")
    numbers.add(KEY, 5)
    assert numbers.counts == {}
    numbers.ranges.append((0, 10))
    numbers.add(KEY, 5)
    numbers.add(KEY, 2)
    numbers.add(MessageQueue("T", 1), 0)
    assert numbers.counts == {KEY: 7}


def test_numbers_between_a_queues_end_and_its_next_record_are_lost_but_for_holes_and_those_elsewhere() -> None:
    rows = entry(0) + entry(1000) + HOLE + entry(1200) + entry(9000)
    numbers, queue = counted(rows, (1000, 2000), end=1)
    queue.last_log_offset = 0
    numbers.gap(queue, record(5, 3000))
    assert numbers.counts == {KEY: 2}, "1000 and 1200; the hole was told before, 9000 lies in no lost range"


def test_without_files_every_number_of_a_gap_is_lost() -> None:
    numbers, queue = counted(b"", (1000, 2000), end=1)
    queue.last_log_offset = 0
    numbers.gap(queue, record(5, 3000), has_files=False)
    assert numbers.counts == {KEY: 4}


def test_a_gap_that_no_lost_range_explains_counts_nothing() -> None:
    numbers, queue = counted(b"", (4000, 5000), end=1)
    queue.last_log_offset = 0
    numbers.gap(queue, record(5, 3000), has_files=False)
    assert numbers.counts == {}


def test_what_left_with_the_old_end_of_the_log_is_not_lost() -> None:
    numbers, queue = counted(bytes(20) * 3 + entry(1000), (0, 2000))
    numbers.gap(queue, record(4, 3000))  # its first record: blanks before it stand for what was deleted
    assert numbers.counts == {KEY: 1}


def test_entries_behind_a_queues_end_tell_how_far_the_log_went() -> None:
    rows = entry(0) + entry(100) + HOLE + entry(300) + bytes(20) + entry(700)
    numbers, queue = counted(rows, end=1)
    assert numbers.beyond(queue, 100, 10_000) == (100, 300 + SIZE, 2), "up to the first blank, without the hole"


@pytest.mark.parametrize(
    "rows",
    [entry(300) + entry(100), entry(100) + entry(150), entry(100, SMALLEST_RECORD - 1), entry(50), entry(20_000)],
)
def test_entries_that_nobody_wrote_in_this_order_tell_nothing(rows: bytes) -> None:
    numbers, queue = counted(rows)
    assert numbers.beyond(queue, 100, 10_000) == (10_000, 100, 0)


def test_all_entries_of_a_queue_in_a_lost_range_are_counted_below_a_log_offset() -> None:
    rows = b"".join(entry(at * SIZE) for at in range(4)) + HOLE + b"".join(entry(at * SIZE) for at in range(4, 10))
    for below, lost in ((1 << 63, 6), (600, 4), (300, 1)):
        numbers, queue = counted(rows, (200, 800), end=11)
        numbers.whole(queue, below)
        assert numbers.counts == {KEY: lost}, below


def test_a_queue_without_files_has_no_entries_to_count() -> None:
    numbers, queue = counted(b"", (0, 1000))
    numbers.whole(queue)
    assert numbers.counts == {}


def test_long_queues_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_numbers, "AT_ONCE", 3)  # files of 7 entries: parts end in the middle of them
    numbers, queue = counted(b"".join(entry(at * SIZE) for at in range(20)), (0, 1 << 40), end=20)
    numbers.whole(queue)
    assert numbers.counts == {KEY: 20}
