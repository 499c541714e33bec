"""Cuts the bytes of a client into HTTP/2 frames, and looks at each head first: floods end here, at its nine bytes.

    u24 length   u8 type   u8 flags   u32 stream

Source: RFC 9113, 4.1 and 10.5; CVE-2023-44487 (rapid reset), CVE-2024-27316 (endless headers), CVE-2019-9512 to 9518.
"""

from netstack.errors import ProtocolError
from netstack.grpc.limits import GrpcLimits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS_GREETING = b"\x16\x03"
HEAD = 9
MAX_FRAME = 16_384  # SETTINGS_MAX_FRAME_SIZE that every end begins with; no other is offered
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20  # flags
ACK = 0x1  # of settings and pings
SMALL = 128  # bytes: data in smaller pieces costs more to take apart than to send


class Allowance:
    """So many at once, so many a second more. Times are those of one monotonic clock."""

    __slots__ = ("_burst", "_left", "_per_s", "_since")

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst = self._left = burst
        self._per_s, self._since = per_s, now

    def earn(self, count: float) -> None:
        """Allow some more, never more than the burst."""
        self._left = min(self._burst, self._left + count)

    def take(self, now: float) -> bool:
        """Use one; False when none is left."""
        self.earn((now - self._since) * self._per_s)
        self._since = now
        self._left -= 1
        return self._left >= 0


Frame = tuple[int, int, int, bytes]
"""One whole frame: its type, its flags, its stream, what it carries. A plain tuple: every message passes here."""


class FrameGate:
    """The frames of one connection, looked at by their heads. What is fed may begin and end anywhere."""

    def __init__(self, limits: GrpcLimits, now: float) -> None:
        self.frames = 0
        self._most_header, self._earned = limits.header_bytes, limits.control_per_frame
        self._resets = Allowance(limits.resets_burst, limits.resets_per_s, now)
        self._control = Allowance(limits.control_burst, limits.control_per_s, now)
        self._preface, self._rest, self._looked = len(PREFACE), b"", False  # the begin of a frame, its head looked at
        self._header_bytes = 0

    def sent(self, frames: int) -> None:
        """Note that this side sent frames: windows and pings in answer to them are no flood."""
        self._control.earn(frames * self._earned)

    def provoked(self, now: float) -> None:
        """Note that a fault of the client ends a call: as if it took the call back. Raises ProtocolError."""
        if not self._resets.take(now):
            raise ProtocolError("the client has too many calls ended by faults (CVE-2025-8671)")

    def check(self, data: bytes, now: float) -> list[Frame]:
        """Return the frames that end in the next bytes of the connection. Raises ProtocolError."""
        if self._preface:
            data = self._behind_preface(data)
        if self._rest:
            data = self._rest + data
        found: list[Frame] = []
        at, end = 0, len(data)
        while end - at >= HEAD:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            kind, flags = data[at + 3], data[at + 4]
            if not self._looked:
                self._look(size, kind, flags, now)
            behind = at + HEAD + size
            self._looked = behind > end
            if behind > end:
                break
            stream = (data[at + 5] & 0x7F) << 24 | data[at + 6] << 16 | data[at + 7] << 8 | data[at + 8]
            found.append((kind, flags, stream, data[at + HEAD : behind]))
            at = behind
        self._rest = data[at:]
        return found

    def _behind_preface(self, data: bytes) -> bytes:
        size = min(self._preface, len(data))
        begun = len(PREFACE) - self._preface
        if data[:size] != PREFACE[begun : begun + size]:
            raise ProtocolError(_foreign(data))
        self._preface -= size
        return data[size:]

    def _look(self, size: int, kind: int, flags: int, now: float) -> None:
        self.frames += 1
        if size > MAX_FRAME:
            raise ProtocolError(f"a frame of {size} bytes, at most {MAX_FRAME} are allowed")
        if kind == DATA and (size >= SMALL or flags & END_STREAM):
            return
        if kind in (HEADERS, CONTINUATION):
            self._header_bytes = size if kind == HEADERS else self._header_bytes + size
            # Two of them, one empty, are a continuation as well: each counts.
            if self._header_bytes > self._most_header or (kind == CONTINUATION and not self._control.take(now)):
                raise ProtocolError(f"headers of more than {self._most_header} bytes, or in too many frames")
        elif kind == RST_STREAM:
            if not self._resets.take(now):
                raise ProtocolError("the client takes back too many calls (rapid reset)")
        elif not self._control.take(now):
            raise ProtocolError("too many frames that carry nothing: settings, pings, windows, tiny pieces of data")


def frame_bytes(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """Return a frame as it travels."""
    return b"".join((len(payload).to_bytes(3, "big"), bytes((kind, flags)), number.to_bytes(4, "big"), payload))


def unpadded(payload: bytes) -> bytes:
    """Return what a padded frame carries. Raises ProtocolError."""
    size = payload[0] + 1 if payload else 1
    if size > len(payload):
        raise ProtocolError(f"{size - 1} bytes of padding in a frame of {len(payload)}")
    return payload[1 : len(payload) + 1 - size]


def _foreign(data: bytes) -> str:
    """Return what a connection speaks that does not begin as HTTP/2 does."""
    if data[:2] == TLS_GREETING:
        return "a TLS greeting, but this port has no certificate or TLS is off"
    if data[:1] == b"\0":  # the length of a frame
        return "remoting, but this port speaks gRPC: clients of remoting are given the NameServer's port"
    return f"no HTTP/2: the connection begins with {data[:16]!r}"
