"""A stored record as gRPC clients see it. Source: RocketMQ 5.3 GrpcConverter.buildMessage."""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from appliance.broker.consume.reading import MAX_BYTES
from appliance.broker.publish.send_properties import priority_of
from appliance.grpc.sent_messages import (
    BORN_HOST,
    DELIVER_MS,
    GROUP,
    HALF,
    KEYS,
    RESERVED,
    TAGS,
    TRACE_CONTEXT,
    TRANSACTION,
)
from netstack.grpc.v2.definition_pb2 import DigestType, Encoding, Message, MessageType
from netstack.serving.addresses import plain_address
from storage_driver.record import StoredMessage, decode_host, decode_record

try:
    from _md5 import md5  # type: ignore[import-not-found]  # as quick as that of OpenSSL, which takes 4 MB
except ImportError:  # a Python without its own hashes
    from hashlib import md5

COMPRESSED, FLAGS_END = 1, 39  # the flag's byte of a record
MOST_UNPACKED = 16 << 20  # a body that is larger stays packed
LEVEL, DELAY_S = "DELAY", "TIMER_DELAY_SEC"
DEAD_TOPIC, DEAD_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
UNIQUE_KEY = "UNIQ_KEY"
MD5, IDENTITY = int(DigestType.MD5), int(Encoding.IDENTITY)  # to ask an enum takes longer
NORMAL, FIFO, DELAYED = int(MessageType.NORMAL), int(MessageType.FIFO), int(MessageType.DELAY)
BY_PRIORITY = int(MessageType.PRIORITY)
LARGEST = (1 << 31) - 1  # int32: what a field has no room for raises ValueError


def message_of(stored: StoredMessage, topic: str) -> Message:
    """Return a record as a message of a topic."""
    made = Message()
    fill_message(made, stored, stored.property_map, topic)
    return made


def fill_message(made: Any, stored: StoredMessage, properties: Mapping[str, str], topic: str) -> None:
    """Make a record a message of a topic, in its place: to move a message is to write and to read it.

    Its body is unpacked: readers here know no packed ones.
    """
    body = _unpacked(stored)
    made.body = body
    made.topic.name = topic
    own = {name: value for name, value in properties.items() if name not in RESERVED}
    if own:
        made.user_properties.update(own)
    system = made.system_properties
    _add_names(system, properties)
    system.message_id = properties.get(UNIQUE_KEY) or stored.message_id
    digest = system.body_digest
    digest.type, digest.checksum = MD5, md5(body).hexdigest().upper()
    system.body_encoding = IDENTITY
    system.message_type = _type_of(properties)
    _fill_time(system.born_timestamp, stored.born_ms)
    system.born_host = properties.get(BORN_HOST) or _host(stored.born_host)
    _fill_time(system.store_timestamp, stored.stored_ms)
    system.store_host = _host(stored.store_host)
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times + 1, LARGEST)


def fill_delivery(made: Any, attempt: int, handle: str, invisible_ms: int) -> None:
    """Say for which delivery of a message its receiver has it, by what name and for how long."""
    system = made.system_properties
    system.delivery_attempt, system.receipt_handle = min(attempt, LARGEST), handle
    _fill_time(system.invisible_duration, invisible_ms)


def _fill_time(made: Any, time_ms: int) -> None:
    """As FromMilliseconds of the library, which takes five times as long."""
    if time_ms > 0:
        made.seconds, made.nanos = time_ms // 1000, time_ms % 1000 * 1_000_000
    else:
        made.SetInParent()


def _add_names(system: Any, properties: Mapping[str, str]) -> None:
    if TAGS in properties:
        system.tag = properties[TAGS]
    if KEYS in properties:
        system.keys.extend(properties[KEYS].split())
    if GROUP in properties:
        system.message_group = properties[GROUP]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    due = properties.get(DELIVER_MS, "")
    if due.isdecimal() and len(due) <= 14:
        system.delivery_timestamp.FromMilliseconds(int(due))
    priority = _priority_of(properties)
    if priority >= 0:
        system.priority = priority
    if DEAD_TOPIC in properties and DEAD_ID in properties:
        system.dead_letter_queue.topic = properties[DEAD_TOPIC]
        system.dead_letter_queue.message_id = properties[DEAD_ID]


def _type_of(properties: Mapping[str, str]) -> int:
    if properties.get(HALF) == "true":
        return TRANSACTION
    if not properties.keys().isdisjoint((LEVEL, DELIVER_MS, DELAY_S)):
        return DELAYED
    if GROUP in properties:
        return FIFO
    return BY_PRIORITY if _priority_of(properties) >= 0 else NORMAL


def _priority_of(properties: Mapping[str, str]) -> int:
    """Return the priority of a message, -1 for none that a client could read: an int32."""
    priority = priority_of(properties)
    return priority if priority <= LARGEST else -1


def unpacked_size(record: bytes) -> int:
    """Return how many bytes a record has for a gRPC client, roughly: more than an answer's are not counted."""
    if not record[FLAGS_END] & COMPRESSED:
        return len(record)
    try:
        body = zlib.decompressobj().decompress(decode_record(record, check_crc=False).body, MAX_BYTES)
    except zlib.error:
        return len(record)
    return len(record) + len(body)


def _unpacked(stored: StoredMessage) -> bytes:
    body = bytes(stored.body)
    if not stored.sys_flag & COMPRESSED:
        return body
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(body, MOST_UNPACKED)
    except zlib.error:
        return body  # packed by another method
    return whole if unpacking.eof else body


@lru_cache(256)
def _host(raw: bytes) -> str:
    host, port = decode_host(raw)
    return f"{plain_address(host)}:{port}"
