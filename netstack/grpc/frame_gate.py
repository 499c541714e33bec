"""Looks at the head of every HTTP/2 frame before anything is done about it: floods end here, at the cost of nine bytes.

    u24 length   u8 type   u8 flags   u32 stream

Source: RFC 9113, 4.1 and 10.5; CVE-2023-44487 (rapid reset), CVE-2024-27316 (endless headers), CVE-2019-9512 to 9518.
"""

from netstack.errors import ProtocolError
from netstack.grpc.limits import GrpcLimits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
MAX_FRAME = 16_384  # SETTINGS_MAX_FRAME_SIZE that every end begins with; no other is offered
DATA, HEADERS, RST_STREAM, GOAWAY, CONTINUATION = 0, 1, 3, 7, 9
END_STREAM = 0x1
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


class FrameGate:
    """The frames of one connection by their heads. What is fed may begin and end anywhere."""

    def __init__(self, limits: GrpcLimits, now: float) -> None:
        self.frames, self.goodbye = 0, False  # GOAWAY came: h2 takes nothing behind it, clients send pings there
        self._most_header, self._earned = limits.header_bytes, limits.control_per_frame
        self._resets = Allowance(limits.resets_burst, limits.resets_per_s, now)
        self._control = Allowance(limits.control_burst, limits.control_per_s, now)
        self._preface, self._head, self._skip = len(PREFACE), b"", 0
        self._header_bytes = 0

    def sent(self, frames: int) -> None:
        """Note that this side sent frames: windows and pings in answer to them are no flood."""
        self._control.earn(frames * self._earned)

    def check(self, data: bytes, now: float) -> None:
        """Look at the heads in the next bytes of the connection. Raises ProtocolError."""
        at, end = 0, len(data)
        if self._preface:
            at = min(self._preface, end)
            begun = len(PREFACE) - self._preface
            if data[:at] != PREFACE[begun : begun + at]:
                raise ProtocolError(f"no HTTP/2: the connection begins with {data[:16]!r}")
            self._preface -= at
        while True:
            at += self._skip
            if at >= end:
                self._skip = at - end
                return
            missing = HEAD - len(self._head)
            self._skip, self._head = 0, self._head + data[at : at + missing]
            at += missing
            if len(self._head) < HEAD:
                return
            self._look(self._head, now)
            self._skip, self._head = int.from_bytes(self._head[:3], "big"), b""

    def _look(self, head: bytes, now: float) -> None:
        self.frames += 1
        self.goodbye = self.goodbye or head[3] == GOAWAY
        size, kind = int.from_bytes(head[:3], "big"), head[3]
        if size > MAX_FRAME:
            raise ProtocolError(f"a frame of {size} bytes, at most {MAX_FRAME} are allowed")
        if kind in (HEADERS, CONTINUATION):
            self._header_bytes = size if kind == HEADERS else self._header_bytes + size
            # Two of them, one empty, are a continuation as well: each counts.
            if self._header_bytes > self._most_header or (kind == CONTINUATION and not self._control.take(now)):
                raise ProtocolError(f"headers of more than {self._most_header} bytes, or in too many frames")
        elif kind == RST_STREAM:
            if not self._resets.take(now):
                raise ProtocolError("the client takes back too many calls (rapid reset)")
        elif (kind != DATA or (size < SMALL and not head[4] & END_STREAM)) and not self._control.take(now):
            raise ProtocolError("too many frames that carry nothing: settings, pings, windows, tiny pieces of data")
