import datetime
import struct
import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.record import decode_properties, decode_record, encode_host
from uplink_spark.errors import RecordsBad
from uplink_spark.jobs.testing import BORN_MS, Sample, raw_piece, records
from uplink_spark.spark.rows import COLUMNS, EVERYTHING, SCHEMA, Origin, RawPiece, RowSelection, decode, schema_of

V1 = (
    "00000061daa320a73610a686000000000000000000000000000000000000000000000000000000000000018bcfe56800"
    "7f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f015400"
    "00"
)
V2 = (
    "000000c6daa320a759447cee0000000300000007000000000000002a0000000000000105000000000000018bcfe5687b"
    "c0a8010a0000c3cb0000018bcfe569c8c0a8011400002a9f0000000000000000000000000000000ee4bda0e5a5bd2c20"
    "62726f6b65720a4f72646572546f7069630053554e49515f4b4559014330413830313041314639303138423441414332"
    "30303030303030303030303102544147530154616741024b455953016f726465722d31206f726465722d320257414954"
    "017472756502"
)
V3 = (
    "000000a8daa320a73a2d22a8000000010000000000000000000000090000000040000000000003390000000000000001"
    "20010db800000000000000000000000100009c400000000000000002fe80000000000000000000000000000200002a9f"
    "0000000000000000000010000000000b789c010000ffff0000000107546f706963563600235047524f55500170670254"
    "52414e5f4d5347017472756502554e49515f4b4559014b36"
)
V4 = (
    "000000a1daa320a75202ef8d0000000200000000000000000000000000000000000001f4000000100000018bcfe56800"
    "00000000000000000000000000000001000000010000018bcfe56be80a00000100002a9f000000010000000000000000"
    "0000000100135343484544554c455f544f5049435f58585858002644454c41590133025245414c5f544f504943014102"
    "5245414c5f514944013002544147530178"
)
V5 = (
    "00000073daa320a700000000000000000000000000000000000000010000000000000064000000000000000000000000"
    "010203040000ffff0000018bcfe56800ffffffff00002a9f00000000000000000000000000000000014500175441475301"
    "706f6c7967656e656c7562726963616e7473"
)
V6 = (
    "00000067daa320ab706b9d0f00000000000000000000000000000005000000000000012c000000000000018bcfe56800"
    "7f000001000000010000018bcfe568017f00000100000002000000000000000000000000000000027632000254320007"
    "54414753017802"
)
EVERYWHERE = Origin("box-17", 9, 3, 41, 0, 1 << 62, BORN_MS, True)


def utc(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=ms)


def golden(text: str, view: RowSelection = EVERYTHING) -> dict[str, object]:
    (row,) = decode([RawPiece(EVERYWHERE, bytes.fromhex(text))], view).to_pylist()
    return dict(row)


def test_a_record_without_properties_has_the_columns_the_layout_says() -> None:
    assert golden(V1) == {
        "box": "box-17",
        "epoch": 9,
        "log_offset": 0,
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "kind": "message",
        "msg_id": "7F00000100002A9F0000000000000000",
        "tags": None,
        "keys": None,
        "body": b"hello",
        "body_state": "plain",
        "properties": [],
        "flag": 0,
        "sys_flag": 0,
        "reconsume_times": 0,
        "body_crc": 907060870,
        "size": 97,
        "prepared_offset": 0,
        "born_time": utc(1700000000000),
        "store_time": utc(1700000000001),
        "landed_time": utc(BORN_MS),
        "born_host": "127.0.0.1:50000",
        "store_host": "127.0.0.1:10911",
        "clock_ok": True,
        "shard": 3,
        "seq": 41,
        "traceparent": None,
        "trace_id": None,
    }


