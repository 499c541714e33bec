"""Apache's replication between master and slave: log offsets one way, slices of the log the other way. Sans I/O.

The connection has no greeting, name, version or checksum. Source: RocketMQ 4.9.7 HAService, HAConnection; 5.x with its
default HA is the same byte for byte.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from netstack.errors import ProtocolError

REPORT = Struct(">q")  # slave to master: the log offset up to which the slave has the log
SLICE_HEAD = Struct(">qi")  # master to slave: log offset of the slice, its size; 0 is a heartbeat
SLICE_BYTES = 32 << 10  # of what a master sends at once
MOST_SLICE_BYTES = (4 << 20) - SLICE_HEAD.size  # a stock slave never takes more
_CHECKPOINT, _CHECKPOINT_BEGIN = Struct(">7q"), Struct(">4q")
HIGHEST = 1 << 56  # no log is as long: its first byte tells an offset from other protocols


class Pace(NamedTuple):
    """How often either side says something, and how long it listens to silence before it closes."""

    heartbeat_s: float = 5.0
    silence_s: float = 20.0


STOCK_PACE = Pace()


class ReportDecoder:
    """The bytes of one slave in, its reports out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Sequence[int]:
        """Return the reports that are whole now, in order. Raises ProtocolError for what is not a log offset."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        found = [offset for (offset,) in REPORT.iter_unpack(data[:whole])]
        if (found and not 0 <= min(found) <= max(found) < HIGHEST) or self._rest[:1] not in (b"", b"\0"):
            raise ProtocolError(f"{data[:16].hex(' ')} is not a log offset: this is not a slave")
        return found


class TimerCheckpoint(NamedTuple):
    """Answers GET_TIMER_CHECK_POINT (60) of 5.x: what a master has delivered of timed messages.

        0  i64  delivered_ms      8  i64, 16  i64  of the master's own files      24  i64  indexed_to
        32  i64  state version    40  i64  time    48  i64  counter, of the data version

    Of the messages below queue offset `indexed_to` those due at delivered_ms or before are delivered. Source: RocketMQ
    5.3 TimerCheckpoint.
    """

    delivered_ms: int
    indexed_to: int

    def to_bytes(self) -> bytes:
        return _CHECKPOINT.pack(self.delivered_ms, 0, 0, self.indexed_to, 0, 0, 0)

    @classmethod
    def from_bytes(cls, body: bytes) -> "TimerCheckpoint":
        """Raises ProtocolError."""
        if len(body) < _CHECKPOINT_BEGIN.size:
            raise ProtocolError(
                f"a timer checkpoint of {len(body)} bytes, at least {_CHECKPOINT_BEGIN.size} are needed"
            )
        delivered_ms, _, _, indexed_to = _CHECKPOINT_BEGIN.unpack_from(body)
        return cls(max(0, delivered_ms), max(0, indexed_to))


class LogSlice(NamedTuple):
    """Bytes of the master's log; none of them: a heartbeat."""

    log_offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The log offset just past it."""
        return self.log_offset + len(self.data)


class SliceDecoder:
    """The bytes of one master in, slices of its log out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[LogSlice]:
        """Return the slices that are whole now. Raises ProtocolError for what no master sends."""
        buffer, at, found = self._buffer, 0, list[LogSlice]()
        buffer += data
        while len(buffer) - at >= SLICE_HEAD.size:
            log_offset, size = SLICE_HEAD.unpack_from(buffer, at)
            if not (0 <= size <= MOST_SLICE_BYTES and 0 <= log_offset < HIGHEST):
                text = f"a slice of {size} bytes at {log_offset}, at most {MOST_SLICE_BYTES} are allowed"
                raise ProtocolError(f"{text}: this is not a master")
            start = at + SLICE_HEAD.size
            if len(buffer) < start + size:
                break
            found.append(LogSlice(log_offset, bytes(buffer[start : start + size])))
            at = start + size
        del buffer[:at]
        return found
