"""Stored messages out of the body of a pull, a query or a request of the broker.

Source: RocketMQ 4.9.8 MessageDecoder.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from struct import error as StructError

from netstack.client.messages import ReceivedMessage
from netstack.errors import ProtocolError

MAGIC_V1, MAGIC_V2 = -626843481, -626843477
_BORN_V6, _STORE_V6 = 0x10, 0x20
# size magic crc queue_id flag queue_offset log_offset sys_flag born_ms born_host stored_ms store_host times prepared n
_HEADS = {
    (_BORN_V6 if born == 20 else 0) | (_STORE_V6 if store == 20 else 0): Struct(f">iiiiiqqiq{born}sq{store}siqi")
    for born in (8, 20)
    for store in (8, 20)
}
_HEAD = _HEADS[0]
_SHORT = Struct(">H")
_FLAG_AT = 36


@lru_cache(1024)
def _topic(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def decode_records(data: bytes, broker_name: str = "") -> Iterator[ReceivedMessage]:
    """Return the messages that follow one another in data. Raises ProtocolError where one is cut off or foreign."""
    at = 0
    try:
        while at < len(data):
            message = _decode(data, at)
            message.broker_name = broker_name
            yield message
            at += message.size
    except (StructError, IndexError) as exc:
        raise ProtocolError(f"stored message at byte {at} of {len(data)} is cut off") from exc


def _decode(data: bytes, at: int) -> ReceivedMessage:
    flags = data[at + _FLAG_AT + 3] & 0x30
    head = _HEADS[flags] if flags else _HEAD
    message = ReceivedMessage.__new__(ReceivedMessage)
    (
        message.size,
        magic,
        _,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.log_offset,
        message.sys_flag,
        message.born_ms,
        message.born_host,
        message.stored_ms,
        message.store_host,
        message.reconsume_times,
        message.prepared_offset,
        body_size,
    ) = head.unpack_from(data, at)
    topic_at = (body_at := at + head.size) + body_size
    if magic == MAGIC_V1:
        topic_size, topic_at = data[topic_at], topic_at + 1
    elif magic == MAGIC_V2:
        topic_size, topic_at = _SHORT.unpack_from(data, topic_at)[0], topic_at + 2
    else:
        raise ProtocolError(f"stored message at byte {at} has magic {magic & 0xFFFFFFFF:08x}")
    properties_at = topic_at + topic_size + 2
    (properties_size,) = _SHORT.unpack_from(data, properties_at - 2)
    end = properties_at + properties_size
    if body_size < 0 or end != at + message.size or end > len(data):
        text = f"its fields end at {end}, its size field says {at + message.size}"
        raise ProtocolError(f"stored message at byte {at}: {text}")
    message.stored_body = data[body_at : body_at + body_size]
    message.topic = _topic(data[topic_at : properties_at - 2])
    message._raw_properties = data[properties_at:end]
    message._properties = message._body = message.held = None
    message.consume_started_ms = 0
    return message
