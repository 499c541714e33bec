"""Stored messages taken out of what a broker sends, against bytes made by Java."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netstack.client.records import decode_records
from netstack.errors import ProtocolError
from storage_driver.record import decode_record
from storage_driver.testing import V1, V2, V3, V4, V5, V6

RECORD = bytes.fromhex(
    "0000006bdaa320a73610a6860000000100000000000000000000000500000000000003e8000000000000018bcfe568007f0000010000c350"
    "0000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f0154000a54414753015461674102"
)


def test_a_record_made_by_java_is_read() -> None:
    first, second = decode_records(RECORD * 2, "broker")
    assert (first.topic, first.body, first.tags, first.queue_id) == ("T", b"hello", "TagA", 1)
    assert (first.queue_offset, first.log_offset, first.born_ms, first.stored_ms) == (
        5,
        1000,
        1700000000000,
        1700000000001,
    )
    assert first.offset_message_id == first.message_id == "7F00000100002A9F00000000000003E8"
    assert first.queue == ("T", "broker", 1)
    assert second.size == len(RECORD)
    assert "T/broker/1@5" in repr(second)


@pytest.mark.parametrize("cut", [1, 40, 90, 106])
def test_a_record_that_is_cut_off_is_a_protocol_error(cut: int) -> None:
    with pytest.raises(ProtocolError):
        list(decode_records(RECORD + RECORD[:cut]))


def test_a_foreign_magic_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="magic 00000000"):
        list(decode_records(RECORD[:4] + bytes(4) + RECORD[8:]))


@settings(max_examples=50)
@given(st.integers(0, len(RECORD) - 1), st.integers(0, 7), st.integers(0, 2 * len(RECORD)))
def test_any_changed_bytes_are_messages_or_a_protocol_error(at: int, bit: int, cut: int) -> None:
    changed = bytearray(RECORD * 2)
    changed[at] ^= 1 << bit
    for data in (bytes(changed), bytes(changed[:cut])):
        with suppress(ProtocolError):
            found = list(decode_records(data))
            assert sum(message.size for message in found) == len(data)
            assert all(message.stored_body in data for message in found)


@pytest.mark.parametrize("size", [0, -1, 8, len(RECORD) - 1, len(RECORD) + 1, 0x7FFFFFFF, -0x80000000])
def test_a_size_that_is_not_what_the_parts_have_is_a_protocol_error_and_no_endless_loop(size: int) -> None:
    with pytest.raises(ProtocolError, match="its fields end at"):
        list(decode_records(size.to_bytes(4, "big", signed=True) + RECORD[4:]))


@pytest.mark.parametrize("raw", [V1, V2, V3, V4, V5, V6], ids=["v1", "v2", "ipv6", "delayed", "crc 0", "newer"])
def test_the_client_reads_what_the_store_reads(raw: bytes) -> None:
    (found,) = decode_records(raw, "b")
    wanted = decode_record(raw)
    kept = (
        *("topic", "queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "born_ms", "born_host", "stored_ms"),
        *("store_host", "reconsume_times", "prepared_offset", "size"),
    )
    assert [getattr(found, name) for name in kept] == [getattr(wanted, name) for name in kept]
    assert (found.stored_body, found.properties) == (wanted.body, wanted.property_map)


def test_of_records_behind_a_broken_one_nothing_is_given_out() -> None:
    found = decode_records(RECORD + b"\0" * len(RECORD) + RECORD)
    assert next(found).queue_offset == 5
    with pytest.raises(ProtocolError, match=f"byte {len(RECORD)} "):
        next(found)
    assert list(found) == []


def test_nothing_is_no_message() -> None:
    assert list(decode_records(b"")) == []
