"""The body of a batch: several messages for one queue, taken apart.

    i32 size   i32 magic   i32 body CRC   i32 flag   i32 n, body   i16 n, properties          (once per message)

Magic and CRC are not looked at: clients send zeros. Source: RocketMQ 4.9.8 MessageDecoder.encodeMessage, BatchMessage.
"""

from collections.abc import Mapping
from struct import Struct, iter_unpack
from typing import Final

from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.record import Part, Parts, decode_properties, encode_properties

_HEAD: Final = Struct(">iiiii")
MOST_MESSAGES: Final = 32_768  # those of a client have a key, so these have 2.4 MB without their bodies
SMALLEST: Final = 22  # bytes of a message without body and properties
LONG = 4_096  # messages: more are a task of their own, one batch at a time, and the duplicate window does not keep them
GROWTH: Final = 4  # times the largest body: what a batch may become when each message gets the batch's own properties
NOT_SHARED: Final = frozenset(
    {"WAIT", "UNIQ_KEY"}
)  # of the batch itself, not of its messages; 5.x sends a key for the batch


def parse_batch(raw: bytes, max_message_bytes: int) -> Parts:
    """Return the messages of a batch body. Raises Refused(13) unless all of it is whole messages."""
    if len(raw) > max_message_bytes:
        raise _illegal(f"the batch has {len(raw)} bytes, allowed {max_message_bytes}")
    if not raw:
        raise _illegal("the batch is empty")
    return _alike(raw) or Parts.of(_one_by_one(raw))


def is_long(raw: bytes) -> bool:
    """Tell whether a batch seems to have more messages than LONG, from their sizes alone."""
    at, end = 0, len(raw)
    if end <= LONG * SMALLEST:
        return False
    for _ in range(LONG):
        if at >= end:
            return False
        at += max(1, int.from_bytes(raw[at : at + 4], "big", signed=True))
    return at < end


def _alike(raw: bytes) -> Parts | None:
    """Return the messages when the parts of each are as long as those of the first, which needs no loop, else None."""
    if len(raw) < SMALLEST:
        return None
    size, _, _, _, body_length = _HEAD.unpack_from(raw)
    length = size - SMALLEST - body_length
    if body_length < 0 or length < 0 or len(raw) % size:
        return None
    if len(raw) // size > MOST_MESSAGES:
        raise _too_many(len(raw) // size)
    sizes, flags, body_lengths, bodies, lengths, properties = zip(
        *iter_unpack(f">i8xii{body_length}sH{length}s", raw), strict=True
    )
    count = len(sizes)
    if (sizes.count(size), body_lengths.count(body_length), lengths.count(length)) != (count, count, count):
        return None
    return Parts(flags, bodies, properties)


def _one_by_one(raw: bytes) -> list[Part]:
    items: list[Part] = []
    at, end, unpack_head = 0, len(raw), _HEAD.unpack_from
    while at < end:
        if end - at < SMALLEST:
            raise _illegal(f"{end - at} bytes after message {len(items)}")
        size, _, _, flag, body_length = unpack_head(raw, at)
        body_at = at + 20
        properties_at = body_at + body_length + 2
        if body_length < 0 or properties_at > end:
            raise _illegal(f"message {len(items)} has body length {body_length}, {end - body_at} bytes are left")
        following = properties_at + (raw[properties_at - 2] << 8 | raw[properties_at - 1])
        if following > end or size != following - at:
            raise _illegal(f"message {len(items)} says {size} bytes, its parts have {following - at}")
        if len(items) == MOST_MESSAGES:
            raise _too_many(len(items) + 1)
        items.append((flag, raw[body_at : properties_at - 2], raw[properties_at:following]))
        at = following
    return items


def shared_properties(text: str) -> dict[str, str]:
    """Return those of the batch's own properties that each message gets."""
    return {name: value for name, value in decode_properties(text).items() if name not in NOT_SHARED}


def with_shared(own: bytes, shared: Mapping[str, str]) -> bytes:
    """Return a message's properties with the shared ones it does not have itself."""
    return encode_properties({**shared, **decode_properties(own)})


def check_growth(raw: bytes, count: int, shared: str, max_message_bytes: int) -> None:
    """Raise Refused(13) when the batch's own properties, which each message gets, make too much of it."""
    grown, most = len(raw) + count * len(shared), GROWTH * max_message_bytes
    if grown > most:
        raise _illegal(
            f"{len(shared)} characters of properties for each of {count} messages, {grown} bytes, allowed {most}"
        )


def _too_many(count: int) -> Refused:
    return _illegal(f"a batch of {count} messages or more, at most {MOST_MESSAGES} are allowed; split it")


def _illegal(reason: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {reason}")
