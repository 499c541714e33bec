"""Slices end between records; a large record goes in pieces of 32 KiB, and a position within one is recognised."""

import random
from collections.abc import Callable

import pytest

from appliance.replication.slicing import READ_BYTES, Cut, cut, open_record
from netstack.wire.replication import SLICE_BYTES, SliceDecoder
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, Message, encode_host, encode_record, encode_topic

HOST = encode_host("127.0.0.1", 10911)


def record(log_offset: int, size: int) -> bytes:
    """Return a record with a body of so many bytes."""
    message = Message("T", 0, b"x" * size, b"", 0, 0, 1, HOST)
    return encode_record(message, encode_topic("T"), 0, log_offset, stored_ms=1, store_host=HOST)


def log_of(sizes: list[int], blank: int = 0) -> tuple[bytes, list[int]]:
    """Return a log of records with bodies of these sizes, and where each begins; a blank may follow."""
    data, starts = b"", list[int]()
    for size in sizes:
        starts.append(len(data))
        data += record(len(data), size)
    starts.append(len(data))
    if blank:
        data += BLANK.pack(blank, MAGIC_BLANK) + bytes(blank - BLANK_BYTES)
    return data, starts


def reading(data: bytes) -> Callable[[int, int], bytes]:
    return lambda at, count: data[at : at + count] if at >= 0 else b""


def sent(data: bytes, start: int = 0, open_to: int = 0) -> tuple[bytes, list[int]]:
    """Return all that a slave gets, and the log offsets at which slices begin."""
    slices, copy, begins, at = SliceDecoder(), b"", list[int](), start
    while at < len(data):
        done: Cut = cut(at, data[at : at + READ_BYTES], open_to)
        found = slices.feed(done.frames)
        assert done.slices == len(found)
        for each in found:
            assert (each.log_offset, len(each.data) <= SLICE_BYTES) == (start + len(copy), True)
            begins.append(each.log_offset)
            copy += each.data
        assert done.end == start + len(copy) > at
        at, open_to = done.end, done.open_to
    return copy, begins


def test_small_records_share_slices_that_end_between_them() -> None:
    data, starts = log_of([1000] * 200)
    copy, begins = sent(data)
    assert copy == data
    assert set(begins) <= set(starts)
    assert len(begins) == -(-200 // (SLICE_BYTES // len(record(0, 1000))))


def test_a_large_record_goes_in_slices_from_its_beginning() -> None:
    data, starts = log_of([10, 100_000, 10])
    copy, begins = sent(data)
    assert copy == data
    large = starts[1]
    assert begins == [0, large, large + SLICE_BYTES, large + 2 * SLICE_BYTES, large + 3 * SLICE_BYTES, starts[2]]


def test_a_record_larger_than_a_read_goes_on_where_it_was() -> None:
    data, starts = log_of([5, 3 * READ_BYTES, 5, 5])
    copy, begins = sent(data)
    assert copy == data
    inside = [at for at in begins if starts[1] <= at < starts[2]]
    assert all((at - starts[1]) % SLICE_BYTES == 0 for at in inside)


def test_any_log_arrives_as_it_is_from_any_slice_on() -> None:
    for seed in range(15):
        dice = random.Random(seed)
        sizes = [dice.choice([1, 50, 900, 31_000, 33_000, 70_000, 300_000]) for _ in range(dice.randint(1, 40))]
        data, _ = log_of(sizes, dice.choice([0, 8, 5000, 90_000]))
        copy, begins = sent(data)
        assert copy == data, seed
        for begin in dice.sample(begins, min(5, len(begins))):
            open_to = open_record(reading(data), begin)
            assert open_to is not None, (seed, begin)
            again, later = sent(data, begin, open_to)
            assert again == data[begin:], seed
            assert None not in [open_record(reading(data), at) for at in later], seed


def test_a_damaged_record_is_sent_as_it_lies_there() -> None:
    data, starts = log_of([1000] * 100)
    broken = data[: starts[50]] + b"\xff" * 40 + data[starts[50] + 40 :]
    copy, _ = sent(broken)
    assert copy == broken


@pytest.mark.parametrize("off", [1, 17, -3])
def test_a_position_where_no_record_begins_belongs_to_another_log(off: int) -> None:
    data, starts = log_of([1000] * 100 + [100_000] + [10])
    read = reading(data)
    assert open_record(read, starts[40]) == starts[40]
    assert open_record(read, starts[40] + off) is None
    inside = starts[100] + 2 * SLICE_BYTES
    assert open_record(read, inside) == starts[101]
    assert open_record(read, inside + off) is None


def test_a_blank_is_a_place_to_stand() -> None:
    data, starts = log_of([10], 70_000)
    assert open_record(reading(data), starts[1]) == starts[1]
    assert open_record(reading(data), starts[1] + SLICE_BYTES) == len(data)


def test_a_record_of_another_log_offset_is_none_of_this_log() -> None:
    data, starts = log_of([10, 10])
    moved = bytes(SLICE_BYTES) + data
    assert open_record(reading(moved), SLICE_BYTES + starts[1]) is None
