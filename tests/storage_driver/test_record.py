import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_driver import record as r
from storage_driver.errors import MessageIllegal, PropertiesTooLong, RecordDamaged
from storage_driver.record import Message, decode_host, encode_host, java_hash
from storage_driver.testing import V1, V2, V3, V4, V5, V6

BY_4_9 = [V1, V2, V3, V4, V5]
ANY_TEXT = st.characters(blacklist_categories=["Cs"])
NAMES = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(blacklist_characters="\x02", blacklist_categories=["Cs"]), min_size=1)


def encode_again(raw: bytes) -> bytes:
    """Decode and encode with a Message made of the decoded fields."""
    m = r.decode_record(raw)
    message = Message(
        m.topic,
        m.queue_id,
        m.body,
        m.properties,
        m.flag,
        m.sys_flag,
        m.born_ms,
        m.born_host,
        m.reconsume_times,
        m.prepared_offset,
    )
    topic = r.encode_topic(m.topic)
    variable = (m.born_host, m.store_host, m.body, topic, m.properties)
    assert r.FIXED_BYTES + sum(map(len, variable)) == len(raw)
    return r.encode_record(message, topic, m.queue_offset, m.log_offset, stored_ms=m.stored_ms, store_host=m.store_host)


@pytest.mark.parametrize("raw", BY_4_9)
def test_records_made_by_java_are_rebuilt_byte_for_byte(raw: bytes) -> None:
    assert encode_again(raw) == raw


@pytest.mark.parametrize(
    ("raw", "message_id", "tags_code"),
    [
        (V1, "7F00000100002A9F0000000000000000", 0),
        (V2, "C0A8011400002A9F0000000000000105", 2598919),
        (V3, "FE80000000000000000000000000000200002A9F0000000040000000", 0),
        (V4, "0A00000100002A9F00000000000001F4", 1700000011000),
        (V5, "FFFFFFFF00002A9F0000000000000064", -2147483648),
        (V6, "7F000001000000020000000000000" + "12C", 120),
    ],
)
def test_ids_and_tag_codes_are_those_of_java(raw: bytes, message_id: str, tags_code: int) -> None:
    stored = r.decode_record(raw)
    assert stored.message_id == message_id
    assert r.parse_message_id(message_id) == (stored.store_host, stored.log_offset)
    assert r.tags_code(stored.topic, stored.properties, stored.stored_ms) == tags_code
    assert r.stored_ms_of(raw) == stored.stored_ms


def test_the_fields_of_a_record_from_java() -> None:
    m = r.decode_record(V2)
    assert (m.topic, m.queue_id, m.queue_offset, m.log_offset, m.flag, m.size) == ("OrderTopic", 3, 42, 261, 7, 198)
    assert (m.body.decode(), m.body_crc) == ("你好, broker", 1497660654)
    assert decode_host(m.born_host) == ("192.168.1.10", 50123)
    assert m.property_map == {
        "UNIQ_KEY": "C0A8010A1F9018B4AAC2000000000001",
        "TAGS": "TagA",
        "KEYS": "order-1 order-2",
        "WAIT": "true",
    }
    assert r.index_keys(m.topic, m.properties) == [
        "OrderTopic#C0A8010A1F9018B4AAC2000000000001",
        "OrderTopic#order-1",
        "OrderTopic#order-2",
    ]
    assert [abs(java_hash(key)) for key in r.index_keys(m.topic, m.properties)] == [1283790547, 344427120, 344427119]


def test_version_2_records_are_read() -> None:
    m = r.decode_record(V6)
    assert (m.topic, m.queue_offset, m.body, m.property_map) == ("T2", 5, b"v2", {"TAGS": "x"})


