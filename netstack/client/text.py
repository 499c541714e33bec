"""Properties, names and hashes as Java clients write and compute them."""

import re
from collections.abc import Mapping
from functools import lru_cache

from netstack.client.errors import MessageRejected, UsageError

MAX_TOPIC, MAX_GROUP, MAX_PROPERTIES = 127, 255, 32767
RETRY = "%RETRY%"
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
SYSTEM_TOPICS = frozenset(
    (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)


def code_units(text: str) -> bytes:
    """Return a sort key that orders text as Java does, by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, a signed 32-bit number."""
    value = 0
    units = code_units(text)
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def hashed_position(key: object, count: int) -> int:
    """Return which of `count` queues belongs to a key, as SelectMessageQueueByHash does: |hashCode| mod count."""
    value = abs(java_hash(str(key)))
    return (0 if value == 1 << 31 else value) % count


def encode_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a header's properties. Raises MessageRejected for the two separators."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count("\x01") != len(properties) or text.count("\x02") != len(properties):
        name = next(n for n, v in properties.items() if not {"\x01", "\x02"}.isdisjoint(n + v))
        raise MessageRejected(f"property {name!r} holds 0x01 or 0x02, the separators of the protocol; encode the value")
    return text


def decode_properties(text: str) -> dict[str, str]:
    """Return the properties of a stored message; entries without a value are skipped."""
    return {name: value for entry in text.split("\x02") for name, mark, value in (entry.partition("\x01"),) if mark}


@lru_cache(4096)
def check_topic(topic: str, *, to_send: bool = True) -> None:
    """Raise MessageRejected unless clients may use this name."""
    if not topic.strip():
        raise MessageRejected("the topic is blank")
    if len(topic) > MAX_TOPIC:
        raise MessageRejected(f"topic of {len(topic)} characters, at most {MAX_TOPIC} are allowed")
    if not _LEGAL.fullmatch(topic):
        raise MessageRejected(f"topic {topic!r} holds illegal characters, allowed: % | a-z A-Z 0-9 _ -")
    if to_send and topic in SYSTEM_TOPICS:
        raise MessageRejected(f"topic {topic} belongs to the broker, clients cannot send to it")


def check_group(group: str) -> None:
    """Raise UsageError unless this may name a producer or consumer group."""
    if not group.strip() or len(group) > MAX_GROUP or not _LEGAL.fullmatch(group):
        raise UsageError(f"group {group!r}: 1..{MAX_GROUP} characters out of % | a-z A-Z 0-9 _ -")
    if group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise UsageError(f"group {group} is reserved, choose another name")
