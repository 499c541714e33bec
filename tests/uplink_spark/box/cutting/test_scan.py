"""The box's walk over records: V1 to V6 of the store's vectors, blanks, cuts, limits, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.box.cutting.scan import STRETCH_BYTES, Scan, record_fields, scan_records
from uplink_spark.testing import MadeRecord, encode_log, encode_record

V3 = bytes.fromhex(
    "000000a8daa320a73a2d22a8000000010000000000000000000000090000000040000000000003390000000000000001"
    "20010db800000000000000000000000100009c400000000000000002fe80000000000000000000000000000200002a9f"
    "0000000000000000000010000000000b789c010000ffff0000000107546f706963563600235047524f55500170670254"
    "52414e5f4d5347017472756502554e49515f4b4559014b36"
)
V4 = bytes.fromhex(
    "000000a1daa320a75202ef8d0000000200000000000000000000000000000000000001f4000000100000018bcfe56800"
    "00000000000000000000000000000001000000010000018bcfe56be80a00000100002a9f000000010000000000000000"
    "0000000100135343484544554c455f544f5049435f58585858002644454c41590133025245414c5f544f504943014102"
    "5245414c5f514944013002544147530178"
)
V6 = bytes.fromhex(
    "00000067daa320ab706b9d0f00000000000000000000000000000005000000000000012c000000000000018bcfe56800"
    "7f000001000000010000018bcfe568017f00000100000002000000000000000000000000000000027632000254320007"
    "54414753017802"
)


@pytest.mark.parametrize(
    ("record", "start", "stored_ms", "topic", "body_bytes"),
    [
        (V3, 1073741824, 2, "TopicV6", 11),
        (V4, 500, 1700000001000, "SCHEDULE_TOPIC_XXXX", 1),
        (V6, 300, 1700000000001, "T2", 2),
    ],
)
def test_records_of_other_shapes_are_walked(
    record: bytes, start: int, stored_ms: int, topic: str, body_bytes: int
) -> None:
    scan = scan_records(record, start, 1 << 20)
    assert (scan.length, scan.sizes, scan.fault) == (len(record), [len(record)], None)
    assert (scan.stored_ms_min, scan.stored_ms_max) == (stored_ms, stored_ms)
    assert scan.topics == {topic: (1, body_bytes)}


def log_of(count: int) -> bytes:
    return encode_log([MadeRecord(topic=f"t{n % 3}", stored_ms=1000 + n, body=b"b" * n) for n in range(count)])


@given(st.integers(0, 2000))
def test_a_cut_buffer_gives_its_whole_records_and_no_fault(length: int) -> None:
    data = log_of(12)
    scan, whole = scan_records(data[:length], 0, 1 << 20), scan_records(data, 0, 1 << 20)
    assert scan.fault is None
    assert scan.sizes == whole.sizes[: len(scan.sizes)]
    assert scan.length == sum(scan.sizes)
    assert len(scan.sizes) == sum(sum(whole.sizes[: n + 1]) <= length for n in range(12))


@given(st.integers(0, 2000))
def test_records_are_added_while_the_sum_stays_below_the_limit_but_one_always_is(limit: int) -> None:
    data = log_of(12)
    scan = scan_records(data, 0, limit)
    assert scan.sizes
    assert scan.length <= limit or len(scan.sizes) == 1
    assert (scan.blank, scan.fault) == (0, None)


def test_records_and_bytes_are_counted_by_topic_however_topics_alternate() -> None:
    topics = {f"t{k}": (4, sum(range(k, 12, 3))) for k in range(3)}
    assert scan_records(log_of(12), 0, 1 << 20).topics == topics
    twice = [MadeRecord(topic=name, body=b"12") for name in ("b", "b", "a", "bb", "b")]
    assert scan_records(encode_log(twice), 0, 1 << 20).topics == {"b": (3, 6), "a": (1, 2), "bb": (1, 2)}


def test_a_blank_ends_the_walk_with_its_size() -> None:
    data = log_of(3)
    scan = scan_records(data + (576).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(568), 0, 1 << 20)
    assert (scan.length, scan.blank, scan.fault) == (len(data), 576, None)
    short = scan_records((8).to_bytes(4, "big") + bytes.fromhex("cbd43194"), 0, 1 << 20)
    assert (short.length, short.blank) == (0, 8)


@pytest.mark.parametrize("at", [0, 4, 28, 35])
def test_damage_in_size_magic_or_offset_ends_the_walk_with_a_reason(at: int) -> None:
    data = bytearray(log_of(3) + encode_record(MadeRecord(), len(log_of(3))))
    place = len(log_of(2))
    data[place + at] ^= 0x5A
    scan = scan_records(bytes(data), 0, 1 << 20)
    assert scan.length == place
    assert scan.fault is not None or at == 0  # a huge size looks like a record that is not whole yet


def one_after_the_other(data: bytes, start: int) -> Scan:
    """The walk in steps of one record each, which never sees neighbours."""
    parts = [scan_records(data, start, 0)]
    while parts[-1].sizes:
        at = sum(part.length for part in parts)
        parts.append(scan_records(data[at:], start + at, 0))
    records, (last,) = parts[:-1], parts[-1:]
    topics: dict[str, tuple[int, int]] = {}
    for part in records:
        for name, (count, body_bytes) in part.topics.items():
            before = topics.get(name, (0, 0))
            topics[name] = (before[0] + count, before[1] + body_bytes)
    return Scan(
        sum(part.length for part in records),
        [size for part in records for size in part.sizes],
        min((part.stored_ms_min for part in records), default=0),
        max((part.stored_ms_max for part in records), default=0),
        topics,
        last.blank,
        last.fault,
    )


ALIKE = 30  # records of one size
OTHERS = [MadeRecord(body=b"longer"), MadeRecord(topic="u"), MadeRecord(sys_flag=0x20), MadeRecord(stored_ms=-5)]


@given(
    st.sampled_from([None, *OTHERS]),
    st.integers(0, ALIKE - 1),
    st.one_of(st.none(), st.tuples(st.integers(0, ALIKE * 97 - 1), st.integers(1, 255))),
)
def test_records_of_one_size_are_read_as_if_one_after_the_other_also_when_one_differs_or_a_byte_is_damaged(
    other: MadeRecord | None, at: int, damage: tuple[int, int] | None
) -> None:
    records = [MadeRecord(stored_ms=1000 + 7 * n % 11, queue_offset=n) for n in range(ALIKE)]
    if other is not None:
        records[at] = other
    data = bytearray(encode_log(records, 4096))
    if damage is not None:
        data[damage[0]] ^= damage[1]
    assert scan_records(bytes(data), 4096, 1 << 20) == one_after_the_other(bytes(data), 4096)


def test_the_walk_lets_others_go_on_between_stretches_of_records_of_one_size() -> None:
    data = encode_log([MadeRecord(body=bytes(909))] * 1000)
    pauses: list[None] = []
    scan = scan_records(data, 0, len(data), lambda: pauses.append(None))
    assert len(scan.sizes) == 1000
    assert len(pauses) >= len(data) // STRETCH_BYTES


def test_the_fields_of_a_record_are_where_the_layout_says() -> None:
    data = encode_record(MadeRecord(topic="abc", body=b"12345", stored_ms=77, properties="KEYS\x01k"), 0)
    assert record_fields(data, 0, len(data), 0) == (len(data), 77, b"abc", 5)
