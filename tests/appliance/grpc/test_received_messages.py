"""A stored record as gRPC clients see it, whoever sent it."""

import hashlib
import zlib
from typing import Any

from appliance.broker.consume.reading import MAX_BYTES
from appliance.grpc.received_messages import LARGEST, fill_delivery, message_of, unpacked_size
from netstack.grpc.v2.definition_pb2 import DigestType, Encoding, MessageType
from storage_driver.record import (
    Message,
    StoredMessage,
    encode_host,
    encode_properties,
    encode_record,
    encode_topic,
)

BORN, STORE = encode_host("10.1.0.7", 5555), encode_host("10.1.0.1", 10911)


def record(body: bytes = b"hello", sys_flag: int = 0, **properties: str) -> StoredMessage:
    raw = encode_properties(properties)
    times = (1_700_000_000_000, BORN, 1_700_000_000_500, STORE)
    return StoredMessage("T", 3, 0, 17, 4096, sys_flag, *times, 2, 0, body, raw, 0, 200)


def test_every_field_of_the_record_has_its_place() -> None:
    found = message_of(
        record(UNIQ_KEY="01AB", TAGS="t", KEYS="a b", __SHARDINGKEY="g", MSG_REGION="r", own="ü", __BORNHOST="h"), "T"
    )
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == ("T", b"hello", {"own": "ü"})
    assert (system.message_id, system.tag, list(system.keys), system.message_group) == ("01AB", "t", ["a", "b"], "g")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 17, 3)
    assert (system.born_host, system.store_host) == ("h", "10.1.0.1:10911")
    assert system.store_timestamp.ToMilliseconds() == 1_700_000_000_500
    assert (system.body_digest.type, system.body_digest.checksum) == (
        DigestType.MD5,
        hashlib.md5(b"hello").hexdigest().upper(),
    )


def test_a_count_of_retries_that_has_no_room_is_the_largest_there_is() -> None:
    made = message_of(record()._replace(reconsume_times=LARGEST), "T")
    assert made.system_properties.delivery_attempt == LARGEST
    fill_delivery(made, LARGEST + 1, "handle", 1)
    assert made.system_properties.delivery_attempt == LARGEST


def test_a_message_without_a_key_has_the_id_of_its_offset() -> None:
    assert message_of(record(), "T").system_properties.message_id == record().message_id


def test_types_are_told_by_properties() -> None:
    kinds: list[tuple[dict[str, Any], int]] = [
        ({"TRAN_MSG": "true"}, MessageType.TRANSACTION),
        ({"DELAY": "3"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1700000000000"}, MessageType.DELAY),
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"_SYS_MSG_PRIORITY_": "3"}, MessageType.PRIORITY),
        ({"_SYS_MSG_PRIORITY_": "x"}, MessageType.NORMAL),
        ({"_SYS_MSG_PRIORITY_": str(1 << 31)}, MessageType.NORMAL),
        ({}, MessageType.NORMAL),
    ]
    for properties, kind in kinds:
        assert message_of(record(**properties), "T").system_properties.message_type == kind


def test_a_priority_is_told() -> None:
    system = message_of(record(_SYS_MSG_PRIORITY_="3"), "T").system_properties
    assert (system.priority, dict(message_of(record(_SYS_MSG_PRIORITY_="3"), "T").user_properties)) == (3, {})
    assert not message_of(record(), "T").system_properties.HasField("priority")
    most = (1 << 31) - 1
    assert message_of(record(_SYS_MSG_PRIORITY_=str(most)), "T").system_properties.priority == most


def test_a_packed_body_of_a_4x_producer_is_unpacked() -> None:
    found = message_of(record(zlib.compress(b"hello " * 50), sys_flag=0x301), "T")
    assert (found.body, found.system_properties.body_encoding) == (b"hello " * 50, Encoding.IDENTITY)
    assert found.system_properties.born_host == "10.1.0.7:5555"


def test_a_record_is_as_large_as_its_body_is_unpacked() -> None:
    def size(body: bytes, sys_flag: int) -> int:
        message = Message("T", 0, body, b"", 0, sys_flag, 0, BORN)
        raw = encode_record(message, encode_topic("T"), 0, 0, stored_ms=0, store_host=STORE)
        return unpacked_size(raw) - len(raw)

    packed = zlib.compress(bytes(1000))
    assert (size(packed, 1), size(packed, 0x301), size(packed, 0), size(b"none", 1)) == (1000, 1000, 0, 0)
    assert size(zlib.compress(bytes(1 << 24)), 1) == MAX_BYTES, "what does not fit an answer is not unpacked whole"


def test_a_dead_letter_names_where_it_comes_from() -> None:
    found = message_of(record(DLQ_ORIGIN_TOPIC="O", DLQ_ORIGIN_MESSAGE_ID="01"), "T")
    dead = found.system_properties.dead_letter_queue
    assert (dead.topic, dead.message_id) == ("O", "01")
