"""Bytes ⇄ frames.

    0  i32  L, bytes that follow = 4 + H + B      8      H bytes  header
    4  u8   kind: 0 JSON, 1 binary header         8 + H  B bytes  body
    5  u24  H, header length

Every limit is checked on the first 4 or 8 bytes, before anything of that size is kept.
Source: RocketMQ 4.9.8 NettyDecoder, RemotingCommand.decode.
"""

from struct import Struct
from typing import Final

from netstack.errors import HttpSpoken, ProtocolError

KIB, MIB = 1024, 1024 * 1024
JSON, BINARY = 0, 1
MAX_FRAME: Final = 16 * MIB
MAX_HEADER: Final = 256 * KIB  # 32 KiB of properties, the most there may be, take up to 192 when JSON escapes each byte
TLS_GREETING: Final = 0x1603  # as the first bytes of a length: 369 MB, never a frame
HTTP_METHODS: Final = frozenset(  # as the first bytes of a length: more than a gigabyte
    int.from_bytes(word, "big") for word in (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN")
)
HTTP2_PREFACE: Final = int.from_bytes(b"PRI ", "big")  # RFC 9113 section 3.4
_LENGTH, _MARK, _BOTH = Struct(">i"), Struct(">I"), Struct(">II")


class Frame:
    """One whole frame; `kind` is JSON or BINARY."""

    __slots__ = ("body", "header", "kind")

    def __init__(self, kind: int, header: bytes, body: bytes) -> None:
        self.kind, self.header, self.body = kind, header, body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.astuple() == other.astuple()

    def astuple(self) -> tuple[int, bytes, bytes]:
        """Return kind, header and body."""
        return self.kind, self.header, self.body


class FrameDecoder:
    """The bytes of one connection in, whole frames out, in order. No socket, no clock.

    When a receive holds only whole frames they are cut from it directly; just the start of a split frame is kept, and
    the receive that completes it is copied no further than to its end.
    """

    __slots__ = ("_at", "_held", "_max_header", "_max_length", "_more", "_need", "_next", "_next_at")

    def __init__(self, max_frame: int = MAX_FRAME, max_header: int = MAX_HEADER) -> None:
        self._held, self._at = b"", 0
        self._more = bytearray()  # what came after _held while a frame was incomplete
        self._next, self._next_at = b"", 0  # what follows _held, which is one whole frame then
        self._need = 4  # bytes from _at on before another look pays
        self._max_length, self._max_header = max_frame - 4, max_header  # the length does not count itself

    @property
    def buffered(self) -> int:
        """Bytes received that belong to no returned frame yet."""
        return len(self._held) - self._at + len(self._more) + len(self._next) - self._next_at

    def feed(self, received: bytes | bytearray) -> None:
        if type(received) is not bytes:
            received = bytes(received)  # memory streams give bytearrays
        held, at = self._held, self._at
        if at == len(held):
            self._held, self._at = received, 0
        elif self._more or self._next or len(held) - at + len(received) < self._need:
            self._more += received
        else:
            left = self._need - (len(held) - at) if self._need > 8 else len(received)  # of the frame, if it is known
            self._held, self._at = b"".join((memoryview(held)[at:], memoryview(received)[:left])), 0
            if left < len(received):
                self._next, self._next_at = received, left

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None when more bytes are needed. Raises ProtocolError."""
        held, at = self._held, self._at
        have = len(held) - at
        if self._more:
            have = self.buffered
            if have < self._need:
                return None
            self._held = held = b"".join((memoryview(held)[at:], memoryview(self._next)[self._next_at :], self._more))
            self._at, self._more, at = 0, bytearray(), 0
            self._next, self._next_at = b"", 0
        if have < 8:
            self._look_at_length(have)
            return None
        length: int
        mark: int
        length, mark = _BOTH.unpack_from(held, at)
        body_at, end = at + 8 + (mark & 0xFFFFFF), at + 4 + length
        if (
            not 4 <= length <= self._max_length
            or mark >> 24 > 1
            or body_at > end
            or body_at - at - 8 > self._max_header
        ):
            raise self._broken(length, mark)
        if have < 4 + length:
            self._need = 4 + length
            return None
        frame = Frame(mark >> 24, held[at + 8 : body_at], held[body_at:end])
        if end == len(held):
            self._held, self._at = self._next, self._next_at
            self._next, self._next_at = b"", 0  # an idle connection keeps no receive buffer alive
        else:
            self._at = end
        self._need = 4
        return frame

    def _look_at_length(self, have: int) -> None:
        self._need = 4 if have < 4 else 8
        if have >= 4:
            (length,) = _LENGTH.unpack_from(self._held, self._at)
            if not 4 <= length <= self._max_length:
                raise self._broken(length, 0)

    def _broken(self, length: int, mark: int) -> ProtocolError:
        if length >> 16 == TLS_GREETING:
            return ProtocolError("a TLS greeting, but this port has no certificate or TLS is off")
        if length in HTTP_METHODS:
            return HttpSpoken("an HTTP request, but this port speaks the remoting protocol of RocketMQ")
        if length == HTTP2_PREFACE:
            return ProtocolError("HTTP/2, but this port speaks remoting: clients of gRPC have a port of their own")
        if length >= 1 << 31:
            length -= 1 << 32
        if not 4 <= length <= self._max_length:
            return ProtocolError(f"frame length {length}, allowed 4..{self._max_length}")
        if mark >> 24 > 1:
            return ProtocolError(f"header type {mark >> 24} in mark {mark:#010x}, known: 0 (JSON), 1 (binary)")
        if (mark & 0xFFFFFF) > length - 4:
            return ProtocolError(f"header of {mark & 0xFFFFFF} bytes in a frame of length {length}")
        return ProtocolError(f"header of {mark & 0xFFFFFF} bytes, limit {self._max_header}")


def encode_frame(kind: int, header: bytes, body: bytes) -> bytes:
    """Return one whole frame. The caller keeps header and body within the peer's limits."""
    return encode_frame_head(kind, header, len(body)) + body


def encode_frame_head(kind: int, header: bytes, body_bytes: int) -> bytes:
    """Return a frame without its body of so many bytes."""
    return _BOTH.pack(4 + len(header) + body_bytes, kind << 24 | len(header)) + header
