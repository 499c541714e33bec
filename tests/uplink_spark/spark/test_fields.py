"""Text columns for many rows at once: each value as one row alone would have it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.spark import fields
from uplink_spark.spark.fields import (
    KINDS,
    encoded,
    hosts,
    ipv4_hosts,
    kind_codes,
    offset_ids,
    repeated,
    spread,
    text,
    times,
    topic_kind,
)

WORDS = st.lists(st.text(max_size=5), max_size=8)
IPV4, IPV6 = bytes([10, 0, 0, 7]) + (10911).to_bytes(4), bytes.fromhex("20010db8" + "0" * 23 + "1") + (5).to_bytes(4)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Vitals", "message"),
        (None, "message"),
        ("%RETRY%g", "retry"),
        ("%DLQ%g", "dlq"),
        ("Edge_REPLY_TOPIC", "reply"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "half"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "op"),
        ("SCHEDULE_TOPIC_XXXX", "delayed"),
        ("rmq_sys_wheel_timer", "delayed"),
        ("RMQ_SYS_TRACE_TOPIC", "trace"),
        ("RBX_PROBE", "system"),
        ("RBX_RAFT", "system"),
        ("RBX_STATE", "system"),
        ("rmq_sys_anything", "system"),
        ("TBW102", "system"),
        ("press-17", "system"),
    ],
)
def test_a_topic_says_what_its_records_are(topic: str | None, kind: str) -> None:
    assert topic_kind(topic, frozenset({"press-17"})) == kind
    assert kind in KINDS


def test_the_transaction_bits_win_over_the_topic() -> None:
    topics = pa.array(["T", "%RETRY%g", None, "T", "T"]).dictionary_encode()
    flags = np.array([0, 0, 0, 0x4, 0xC], np.int32)
    kinds = [KINDS[code] for code in kind_codes(topics, flags, frozenset())]
    assert kinds == ["message", "retry", "message", "half", "filler"]
    committed = np.array([0x8, 0x8, 0x8, 0x8, 0x8], np.int32)
    assert [KINDS[code] for code in kind_codes(topics, committed, frozenset({"T"}))] == [
        *("system", "retry", "message", "system", "system"),
    ]


@given(WORDS.filter(bool), st.data())
def test_words_are_spread_as_a_list_would_be(words: list[str], data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=9))
    assert spread(words, np.array(codes, np.int32)).to_pylist() == [words[code] for code in codes]


@given(WORDS, st.integers(0, 4))
def test_words_are_repeated_in_their_order(words: list[str], count: int) -> None:
    assert repeated(words, count).to_pylist() == words * count


def test_repeated_words_are_kept_within_a_bound_and_of_what_is_kept_only_the_rows_are_sent() -> None:
    before = fields._kept.cache_info().misses
    assert repeated(("x" * fields.KEPT_BYTES,), 2).to_pylist() == ["x" * fields.KEPT_BYTES] * 2
    assert fields._kept.cache_info().misses == before
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([repeated(("edge",), 8193)], ["word"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    assert sink.tell() < 8193 * (4 + len("edge")) + 1000
    assert batch.nbytes < 8193 * (4 + len("edge")) + 8


@given(
    st.one_of(
        st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=6), st.text(max_size=3).map(lambda w: [w] * 3)
    )
)
def test_a_dictionary_holds_the_same_words(words: Sequence[str | None]) -> None:
    found = encoded(pa.array(words, pa.string()))
    assert found.to_pylist() == list(words)
    assert len(found.dictionary) == len({word for word in words if word is not None})


def test_what_is_no_utf8_is_null_and_costs_no_other_row() -> None:
    assert text(pa.array([b"a", None, "ü".encode()], pa.binary())).to_pylist() == ["a", None, "ü"]
    assert text(pa.array([b"a", None, b"\xff", b""], pa.binary())).to_pylist() == ["a", None, None, ""]


def test_times_outside_the_years_1_to_9999_are_null() -> None:
    first, last = -62_135_596_800_000, 253_402_300_799_999
    found = times(np.array([first - 1, first, 0, 1_700_000_000_123, last, last + 1, 1 << 62], np.int64)).to_pylist()
    assert found[2:4] == [datetime(1970, 1, 1, tzinfo=UTC), datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)]
    assert found[1] == datetime(1, 1, 1, tzinfo=UTC)
    assert found[4] == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert (found[0], found[5], found[6]) == (None, None, None)


def place(parts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bytes, where each part begins, and which are wide; with a byte before each."""
    data = b"".join(b"." + part for part in parts)
    at = np.cumsum([1, *(len(part) + 1 for part in parts)])[:-1]
    wide = np.array([len(part) == 20 for part in parts], bool)
    return np.frombuffer(data, np.uint8), at.astype(np.int64), wide


@given(
    st.lists(st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)), min_size=1, max_size=6)
)
def test_hosts_of_both_widths_stand_in_their_rows(parts: list[bytes]) -> None:
    shown = []
    for part in parts:
        address, port = ipaddress.ip_address(part[:-4]), int.from_bytes(part[-4:], signed=True)
        shown.append(f"{address}:{port}" if len(part) == 8 else f"[{address}]:{port}")
    assert hosts(*place(parts)).to_pylist() == shown


def test_hosts_are_written_as_people_read_them() -> None:
    assert hosts(*place([IPV4, IPV6, IPV4])).to_pylist() == ["10.0.0.7:10911", "[2001:db8::1]:5", "10.0.0.7:10911"]
    numbers = np.frombuffer(IPV4 + IPV4[:4] + (1).to_bytes(4), np.uint64)
    assert ipv4_hosts(numbers).to_pylist() == ["10.0.0.7:10911", "10.0.0.7:1"]
    assert ipv4_hosts(numbers[:0]).to_pylist() == []


def test_offset_ids_are_those_of_the_specification_in_either_width() -> None:
    data, at, wide = place([IPV4, IPV6])
    log_offsets = np.array([1000, (1 << 40) + 1], np.int64)
    expected = [(IPV4 + (1000).to_bytes(8)).hex().upper(), (IPV6 + ((1 << 40) + 1).to_bytes(8)).hex().upper()]
    assert offset_ids(data, at, wide, log_offsets).to_pylist() == expected
    assert offset_ids(data, at[:1], None, log_offsets[:1]).to_pylist() == ["0A00000700002A9F00000000000003E8"]
