from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.queues.consume_queue import ENTRY, HOLE, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.record import MessageQueue, decode_record, encode_topic, tags_code
from storage_driver.testing import V1, V2, V3, V4, V5, MemoryDisk

KEY = MessageQueue("T", 3)


@pytest.mark.parametrize(
    ("raw", "entry"),
    [
        (V1, "0000000000000000" + "00000061" + "0000000000000000"),
        (V2, "0000000000000105" + "000000c6" + "000000000027a807"),
        (V3, "0000000040000000" + "000000a8" + "0000000000000000"),
        (V4, "00000000000001f4" + "000000a1" + "0000018bcfe592f8"),
        (V5, "0000000000000064" + "00000073" + "ffffffff80000000"),
    ],
)
def test_entries_are_those_of_java(raw: bytes, entry: str) -> None:
    m = decode_record(raw)
    queue = ConsumeQueue(MessageQueue(m.topic, m.queue_id), encode_topic(m.topic), end=m.queue_offset)
    queue.add(m.queue_offset, m.log_offset, m.size, tags_code(m.topic, m.properties, m.stored_ms))
    assert queue.waiting().hex() == entry


def test_a_hole_is_apaches_blank_entry() -> None:
    assert HOLE.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"
    queue = ConsumeQueue(KEY, b"\1T")
    queue.add(2, 500, 91, 7)
    assert queue.waiting() == HOLE * 2 + ENTRY.pack(500, 91, 7)


def test_a_queue_without_files_begins_in_the_file_that_holds_its_first_number() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    files = QueueFiles(disk, Path("/s"), file_entries=10)
    files.write(KEY, 25, ENTRY.pack(1, 91, 0) * 10, has_files=False)
    assert [f.name for f in disk.list(files.folder(KEY))] == [f"{400:020d}", f"{600:020d}"]
    assert files.read(KEY, 20, 5) == HOLE * 5
    assert files.read(KEY, 28, 5) == ENTRY.pack(1, 91, 0) * 2
    assert files.read(KEY, 35, 1) == bytes(20)
    assert files.read(KEY, 99, 1) == b""


def test_few_files_are_open_at_a_time() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    files = QueueFiles(disk, Path("/s"), file_entries=10, most_open=3)
    for number in range(20):
        files.write(MessageQueue("T", number), 0, ENTRY.pack(number, 91, 0), has_files=False)
        assert len(files._open) <= 3
    assert [files.read(MessageQueue("T", n), 0, 1) for n in range(20)] == [ENTRY.pack(n, 91, 0) for n in range(20)]
    files.forget(MessageQueue("T", 19))
    assert files.read_open(MessageQueue("T", 19), 0, 1) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_memory_and_file_together_are_the_queue(steps: list[tuple[int, bool]]) -> None:
    """Against a list: every number has its entry or a hole, whatever was written when."""
    disk = MemoryDisk(folders=("/", "/s"))
    files = QueueFiles(disk, Path("/s"), file_entries=7)
    queue, model = ConsumeQueue(KEY, b"\1T"), [b""] * 0
    for log_offset, (skip, write) in enumerate(steps):
        queue.add(len(model) + skip, log_offset, 91, 5)
        model += [HOLE] * skip + [ENTRY.pack(log_offset, 91, 5)]
        if write:
            entries = queue.waiting()
            files.write(KEY, queue.written, entries, has_files=queue.first_file is not None)
            queue.first_file = 0
            queue.wrote(len(entries) // 20)
        for number, entry in enumerate(model):
            held = queue.held(number, 1)
            assert (held if held is not None else files.read(KEY, number, 1)) == entry
    assert (queue.visible, HOLE_SIZE) == (len(model), 0x7FFFFFFF)
