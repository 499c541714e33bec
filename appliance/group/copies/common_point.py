"""Before a log is cut, the bytes below are compared: a leader sends the CRC of its own."""

from typing import Final, Protocol

from appliance.group.links.frames import COMMON_POINT, LinkFrame, encode_frame, typed
from storage_driver.consensus.messages import Match, Message
from storage_driver.crc import crc32
from storage_driver.named_tuple import NamedTuple

COMPARED: Final = 64 << 10  # bytes, of one segment


class CommonPoint(NamedTuple):
    """Two logs are said to agree below a log offset: the leader's bytes there have this CRC-32."""

    log_offset: int
    length: int
    crc: int


class ComparedLog(Protocol):
    """A store, as far as its bytes are compared."""

    @property
    def first(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def read_log(self, start: int, max_bytes: int, /, *, synced: bool = False) -> bytes: ...


def cuts_something(message: Message) -> Match | None:
    """Return a Match after which a follower has to cut its log, None for any other message."""
    return message if isinstance(message, Match) and message.end > message.start > 0 else None


def point_of(log: ComparedLog, log_offset: int) -> CommonPoint:
    """Return what a log has below a log offset. Blocks. Raises OSError."""
    length = max(0, min(COMPARED, log_offset - log.first, (log_offset - 1) % log.segment_bytes + 1))
    data = log.read_log(log_offset - length, length, synced=True) if length else b""
    if len(data) < length:  # not all of it is on this disk yet
        return CommonPoint(log_offset, 0, 0)
    return CommonPoint(log_offset, length, crc32(data))


def differs(log: ComparedLog, point: CommonPoint) -> bool:
    """Return whether a log has other bytes below the point than the leader's. Blocks. Raises OSError."""
    start = point.log_offset - point.length
    if not point.length or start < log.first:  # one of the two has deleted them
        return False
    return crc32(log.read_log(start, point.length, synced=True)) != point.crc


def encode_point(point: CommonPoint) -> bytes:
    """Return the frame."""
    return encode_frame(COMMON_POINT, point._asdict())


def decode_point(frame: LinkFrame) -> CommonPoint:
    """Return COMMON_POINT. Raises ProtocolError."""
    fields = frame.fields("COMMON_POINT")
    return typed(
        "COMMON_POINT",
        lambda: CommonPoint(
            fields.uint("log_offset"), fields.uint("length", most=COMPARED), fields.uint("crc", most=(1 << 32) - 1)
        ),
    )
