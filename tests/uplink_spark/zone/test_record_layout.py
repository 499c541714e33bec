"""Fields of all records at once, against the walk over one record after the other."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uplink_spark.box.cutting.scan import record_fields
from uplink_spark.errors import RecordsBad
from uplink_spark.testing import MadeRecord, encode_log, encode_record
from uplink_spark.zone.record_layout import BORN_V6, MAGIC_V2, STORE_V6, gather, lay_out, scan_sizes


def wide(record: bytes, *, born: bool, store: bool, version_2: bool) -> bytes:
    """The record with IPv6 hosts and a topic length of two bytes, as version 2 has it."""
    body_bytes = int.from_bytes(record[84:88], "big")
    topic_at = 88 + body_bytes
    flag = (BORN_V6 if born else 0) | (STORE_V6 if store else 0)
    head = record[8:36] + struct.pack(">i", flag) + record[40:48]
    hosts = [b"\x20" * 20 if born else record[48:56], record[56:64], b"\x21" * 20 if store else record[64:72]]
    topic = (b"\0" if version_2 else b"") + record[topic_at:]
    rest = head + b"".join(hosts) + record[72:topic_at] + topic
    magic = MAGIC_V2 if version_2 else 0xDAA320A7
    return struct.pack(">iI", len(rest) + 8, magic) + rest


Records = st.lists(
    st.tuples(
        st.text("abé界", max_size=40), st.binary(max_size=30), st.text(max_size=10), st.booleans(), st.booleans(),
        st.booleans(), st.integers(0, 1 << 50),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=25)
@given(Records)
def test_every_field_lies_where_the_walk_finds_it(told: list[tuple[str, bytes, str, bool, bool, bool, int]]) -> None:
    log = b""
    for topic, body, properties, born, store, version_2, stored_ms in told:
        record = encode_record(MadeRecord(topic, 3, 9, body, properties, stored_ms=stored_ms), len(log))
        log += wide(record, born=born, store=store, version_2=version_2)
    layout = lay_out(log, scan_sizes(log, 0, len(log)))
    assert layout.head["log_offset"].tolist() == layout.at.tolist()
    edges = layout.edges.tolist()
    for number, (topic, body, properties, *_, stored_ms) in enumerate(told):
        at, body_at, body_end, topic_at, topic_end, properties_at, end = edges[6 * number : 6 * number + 7]
        size, walked_ms, walked_topic, body_bytes = record_fields(log, at, len(log) - at, at)
        assert (size, walked_ms, walked_topic, body_bytes) == (end - at, stored_ms, topic.encode(), len(body))
        assert int(layout.stored_ms[number]) == stored_ms
        assert log[body_at:body_end] == body
        assert log[topic_at:topic_end] == topic.encode()
        assert log[properties_at:end] == properties.encode()


RAW = encode_log([MadeRecord(queue_offset=n, properties="a\x01b\x02") for n in range(3)])


@settings(max_examples=80)
@given(st.integers(0, len(RAW) - 1), st.integers(0, 255))
def test_a_changed_byte_is_found_or_leaves_every_field_inside_its_record(place: int, byte: int) -> None:
    data = RAW[:place] + bytes([byte]) + RAW[place + 1 :]
    try:
        layout = lay_out(data, scan_sizes(data, 0, len(data)))
        edges = layout.edges
    except RecordsBad:
        return
    assert (np.diff(edges) >= 0).all()
    assert edges[0] == 0
    assert edges[-1] == len(data)


def test_sizes_that_do_not_fill_the_bytes_are_named() -> None:
    sizes = scan_sizes(RAW, 0, len(RAW))
    for wrong in (sizes[:-1], np.append(sizes, 91), sizes + 1, np.array([0, len(RAW)], np.int64)):
        with pytest.raises(RecordsBad, match="do not add up"):
            lay_out(RAW, wrong)
    with pytest.raises(RecordsBad, match="the last record ends 1 bytes after its piece"):
        scan_sizes(RAW, 0, len(RAW) - 1)
    with pytest.raises(RecordsBad, match="record size 90, the smallest is 91"):
        scan_sizes(struct.pack(">i", 90) + RAW, 0, len(RAW))
    with pytest.raises(RecordsBad, match="record size -1"):
        scan_sizes(b"\xff" * 8, 0, 8)


def test_a_bad_record_is_named_by_where_it_lies() -> None:
    size = len(RAW) // 3
    bad = RAW[: size + 4] + b"\0\0\0\0" + RAW[size + 8 :]
    with pytest.raises(RecordsBad, match=f"log offset {size}: size {size}, magic 00000000"):
        lay_out(bad, scan_sizes(bad, 0, len(bad)))


def test_nothing_is_a_layout_without_records() -> None:
    layout = lay_out(b"", np.empty(0, np.int64))
    assert layout.edges.tolist() == [0]
    assert gather(layout.data, layout.at, 8).shape == (0, 8)
