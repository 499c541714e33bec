"""The answers to one message, which leave by the thousand, written at once: an object of protobuf takes each field.

Source: Protocol Buffers Encoding; the fields are those of `SendMessageResponse` and `AckMessageResponse`.
"""

from netstack.grpc.v2.definition_pb2 import Code, Status

_SMALL = [bytes((size,)) for size in range(0x80)]
_OK = Status(code=Code.OK, message="OK").SerializeToString()
_STATUS = b"\x0a" + _SMALL[len(_OK)] + _OK  # field 1
_ENTRY = _STATUS + b"\x12"  # field 2 follows
_ENTRY_STATUS = b"\x1a" + _STATUS[1:]  # field 3


def stored(message_id: str, queue_offset: int) -> bytes:
    """Return what a send of one message is answered."""
    place = b"\x20" + _varint(queue_offset) if queue_offset else b""
    return _with_entry(b"".join((_STATUS, _text(b"\x12", message_id), place)))


def acknowledged(message_id: str, handle: str) -> bytes:
    """Return what an acknowledgement of one message is answered."""
    return _with_entry(b"".join((_text(b"\x0a", message_id), _text(b"\x12", handle), _ENTRY_STATUS)))


def _with_entry(entry: bytes) -> bytes:
    return b"".join((_ENTRY, _varint(len(entry)), entry))


def _text(tag: bytes, text: str) -> bytes:
    raw = text.encode()
    return b"".join((tag, _varint(len(raw)), raw)) if raw else b""


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
