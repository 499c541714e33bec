"""Searches in a queue against their plain definitions; records read from segments whatever lies in them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.log.segment import Segment, segment_name
from storage_driver.queues.consume_queue import ENTRY, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.reader import (
    ColdSource,
    first_from,
    lowest,
    nearest,
    read_log,
    read_record,
    segment_at,
)
from storage_driver.record import BLANK, MAGIC_BLANK, Message, MessageQueue, encode_host, encode_record, encode_topic
from storage_driver.testing import MemoryDisk

HOST = encode_host("127.0.0.1", 10911)
ROOT = Path("/store")
SIZE = 4096


def record(log_offset: int, body: bytes = b"hello", stored_ms: int = 7) -> bytes:
    message = Message("T", 0, body, b"", 0, 0, 1, HOST)
    return encode_record(message, encode_topic("T"), 0, log_offset, stored_ms=stored_ms, store_host=HOST)


def segments_of(disk: MemoryDisk, *bases: int) -> list[Segment]:
    found = []
    for base in bases:
        path = ROOT / "commitlog" / segment_name(base)
        file = disk.open(path, create=True)
        file.resize(SIZE)
        found.append(Segment(base, SIZE, path, file))
    return found


def put(segments: Sequence[Segment], log_offset: int, data: bytes) -> None:
    segment = segment_at(segments, log_offset)
    assert segment is not None
    segment.file.write([data], log_offset - segment.base)


rising = st.lists(st.integers(0, 20), min_size=1, max_size=12).map(sorted)
holes = st.sets(st.integers(0, 11))


@settings(max_examples=60)
@given(times=rising, gaps=holes, time_ms=st.integers(-2, 25))
def test_the_first_message_not_before_a_time_is_found_past_any_holes(
    times: list[int], gaps: set[int], time_ms: int
) -> None:
    real = [n for n in range(len(times)) if n not in gaps]
    after = [n for n in real if times[n] >= time_ms]
    found = first_from(lambda n: None if n in gaps else times[n], 0, len(times), time_ms)
    if after:
        before = [n for n in real if times[n] < time_ms]
        assert (before[-1] if before else -1) < found <= after[0]
    else:
        assert found == len(times)


@settings(max_examples=60)
@given(times=rising, time_ms=st.integers(-2, 25))
def test_the_nearest_message_is_the_nearest_and_of_two_the_earlier(times: list[int], time_ms: int) -> None:
    found = nearest(times.__getitem__, 0, len(times), time_ms)
    distance = min(abs(each - time_ms) for each in times)
    assert abs(times[found] - time_ms) == distance
    assert times[found] == min(each for each in times if abs(each - time_ms) == distance)


@settings(max_examples=60)
@given(steps=st.lists(st.integers(1, 5), min_size=1, max_size=12), gaps=holes, first=st.integers(-1, 70))
def test_the_lowest_entry_at_or_above_a_log_offset_leads_to_the_right_record(
    steps: list[int], gaps: set[int], first: int
) -> None:
    places = [sum(steps[:n]) for n in range(len(steps))]
    entries = [(0, HOLE_SIZE) if n in gaps else (place, 1) for n, place in enumerate(places)]
    found = lowest(entries.__getitem__, 0, len(entries), first)
    wanted = next((n for n, place in enumerate(places) if n not in gaps and place >= first), len(entries))
    assert found == wanted


def test_a_log_offset_belongs_to_one_segment_or_to_none() -> None:
    segments = segments_of(MemoryDisk(), SIZE, 2 * SIZE, 4 * SIZE)  # the one at 3 * SIZE is missing

    def bases(*log_offsets: int) -> list[int | None]:
        found = [segment_at(segments, log_offset) for log_offset in log_offsets]
        return [each.base if each is not None else None for each in found]

    assert bases(*range(0, 6 * SIZE, SIZE)) == [None, SIZE, 2 * SIZE, None, 4 * SIZE, None]
    assert bases(SIZE - 1, 2 * SIZE - 1, 3 * SIZE - 1, 5 * SIZE - 1, -1) == [None, SIZE, 2 * SIZE, 4 * SIZE, None]
    assert len(read_log(segments, 2 * SIZE - 10, 100) or b"") == 10, "a read never crosses the segment's end"


def test_a_record_is_read_only_whole_intact_and_below_the_end() -> None:
    segments = segments_of(MemoryDisk(), 0, SIZE)
    raw = record(0)
    put(segments, 0, raw)
    end = len(raw)
    assert read_record(segments, 0, None, end) == raw
    assert read_record(segments, 0, end, end) == raw
    for log_offset, size, below in ((0, end - 1, end), (0, None, 0), (1, None, end), (-1, None, end), (end, None, end)):
        assert read_record(segments, log_offset, size, below) is None
    assert read_record(segments, 5 * SIZE, None, 1 << 40) is None
    put(segments, SIZE - 4, b"\0\0\0\x7f")  # too near to the segment's end for a head
    assert read_record(segments, SIZE - 4, None, 1 << 40) is None


@pytest.mark.parametrize("at", [4, 30, 85, 92])
def test_one_flipped_bit_makes_it_no_record(at: int) -> None:
    segments = segments_of(MemoryDisk(), 0)
    raw = bytearray(record(0))
    raw[at] ^= 0x40
    put(segments, 0, bytes(raw))
    assert read_record(segments, 0, None, SIZE) is None


@pytest.mark.parametrize("size", [0, 8, 90, SIZE + 1, -1, 0x7FFFFFFF, -0x80000000])
def test_a_head_with_an_impossible_size_is_no_record(size: int) -> None:
    segments = segments_of(MemoryDisk(), 0)
    raw = record(0)
    put(segments, 0, BLANK.pack(size, BLANK.unpack_from(raw)[1]) + raw[8:])
    assert read_record(segments, 0, None, SIZE) is None


def test_a_blank_is_no_record() -> None:
    segments = segments_of(MemoryDisk(), 0)
    put(segments, 0, BLANK.pack(SIZE, MAGIC_BLANK))
    assert read_record(segments, 0, None, SIZE) is None


def cold(disk: MemoryDisk, segments: Sequence[Segment], *entries: tuple[int, int, int]) -> ColdSource:
    queue = ConsumeQueue(MessageQueue("T", 0), encode_topic("T"))
    for number, (log_offset, size, code) in enumerate(entries):
        queue.add(number, log_offset, size, code)
    return ColdSource(segments, QueueFiles(disk, ROOT, file_entries=4), queue)


def test_a_run_with_one_bad_body_is_refused_whole_and_only_the_bad_record_is_noted_as_damage() -> None:
    disk = MemoryDisk()
    segments = segments_of(disk, 0)
    size = len(record(0))
    for number in range(3):
        put(segments, number * size, record(number * size))
    put(segments, size + 84, b"X")  # in the body of the second
    source = cold(disk, segments)
    assert source.records([(number * size, size) for number in range(3)], 3 * size) is None
    assert source.damaged == [], "which of the run it is was not asked yet"
    assert [source.records([(number * size, size)], size) is None for number in range(3)] == [False, True, False]
    assert [damage[:2] for damage in source.damaged] == [(size, 2 * size)]
    assert source.last_read == 2 * size


def test_the_store_time_of_a_hole_of_nothing_and_of_what_left_the_log_is_unknown() -> None:
    disk = MemoryDisk()
    segments = segments_of(disk, SIZE)
    raw = record(SIZE, stored_ms=1234)
    put(segments, SIZE, raw)
    source = cold(disk, segments, (SIZE, len(raw), 0), (0, HOLE_SIZE, 0), (0, len(raw), 0), (SIZE, 20, 0))
    assert [source.stored_ms(number) for number in range(5)] == [1234, None, None, None, None]


def test_entries_come_from_memory_behind_those_in_the_file() -> None:
    disk = MemoryDisk()
    key = MessageQueue("T", 0)
    files, queue = QueueFiles(disk, ROOT, file_entries=4), ConsumeQueue(key, encode_topic("T"))
    for number in range(6):
        queue.add(number, 100 * number, 91, number)
    files.write(key, 0, queue.waiting()[: 5 * ENTRY.size], has_files=False)
    queue.wrote(5)
    source = ColdSource([], files, queue)
    codes = [[entry[2] for entry in ENTRY.iter_unpack(source.entries(at, 9))] for at in range(7)]
    assert codes == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3], [4], [5], []]