def test_tags_keys_and_client_id_come_from_the_properties() -> None:
    row = golden(V2)
    assert (row["topic"], row["queue_id"], row["queue_offset"], row["log_offset"]) == ("OrderTopic", 3, 42, 261)
    assert (row["msg_id"], row["tags"]) == ("C0A8010A1F9018B4AAC2000000000001", "TagA")
    assert row["keys"] == ["order-1", "order-2"]
    assert (row["body"], row["flag"], row["body_crc"]) == ("你好, broker".encode(), 7, 1497660654)
    assert dict(row["properties"]) == {  # type: ignore[call-overload]
        "UNIQ_KEY": "C0A8010A1F9018B4AAC2000000000001",
        "TAGS": "TagA",
        "KEYS": "order-1 order-2",
        "WAIT": "true",
    }
    assert (row["born_host"], row["store_host"]) == ("192.168.1.10:50123", "192.168.1.20:10911")


def test_ipv6_hosts_and_a_compressed_transactional_body_are_understood() -> None:
    row = golden(V3)
    assert (row["topic"], row["kind"], row["msg_id"]) == ("TopicV6", "message", "K6")
    assert (row["born_host"], row["store_host"]) == ("[2001:db8::1]:40000", "[fe80::2]:10911")
    assert (row["body"], row["body_state"]) == (b"", "inflated")
    assert (row["sys_flag"], row["prepared_offset"], row["log_offset"]) == (0x339, 4096, 1 << 30)
    assert (row["born_time"], row["store_time"]) == (utc(1), utc(2))


def test_the_offset_id_of_an_ipv6_store_host_has_56_digits() -> None:
    nameless = bytes.fromhex(V3).replace(b"UNIQ_KEY", b"UNIQ_KEX")
    (row,) = decode([RawPiece(EVERYWHERE, nameless)], EVERYTHING).to_pylist()
    assert row["msg_id"] == "FE80000000000000000000000000000200002A9F0000000040000000"


def test_a_delayed_message_at_rest_is_no_message_of_the_default_view() -> None:
    row = golden(V4)
    assert (row["kind"], row["born_host"], row["store_host"]) == ("delayed", "[::1]:1", "10.0.0.1:10911")
    assert (row["reconsume_times"], row["queue_id"], row["tags"]) == (1, 2, "x")
    assert decode([RawPiece(EVERYWHERE, bytes.fromhex(V4))], RowSelection()).num_rows == 0


def test_an_empty_body_and_the_year_1970_are_values_not_nulls() -> None:
    row = golden(V5)
    assert (row["body"], row["body_crc"], row["born_time"]) == (b"", 0, utc(0))
    assert (row["tags"], row["born_host"]) == ("polygenelubricants", "1.2.3.4:65535")


def test_version_2_records_have_a_two_byte_topic_length() -> None:
    row = golden(V6)
    assert (row["topic"], row["tags"], row["body"], row["queue_offset"]) == ("T2", "x", b"v2", 5)


def test_records_of_all_shapes_decode_together_as_they_do_alone() -> None:
    goldens = [V1, V2, V3, V4, V5, V6]
    together = decode([RawPiece(EVERYWHERE, bytes.fromhex("".join(goldens)))], EVERYTHING)
    assert together.to_pylist() == [golden(one) for one in goldens]


def test_the_batch_has_exactly_the_announced_schema() -> None:
    assert decode([raw_piece(records([Sample()]))], EVERYTHING).schema.equals(SCHEMA)
    narrow = RowSelection(columns=("body_len", "properties"), properties_as_map=False)
    batch = decode([raw_piece(records([Sample(body=b"four", properties=b"a\x01b")]))], narrow)
    assert batch.schema.equals(schema_of(narrow))
    assert batch.to_pylist() == [{"body_len": 4, "properties": "a\x01b"}]


def test_no_pieces_give_an_empty_batch_of_the_same_schema() -> None:
    assert decode([], EVERYTHING).schema.equals(SCHEMA)


samples = st.builds(
    Sample,
    topic=st.sampled_from(["Vitals", "T", "%RETRY%g", "%DLQ%g", "Übertopic", "SELF_TEST_TOPIC", "b_REPLY_TOPIC"]),
    body=st.binary(max_size=300),
    properties=st.one_of(
        st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "ß"]), st.text("ab ü", max_size=8)),
        st.text("ab\x01\x02", max_size=30).map(str.encode),
        st.binary(max_size=20),
    ),
    sys_flag=st.sampled_from([0, 0x4, 0x8, 0xC]),
    born_ms=st.integers(0, 1 << 50),
    stored_ms=st.integers(0, 1 << 45),
    queue_id=st.integers(0, 1 << 31 - 1),
    queue_offset=st.integers(0, (1 << 63) - 1),
    born_host=st.sampled_from([encode_host("1.2.3.4", 1), encode_host("2001:db8::9", 65535)]),
    store_host=st.sampled_from([encode_host("10.0.0.1", 10911), encode_host("::1", 10911)]),
)


