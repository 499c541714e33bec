"""The newest messages read back from the log."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.publish.recent import recent_messages, records_in
from appliance.testing import small_store
from storage_driver.record import BLANK, MAGIC_BLANK, Message, encode_host, encode_record, encode_topic

HOST = encode_host("127.0.0.1", 1)


def test_records_are_found_in_a_piece_that_begins_in_the_middle_of_one() -> None:
    log, host = b"", encode_host("127.0.0.1", 1)
    for number in range(4):
        message = Message("T", 0, b"%d" % number, b"", 0, 0, 0, host)
        log += encode_record(message, encode_topic("T"), number, len(log), stored_ms=number, store_host=host)
    assert [message.body for message in records_in(log, 0)] == [b"0", b"1", b"2", b"3"]
    assert [message.body for message in records_in(log[10:], 10)] == [b"1", b"2", b"3"]
    assert list(records_in(b"", 0)) == []


def encoded(number: int, log_offset: int, body: bytes = b"") -> bytes:
    message = Message("T", 0, body or b"%d" % number, b"", 0, 0, 0, HOST)
    return encode_record(message, encode_topic("T"), number, log_offset, stored_ms=number, store_host=HOST)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 600))
@settings(max_examples=40)
def test_from_any_place_all_records_that_begin_behind_it_are_found(sizes: list[int], start: int) -> None:
    log, places = b"", []
    for number, size in enumerate(sizes):
        places.append(len(log))
        log += encoded(number, len(log), b"x" * size)
    start = min(start, len(log))
    found = [message.log_offset for message in records_in(log[start:], start)]
    assert found == [place for place in places if place >= start]


def test_a_body_that_holds_an_old_record_is_not_taken_for_one() -> None:
    old = encoded(7, 0)
    first = encoded(0, 0, b"x" * 50 + old + b"y" * 50)
    log = first + encoded(1, len(first))
    assert [message.queue_offset for message in records_in(log[60:], 60)] == [1]


def test_the_end_of_the_log_ends_the_list_whatever_lies_behind_it() -> None:
    log = encoded(0, 0)
    for behind in (b"", b"\0" * 200, BLANK.pack(500, MAGIC_BLANK), encoded(1, len(log))[:50], b"\xff" * 90):
        assert [message.queue_offset for message in records_in(log + behind, 0)] == [0]


async def test_what_is_older_than_asked_or_further_back_than_the_part_read_is_left_out(tmp_path: Path) -> None:
    now = [100]
    async with small_store(tmp_path, now_ms=lambda: now[0]) as small:
        assert recent_messages(small.store, 0) == []
        for now[0] in (100, 200, 300):
            placed = small.store.put(Message("T", 0, b"%d" % now[0], b"", 0, 0, 1, HOST))
        await small.store.wait_committed(placed.end)
        assert [each.body for each in recent_messages(small.store, 0)] == [b"100", b"200", b"300"]
        assert [each.body for each in recent_messages(small.store, 200)] == [b"200", b"300"]
        assert recent_messages(small.store, 301) == []
        assert [each.body for each in recent_messages(small.store, 0, most_bytes=placed.size + 10)] == [b"300"]
        assert recent_messages(small.store, 0, most_bytes=10) == []