@pytest.mark.parametrize("raw", [*BY_4_9, V6])
def test_a_flipped_bit_is_found_or_lies_in_an_unchecked_field(raw: bytes) -> None:
    good = r.decode_record(raw)
    for bit in range(len(raw) * 8):
        data = bytearray(raw)
        data[bit // 8] ^= 1 << bit % 8
        with suppress(RecordDamaged):
            assert r.parse_record(bytes(data), 0, good.log_offset).size == len(raw)


@pytest.mark.parametrize("raw", [*BY_4_9, V6])
def test_every_prefix_of_a_record_is_damaged(raw: bytes) -> None:
    for length in range(len(raw)):
        with pytest.raises(RecordDamaged):
            r.decode_record(raw[:length])


def test_a_record_at_another_position_is_not_good() -> None:
    with pytest.raises(RecordDamaged, match="its offset field says 261"):
        r.parse_record(V2, 0, 262)


HASHES = {
    "": 0, "*": 42, "a": 97, "ab": 3105, "TagA": 2598919, "TagB": 2598920, "TagC": 2598921, "tag||x": -881212642,
    "标签": 857175, "标签-b": 823746668, "Aa": 2112, "BB": 2112, "😀": 1772899, "TagA || TagB": 1359775119,
    "polygenelubricants": -2147483648, "TopicA#k1": -1903240649, "T#polygenelubricants": -1620724593,
}  # fmt: skip


@pytest.mark.parametrize("text", HASHES)
def test_java_hash_gives_what_the_jvm_gives(text: str) -> None:
    assert java_hash(text) == HASHES[text]


def loop_hash(text: str) -> int:
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (31 * value + high * 256 + low) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def test_java_hash_equals_the_loop_on_random_text() -> None:
    random.seed(1)
    for _ in range(2000):
        text = "".join(chr(random.randrange(1, 300)) for _ in range(random.randrange(60)))
        assert java_hash(text) == loop_hash(text)
    assert java_hash("x" * 5000) == loop_hash("x" * 5000)


@given(st.dictionaries(NAMES, VALUES))
def test_properties_survive_the_round_trip(pairs: dict[str, str]) -> None:
    raw = r.encode_properties(pairs)
    assert r.decode_properties(raw) == r.decode_properties(raw + b"\x02\x02") == pairs
    for name, value in pairs.items():
        assert r.find_property(raw, name.encode()) == value.encode()


@given(st.binary().map(lambda raw: raw.replace(b"\x80", b"\x01TAGS\x02")))
def test_finding_one_property_agrees_with_the_dict(raw: bytes) -> None:
    found = r.find_property(raw, b"TAGS")
    assert r.decode_properties(raw).get("TAGS") == (found.decode("utf-8", "replace") if found is not None else None)


def test_an_empty_or_nameless_pair_is_ignored_and_a_later_one_wins() -> None:
    assert r.decode_properties("a\x01\x02\x01b\x02c\x02k\x01old\x02k\x01new") == {"k": "new"}
    assert r.find_property(b"k\x01old\x02k\x01new", b"k") == b"new"
    assert r.find_property(b"k\x01old\x02k\x01", b"k") == b"old"
    assert r.find_property(b"xk\x01old", b"k") is None


@pytest.mark.parametrize("name", [b"TAGS", b"UNIQ_KEY", b"KEYS"])
def test_thousands_of_empty_properties_of_one_name_are_read(name: bytes) -> None:
    empty = (b"\x02" + name + b"\x01") * (32000 // (len(name) + 2))
    for raw, value in ((empty[1:], None), (empty, None), (name + b"\x01k" + empty, b"k"), (empty + b"k", b"k")):
        assert r.find_property(raw, name) == value
        assert r.index_keys("T", raw) == (["T#k"] if value and name != b"TAGS" else [])
        assert r.tags_code("T", raw, 0) == (ord("k") if value and name == b"TAGS" else 0)


def test_long_tags_are_hashed_and_not_remembered() -> None:
    before = r._hash_of.cache_info().currsize
    assert r.tags_code("T", b"TAGS\x01" + b"t" * 30000, 0) == java_hash("t" * 30000)
    assert r._hash_of.cache_info().currsize == before


@pytest.mark.parametrize(
    ("raw", "tags"),
    [
        (b"TAGS\x01a", "a"),
        (b"A\x011\x02TAGS\x01ab\x02B\x012\x02", "ab"),
        (b"TAGS\x01a\x02TAGS\x01b", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"TAGS\x01a\x02MYTAGS\x01b", "a"),
        (b"MYTAGS\x01b\x02", ""),
        (b"TAGS\x01\x02A\x01b", ""),
    ],
)
def test_the_code_is_that_of_the_last_tags_with_a_value(raw: bytes, tags: str) -> None:
    assert r.tags_code("T", raw, 0) == java_hash(tags)


def test_names_with_separators_are_refused() -> None:
    with pytest.raises(MessageIllegal):
        r.encode_properties({"a": "x\x02y"})


def test_topics_are_measured_in_bytes() -> None:
    assert r.encode_topic("t" * 127) == b"\x7f" + b"t" * 127
    for topic in ("t" * 128, "汉" * 43, ""):
        with pytest.raises(MessageIllegal):
            r.encode_topic(topic)


def test_too_long_fields_are_refused() -> None:
    host = encode_host("127.0.0.1", 1)
    with pytest.raises(PropertiesTooLong):
        r.check_message(Message("T", 0, b"", b"x" * 32768, 0, 0, 0, host), 10)
    with pytest.raises(MessageIllegal, match="body of 11 bytes, allowed 10"):
        r.check_message(Message("T", 0, b"x" * 11, b"", 0, 0, 0, host), 10)
    r.check_message(Message("T", 0, b"x" * 10, b"x" * 32767, 0, 0, 0, host), 10)


@pytest.mark.parametrize(
    ("host", "port", "raw"),
    [
        ("127.0.0.1", 50000, "7f0000010000c350"),
        ("2001:db8::1", 1, "20010db800000000000000000000000100000001"),
        ("::ffff:10.0.0.1", 7, "0a00000100000007"),
    ],
)
def test_hosts(host: str, port: int, raw: str) -> None:
    assert encode_host(host, port).hex() == raw
    assert encode_host(*decode_host(bytes.fromhex(raw))).hex() == raw


@pytest.mark.parametrize(
    "text", ["", "xyz", "7F00000100002A9F00000000000000", "7F 000100002A9F0000000000000000", "é" * 32]
)
def test_a_malformed_message_id_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"hex"):
        r.parse_message_id(text)


@given(
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    flags=st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 0x7FF).map(lambda f: f & ~0x30)),
    topic=st.text(ANY_TEXT, min_size=1, max_size=30),
    hosts=st.tuples(*[st.sampled_from([b"\x7f\0\0\1\0\0\0\1", b"\x20" * 16 + b"\0\0\0\2"])] * 2),
)
def test_any_message_survives_the_round_trip(
    body: bytes, properties: bytes, flags: tuple[int, int], topic: str, hosts: tuple[bytes, bytes]
) -> None:
    message = Message(topic, 5, body, properties, flags[0], flags[1], 123, hosts[0], 7, 99)
    raw = r.encode_record(message, r.encode_topic(topic), 11, 1 << 40, stored_ms=456, store_host=hosts[1])
    m = r.decode_record(b"junk" + raw + b"more", 4)
    assert (m.topic, m.queue_id, m.body, m.properties, m.size) == (topic, 5, body, properties, len(raw))
    assert (m.flag, m.sys_flag & ~0x30, m.born_host, m.store_host) == (*flags, *hosts)
    assert (m.queue_offset, m.log_offset, m.stored_ms, m.born_ms) == (11, 1 << 40, 456, 123)
    assert (m.reconsume_times, m.prepared_offset) == (7, 99)
    assert (bool(m.sys_flag & 0x10), bool(m.sys_flag & 0x20)) == (len(hosts[0]) == 20, len(hosts[1]) == 20)