def plain_row(record: bytes) -> dict[str, object]:
    """The columns of one record by the store's own decoder, one record at a time."""
    message = decode_record(record)
    try:
        properties = decode_properties(message.properties.decode())
    except UnicodeDecodeError:
        properties = None
    row: dict[str, object] = {
        name: getattr(message, name)
        for name in ("topic", "queue_id", "queue_offset", "log_offset", "flag", "sys_flag", "size", "body_crc")
    }
    row |= {"body": bytes(message.body), "store_time": utc(message.stored_ms)}
    row["properties"] = None if properties is None else properties
    row["tags"] = (properties or {}).get("TAGS")
    row["msg_id"] = (properties or {}).get("UNIQ_KEY", message.message_id)
    row["keys"] = (
        [word for word in properties["KEYS"].split(" ") if word] if properties and "KEYS" in properties else None
    )
    return row


alike = st.builds(  # what one producer sends: the same topic, the same names in the same order
    lambda names, values, sample: [
        replace(sample, properties={name: f"{name[:1]}{value}" for name in names}, body=value.encode())
        for value in values
    ],
    st.lists(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "ß"]), min_size=1, unique=True),
    st.lists(st.text("ab ü", max_size=8), min_size=1, max_size=8),
    samples,
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.lists(samples, min_size=1, max_size=12),
        alike,
        st.builds(lambda rows, odd: [*rows, odd], alike, samples),
    ),
    st.integers(0, 11),
    st.booleans(),
)
def test_any_records_in_any_pieces_equal_the_one_by_one_decoder(made: list[Sample], cut: int, indexed: bool) -> None:
    whole = records(made, start=1000)
    at = 1000 + sum(map(len, whole[:cut]))
    pieces = [raw_piece(whole[:cut], start=1000, indexed=indexed)]
    if whole[cut:]:
        pieces.append(raw_piece(whole[cut:], start=at, seq=1, indexed=indexed))
    view = RowSelection(include=None, inflate=False)
    for row, record in zip(decode(pieces, view).to_pylist(), whole, strict=True):
        expected = plain_row(record)
        got = {name: row[name] for name in expected}
        if got["properties"] is not None:
            names = [name for name, _ in got["properties"]]
            assert len(names) == len(set(names))
            got["properties"] = dict(got["properties"])
        assert got == expected
        assert row["seq"] == (0 if expected["log_offset"] < at else 1)  # type: ignore[operator]


def test_only_the_range_of_the_entry_is_read_from_a_piece() -> None:
    made = records([Sample(body=bytes([n])) for n in range(10)])
    edge = [sum(map(len, made[:n])) for n in range(11)]
    origin = Origin("b", 1, 0, 0, edge[3], edge[7], 0, True)
    batch = decode([RawPiece(origin, b"".join(made))], EVERYTHING)
    assert batch["body"].to_pylist() == [b"\3", b"\4", b"\5", b"\6"]


