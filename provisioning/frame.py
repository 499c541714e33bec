"""Bytes of a serial line in, whole messages out, and back.

A frame is `C0 | slip(payload) | C0`; the payload is one CBOR item and its CRC-32, big endian. Byte C0 occurs neither
in UTF-8 nor inside a frame, so console text on the same line does no harm. Source: RFC 1055.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cbor2

END, ESCAPE = b"\xc0", b"\xdb"
MAX_PIECE = 8 * 1024
MAX_DEPTH = 6
MAX_TEXT = 1024
REQUEST, RESULT, ERROR, CHUNK, ACK, PROGRESS = 1, 2, 3, 4, 5, 6
U32 = struct.Struct(">I")
Message = list[Any]


def _no_tag(decoder: object) -> object:
    """Refuse before the tag's value is made: one that repeats strings turns 8 KB into 5 MB when it is written."""
    raise ValueError("a tag")


_TAGS = dict.fromkeys(  # all that cbor2 knows; others come out as a CBORTag, which is not plain
    (*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _no_tag
)


def encode_frame(message: Message) -> bytes:
    """Return the frame of one message."""
    item = cbor2.dumps(message, canonical=True)
    payload = item + U32.pack(zlib.crc32(item))
    return END + payload.replace(ESCAPE, b"\xdb\xdd").replace(END, b"\xdb\xdc") + END


class SerialFrameDecoder:
    """Noise and frames in, valid messages out, in order; what is dropped is only counted, never answered."""

    def __init__(self) -> None:
        self.received = self.dropped = 0
        self._buffer = bytearray()
        self._skipping = False  # inside a piece that is already too long

    def feed(self, data: bytes) -> list[Message]:
        """Take what the line gave, return the messages completed by it."""
        self._buffer += data
        found = []
        *pieces, rest = bytes(self._buffer).split(END)
        self._buffer = bytearray(rest)
        for piece in pieces:
            if self._skipping:
                self._skipping = False
                continue
            if piece:
                message = decode_piece(piece) if len(piece) <= MAX_PIECE else None
                self._count(message is not None)
                if message is not None:
                    found.append(message)
        if len(self._buffer) > MAX_PIECE:
            self._buffer.clear()
            if not self._skipping:
                self._skipping = True
                self._count(False)
        return found

    def _count(self, good: bool) -> None:
        self.received += good
        self.dropped += not good


def decode_piece(piece: bytes) -> Message | None:
    """Return the message between two C0, None when anything about it is wrong."""
    parts = piece.split(ESCAPE)
    if any(part[:1] not in (b"\xdc", b"\xdd") for part in parts[1:]):
        return None
    payload = piece.replace(b"\xdb\xdc", END).replace(b"\xdb\xdd", ESCAPE)
    if len(payload) < 5 or U32.unpack(payload[-4:])[0] != zlib.crc32(payload[:-4]):
        return None
    item = payload[:-4]
    try:
        message = cbor2.loads(
            item,
            max_depth=MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            semantic_decoders=_TAGS,  # type: ignore[arg-type]
            strict_hashable_types=True,  # numbers can be chosen to have one hash
        )
        if not _is_message(message) or cbor2.dumps(message, canonical=True) != item:
            return None
    except (cbor2.CBORError, ValueError, TypeError, OverflowError):
        return None
    return list(message)


def _is_message(message: object) -> bool:
    if not isinstance(message, list) or not message or type(message[0]) is not int:
        return False
    shape = SHAPES.get(message[0])
    fits = shape is not None and len(message) == len(shape) + 1
    return fits and all(check(part) for check, part in zip(shape or (), message[1:], strict=True))


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_request_number(value: object) -> bool:
    return type(value) is int and 1 <= value < 1 << 32


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value.encode()) <= MAX_TEXT


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and _is_plain(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_text(key) and _is_plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return _is_text(value)
    return value is None or isinstance(value, (bool, int, float, bytes))


SHAPES: dict[int, tuple[Callable[[object], bool], ...]] = {
    REQUEST: (_is_request_number, _is_text, _is_map),
    RESULT: (_is_request_number, _is_map),
    ERROR: (_is_request_number, _is_text, _is_text, _is_map),
    CHUNK: (_is_number, _is_number, _is_bytes),
    ACK: (_is_number, _is_number, _is_number),
    PROGRESS: (_is_number, _is_text, _is_number, _is_number),
}
