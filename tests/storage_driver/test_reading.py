"""What a read returns for any queue, filter and limits, over entries and a log in memory."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE
from storage_driver.reading import MOST_SCANNED, RUN_BYTES, FoundStatus, ReadRequest, SuspectEntry, collect, edge, fetch
from storage_driver.record import (
    SMALLEST_RECORD,
    TRANSACTION_ROLLBACK,
    Message,
    MessageQueue,
    decode_record,
    encode_host,
    encode_record,
    encode_topic,
)

QUEUE = MessageQueue("T", 0)

HOST = encode_host("127.0.0.1", 10911)
ANY = 1 << 30


def record(number: int, log_offset: int, body_bytes: int = 1, sys_flag: int = 0) -> bytes:
    message = Message("T", 0, bytes(body_bytes), b"", 0, sys_flag, 1, HOST)
    return encode_record(message, encode_topic("T"), number, log_offset, stored_ms=1, store_host=HOST)


class Memory:
    """A queue and its log: `tags` has a code for each message, None for a hole; every message is `body_bytes` long."""

    def __init__(self, tags: Sequence[int | None], body_bytes: int = 1, most_between: int = 0) -> None:
        self.queue, self.bytes, self.most_between = bytearray(), bytearray(), most_between
        self.gone: set[int] = set()  # log offsets that cannot be read
        self.places: list[int] = []
        for number, code in enumerate(tags):
            self.places.append(len(self.bytes))
            if code is None:
                self.queue += HOLE
                continue
            raw = record(number, len(self.bytes), body_bytes)
            self.queue += ENTRY.pack(len(self.bytes), len(raw), code)
            self.bytes += raw
        self.size = len(record(0, 0, body_bytes))

    def entries(self, queue_offset: int, count: int) -> bytes:
        return bytes(self.queue[queue_offset * ENTRY_BYTES : (queue_offset + count) * ENTRY_BYTES])

    def records(self, places: list[tuple[int, int]], total: int) -> bytes | None:
        if any(at <= gone < at + size for at, size in places for gone in self.gone):
            return None
        assert total == sum(size for _, size in places)
        ends = [at + size for at, size in places]
        assert all(0 <= after[0] - end <= self.most_between for end, after in zip(ends, places[1:], strict=False))
        return b"".join(bytes(self.bytes[at : at + size]) for at, size in places)


def numbers(chunks: Sequence[bytes]) -> list[int]:
    found = []
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            each = decode_record(chunk, at)
            found.append(each.queue_offset)
            at += each.size
    return found


@settings(max_examples=25)
@given(
    tags=st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=100),
    max_count=st.integers(-1, 70),
    max_bytes=st.integers(-1, 2000),
    by_tag=st.booleans(),
    every=st.integers(1, 4),
    most_between=st.sampled_from([0, 200, 5000]),
)
def test_reading_on_gives_each_wanted_message_once_in_order_and_within_the_limits(
    tags: list[int | None], max_count: int, max_bytes: int, by_tag: bool, every: int, most_between: int
) -> None:
    source, high, at, found = Memory(tags, most_between=most_between), len(tags), 0, list[int]()
    wanted_numbers = [
        n for n, code in enumerate(tags) if code is not None and not (by_tag and code != 1) and n % every == 0
    ]
    while at < high:
        got = collect(
            source,
            ReadRequest(
                QUEUE,
                at,
                max_count,
                max_bytes,
                (lambda code: code == 1) if by_tag else None,
                (lambda raw: decode_record(raw).queue_offset % every == 0) if every > 1 else None,
            ),
            0,
            high,
        )
        here = numbers(got.chunks)
        assert len(here) == got.records <= max(1, max_count)
        assert got.records <= 1 or sum(map(len, got.chunks)) <= max_bytes
        assert (got.status is FoundStatus.FOUND) == bool(here)
        assert at < got.next_offset <= high, "a consumer that makes no progress asks for ever"
        assert all(at <= n < got.next_offset for n in here)
        found, at = found + here, got.next_offset
    assert found == wanted_numbers


@pytest.mark.parametrize(
    ("at", "low", "high", "status", "goes_on_at"),
    [
        (0, 0, 0, FoundStatus.NO_MESSAGE_IN_QUEUE, 0),
        (7, 0, 0, FoundStatus.NO_MESSAGE_IN_QUEUE, 0),
        (2, 3, 9, FoundStatus.OFFSET_TOO_SMALL, 3),
        (-1, 0, 9, FoundStatus.OFFSET_TOO_SMALL, 0),
        (9, 3, 9, FoundStatus.OFFSET_OVERFLOW_ONE, 9),
        (9, 9, 9, FoundStatus.OFFSET_OVERFLOW_ONE, 9),
        (10, 3, 9, FoundStatus.OFFSET_OVERFLOW_BADLY, 9),
        (1 << 62, 3, 9, FoundStatus.OFFSET_OVERFLOW_BADLY, 9),
    ],
)
def test_an_offset_outside_the_queue_is_told_where_to_go_on(
    at: int, low: int, high: int, status: FoundStatus, goes_on_at: int
) -> None:
    found = edge(ReadRequest(QUEUE, at, 32, ANY), low, high)
    assert found is not None
    assert (found.status, found.next_offset, found.records, found.chunks) == (status, goes_on_at, 0, [])
    assert (found.min_offset, found.max_offset) == (low, high)


@pytest.mark.parametrize("at", [3, 8])
def test_an_offset_within_the_queue_has_no_edge(at: int) -> None:
    assert edge(ReadRequest(QUEUE, at, 32, ANY), 3, 9) is None


def test_a_filter_that_takes_nothing_ends_after_800_entries_or_as_many_as_were_asked_for() -> None:
    source = Memory([0] * 1200)
    for asked, looked_at in ((32, MOST_SCANNED), (1000, 1000)):
        found = collect(source, ReadRequest(QUEUE, 10, asked, ANY, lambda code: False), 0, 1200)
        assert (found.status, found.next_offset) == (FoundStatus.NO_MATCHED, 10 + looked_at)


def test_a_message_above_the_byte_limit_comes_alone() -> None:
    source = Memory([0] * 3, body_bytes=5000)
    found = collect(source, ReadRequest(QUEUE, 0, 32, 100), 0, 3)
    assert (numbers(found.chunks), found.next_offset) == ([0], 1)


def test_neighbours_in_the_log_come_in_one_piece_and_runs_end_at_their_limit() -> None:
    source = Memory([0] * 20, body_bytes=30_000)
    found = collect(source, ReadRequest(QUEUE, 0, 32, ANY), 0, 20)
    assert numbers(found.chunks) == list(range(20))
    assert len(found.chunks) == -(-20 // (RUN_BYTES // source.size))
    assert max(map(len, found.chunks)) <= RUN_BYTES


def test_what_lies_closely_together_in_the_log_comes_in_one_piece() -> None:
    size = Memory([0]).size
    for most_between, pieces in ((0, 10), (size - 1, 10), (size, 1)):
        source = Memory([1, 0] * 10, most_between=most_between)
        found = collect(source, ReadRequest(QUEUE, 0, 32, ANY, lambda code: code == 1), 0, 20)
        assert numbers(found.chunks) == list(range(0, 20, 2))
        assert len(found.chunks) == pieces


@pytest.mark.parametrize("wrong", [ENTRY.pack(0, size, 0) for size in (0, -5, 1, 39, SMALLEST_RECORD - 1)])
def test_an_entry_of_no_record_is_doubted_by_its_number_and_skipped_only_when_told_so(wrong: bytes) -> None:
    source = Memory([0] * 100)
    source.queue[70 * ENTRY_BYTES : 71 * ENTRY_BYTES] = wrong
    with pytest.raises(SuspectEntry) as doubt:
        collect(source, ReadRequest(QUEUE, 60, 32, ANY), 0, 100)
    assert doubt.value.number == 70
    found = collect(source, ReadRequest(QUEUE, 60, 32, ANY), 0, 100, doubt=False)
    assert numbers(found.chunks) == [*range(60, 70), *range(71, 93)]


def test_entries_that_cannot_be_read_are_doubted_and_then_passed_one_by_one() -> None:
    source = Memory([0] * 3)
    with pytest.raises(SuspectEntry) as doubt:
        collect(source, ReadRequest(QUEUE, 3, 32, ANY), 0, 9)
    assert doubt.value.number == 3
    found = collect(source, ReadRequest(QUEUE, 3, 32, ANY), 0, 9, doubt=False)
    assert (found.status, found.next_offset) == (FoundStatus.OFFSET_FOUND_NULL, 4)


def test_a_record_that_is_gone_costs_none_of_its_neighbours() -> None:
    source = Memory([0] * 6)
    source.gone = {source.places[2]}
    with pytest.raises(SuspectEntry) as doubt:
        collect(source, ReadRequest(QUEUE, 0, 32, ANY), 0, 6)
    assert doubt.value.number == 2
    found = collect(source, ReadRequest(QUEUE, 0, 32, ANY), 0, 6, doubt=False)
    assert (numbers(found.chunks), found.next_offset) == ([0, 1, 3, 4, 5], 6)
    source.gone = set(source.places)
    found = collect(source, ReadRequest(QUEUE, 0, 32, ANY), 0, 6, doubt=False)
    assert (found.status, found.next_offset) == (FoundStatus.REMOVING, 6)


def test_bytes_that_are_another_record_or_cover_what_was_lost_are_never_given_out() -> None:
    source, size = Memory([]), len(record(0, 0))
    source.bytes += record(0, 0) + record(1, size, sys_flag=TRANSACTION_ROLLBACK) + record(2, 2 * size)
    chunks, count, missing = fetch(source, [(number * size, size) for number in range(3)], None)
    assert (numbers(chunks), count, missing) == ([0, 2], 2, [size])
    assert fetch(source, [(0, size - 1)], None) == ([], 0, [0])  # the entry has another size
    source.bytes[28:36] = (4711).to_bytes(8, "big")  # says it lies elsewhere
    assert fetch(source, [(0, 92)], None) == ([], 0, [0])