def test_topics_with_an_express_lane_are_left_to_their_own_pieces_unless_raw() -> None:
    made = records([Sample(topic="A"), Sample(topic="Alarm"), Sample(topic="A")])
    origin = Origin("b", 1, 0, 0, 0, 1 << 40, 0, True, skip=("Alarm",))
    piece = RawPiece(origin, b"".join(made))
    assert decode([piece], EVERYTHING)["topic"].to_pylist() == ["A", "A"]
    assert decode([piece], RowSelection(raw=True))["topic"].to_pylist() == ["A", "Alarm", "A"]


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (RowSelection(topics=frozenset(["B"])), [1]),
        (RowSelection(topic_pattern="^[AC]$"), [0, 2]),
        (RowSelection(tags=frozenset(["t1", "t2"])), [1, 2]),
        (RowSelection(store_since_ms=BORN_MS + 1), [1, 2]),
        (RowSelection(store_since_ms=BORN_MS + 1, store_until_ms=BORN_MS + 2), [1]),
        (RowSelection(include=frozenset(["dlq"])), [3]),
        (RowSelection(include=None), [0, 1, 2, 3]),
        (RowSelection(topics=frozenset(["nobody"])), []),
    ],
)
def test_a_view_keeps_only_the_rows_it_names(view: RowSelection, wanted: list[int]) -> None:
    topics = ["A", "B", "C", "%DLQ%g"]
    made = records(
        [Sample(topic=name, properties={"TAGS": f"t{n}"}, stored_ms=BORN_MS + n) for n, name in enumerate(topics)]
    )
    assert decode([raw_piece(made)], view)["topic"].to_pylist() == [topics[n] for n in wanted]


@pytest.mark.parametrize(
    ("topic", "sys_flag", "kind"),
    [
        ("Orders", 0x0, "message"),
        ("Orders", 0x8, "message"),
        ("Orders", 0x4, "half"),
        ("Orders", 0xC, "filler"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, "half"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, "op"),
        ("SCHEDULE_TOPIC_XXXX", 0, "delayed"),
        ("rmq_sys_wheel_timer", 0, "delayed"),
        ("%RETRY%g", 0, "retry"),
        ("%DLQ%g", 0, "dlq"),
        ("DefaultCluster_REPLY_TOPIC", 0, "reply"),
        ("RMQ_SYS_TRACE_TOPIC", 0, "trace"),
        ("TBW102", 0, "system"),
        ("rmq_sys_SYNC_BROKER_MEMBER_x", 0, "system"),
        ("RBX_PROBE", 0, "system"),
        ("box-17", 0, "system"),
    ],
)
def test_what_a_record_is_follows_from_its_topic_and_transaction_bits(topic: str, sys_flag: int, kind: str) -> None:
    view = RowSelection(columns=("kind",), include=None, system_topics=frozenset(["box-17"]))
    made = records([Sample(topic=topic, sys_flag=sys_flag), Sample(topic="X")])
    assert decode([raw_piece(made)], view)["kind"].to_pylist() == [kind, "message"]


def lz4(plain: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(plain)
    return bytes(sink.getvalue())


def test_bodies_are_inflated_with_each_codec_and_left_as_stored_where_they_do_not_inflate() -> None:
    plain = b"measure " * 40
    bodies = [
        (zlib.compress(plain), 0x1, "inflated"),
        (zlib.compress(plain), 0x301, "inflated"),
        (lz4(plain), 0x101, "inflated"),
        (zstandard.compress(plain), 0x201, "inflated"),
        (zlib.compress(plain)[:-6], 0x1, "bad_inflate"),
        (b"not zstd", 0x201, "bad_inflate"),
        (b"plain", 0, "plain"),
    ]
    made = records([Sample(body=body, sys_flag=flag) for body, flag, _ in bodies])
    batch = decode([raw_piece(made)], EVERYTHING)
    assert batch["body_state"].to_pylist() == [state for _, _, state in bodies]
    assert batch["body"].to_pylist() == [plain if state == "inflated" else body for body, _, state in bodies]
    stored = decode([raw_piece(made)], RowSelection(raw=True))
    assert stored["body"].to_pylist() == [body for body, _, _ in bodies]
    assert stored["body_state"].to_pylist() == ["compressed"] * 6 + ["plain"]


@pytest.mark.slow
def test_a_body_that_would_inflate_beyond_the_bound_is_left_as_stored() -> None:
    bomb = zlib.compress(bytes(65 << 20))
    batch = decode([raw_piece(records([Sample(body=bomb, sys_flag=1)]))], EVERYTHING)
    assert batch["body_state"].to_pylist() == ["bad_inflate"]


def test_a_body_whose_crc_is_wrong_is_marked_when_asked() -> None:
    made = records([Sample(body=b"good"), Sample(body=b"gone"), Sample(body=b"")])
    made[1] = made[1].replace(b"gone", b"g0ne")
    view = RowSelection(check_body_crc=True)
    assert decode([raw_piece(made)], view)["body_state"].to_pylist() == ["plain", "bad_crc", "plain"]
    assert decode([raw_piece(made)], RowSelection())["body_state"].to_pylist() == ["plain"] * 3


def test_times_outside_the_years_1_to_9999_are_null() -> None:
    made = records([Sample(born_ms=1 << 62), Sample(born_ms=-(1 << 62)), Sample(born_ms=253_402_300_799_999)])
    born = decode([raw_piece(made)], EVERYTHING)["born_time"].to_pylist()
    assert born == [None, None, utc(253_402_300_799_999)]


def test_a_topic_or_property_that_is_not_utf8_is_null_in_its_row_only() -> None:
    made = records([Sample(topic="AAAA", properties=b"TAGS\x01x"), Sample(topic="B", properties=b"TAGS\x01\xff\xfe")])
    made[0] = made[0].replace(b"AAAA", b"\xff\xfe\xfd\xfc")
    rows = decode([raw_piece(made)], EVERYTHING).to_pylist()
    assert [row["topic"] for row in rows] == [None, "B"]
    assert [row["tags"] for row in rows] == ["x", None]
    assert [row["properties"] for row in rows] == [[("TAGS", "x")], None]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\0\0\0\x50", "size"),
        (4, b"\xda\xa3\x20\xa8", "magic"),
        (84, b"\x7f\xff\xff\xff", "body longer"),
        (84, b"\xff\xff\xff\xff", "body longer"),
        (93, b"\xf0", "topic longer"),
        (95, b"\x00\x09", "properties do not end"),
    ],
)
def test_bytes_that_are_no_records_are_an_error_with_a_reason(at: int, value: bytes, reason: str) -> None:
    record = bytearray.fromhex(V1)
    record[at : at + len(value)] = value
    index = struct.pack("<I", len(record))
    with pytest.raises(RecordsBad, match=reason):
        decode([RawPiece(EVERYWHERE, bytes(record), index)], EVERYTHING)


def test_an_index_that_does_not_add_up_is_an_error() -> None:
    with pytest.raises(RecordsBad, match="adds up to 96"):
        decode([RawPiece(EVERYWHERE, bytes.fromhex(V1), struct.pack("<I", 96))], EVERYTHING)


@given(st.integers(0, 2 * len(bytes.fromhex(V2 + V3)) - 1), st.integers(1, 255))
def test_a_damaged_byte_gives_rows_or_an_error_and_nothing_else(at: int, change: int) -> None:
    data = bytearray.fromhex(V2 + V3) * 2
    data[at] ^= change
    try:
        batch = decode([RawPiece(EVERYWHERE, bytes(data))], EVERYTHING)
    except RecordsBad:
        return
    batch.validate(full=True)
    # What says where a record lies (its bytes 28 to 35) may put it outside the piece's own range: it is trimmed.
    starts = [half + start for half in (0, len(data) // 2) for start in (0, len(bytes.fromhex(V2)))]
    trimmed = any(28 <= at - start < 36 for start in starts)
    assert batch.num_rows == 4 or (trimmed and batch.num_rows == 3)


def test_a_pick_piece_need_not_be_contiguous() -> None:
    made = records([Sample(body=bytes([n])) for n in range(6)])
    picked = [made[n] for n in (1, 4)]
    origin = Origin("b", 1, 0, 0, 0, sum(map(len, made[:4])), 0, True)
    assert decode([RawPiece(origin, b"".join(picked))], EVERYTHING)["body"].to_pylist() == [b"\1"]


def test_every_column_can_be_asked_for_alone() -> None:
    piece = raw_piece(records([Sample(properties={"TAGS": "a"})] * 3))
    whole = decode([piece], EVERYTHING)
    for name in COLUMNS:
        assert decode([piece], RowSelection(columns=(name,), include=None)).column(name).equals(whole.column(name))
    assert np.all(whole["clock_ok"].to_numpy(zero_copy_only=False))
