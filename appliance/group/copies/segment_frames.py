"""What a leader and a follower say to each other of a segment that goes as a whole. Sans I/O.

The leader offers what is left of a segment (SEGMENT), the follower fetches it over a connection of its own (FETCH) and
says what became of it (SEGMENT_SEEN); then the leader's Append names the bytes that are there already
(APPEND_FETCHED). Over the connection come pieces, each behind its length and the CRC-32 of all bytes so far.
"""

from struct import Struct
from typing import Final

from appliance.group.links.frames import FETCH, MOST_TEXT, SEGMENT, SEGMENT_SEEN, LinkFrame, encode_frame, typed
from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import PieceDamaged, ProtocolError
from uplink_spark.wire.cbor import Fields

PIECE: Final = 960 << 10  # bytes; for a MiB the C library asks the kernel for new pages each time
PIECE_HEAD: Final = Struct(">II")  # length, CRC-32 of all bytes from the start of the range on
SILENCE_S: Final = 10.0  # of the other side of such a connection
MOST_CRC: Final = (1 << 32) - 1

WORKING, HERE, READ, REFUSED = range(4)  # what a follower says of a segment


class SegmentOffer(NamedTuple):
    """What is left of a segment: [start, end) is to be had as one file."""

    start: int  # log offsets
    end: int

    def encode(self) -> bytes:
        """Return the frame."""
        return encode_frame(SEGMENT, self._asdict())


def decode_offer(frame: LinkFrame) -> SegmentOffer:
    """Return SEGMENT. Raises ProtocolError."""
    fields = frame.fields("SEGMENT")
    return typed("SEGMENT", lambda: SegmentOffer(*_range(fields)))


def _range(fields: Fields) -> tuple[int, int]:
    start, end = fields.uint("start"), fields.uint("end")
    if start >= end:
        raise PieceDamaged(f"a range from {start} to {end}")
    return start, end


class SegmentSeen(NamedTuple):
    """A follower: WORKING on what was offered; has it HERE, read back; has READ all records; REFUSED it."""

    start: int
    end: int
    what: int
    crc: int = 0
    reason: str = ""

    def encode(self) -> bytes:
        """Return the frame."""
        return encode_frame(SEGMENT_SEEN, {**self._asdict(), "reason": self.reason[:MOST_TEXT]})


def decode_seen(frame: LinkFrame) -> SegmentSeen:
    """Return SEGMENT_SEEN. Raises ProtocolError."""
    fields = frame.fields("SEGMENT_SEEN")
    return typed(
        "SEGMENT_SEEN",
        lambda: SegmentSeen(
            fields.uint("start"),
            fields.uint("end"),
            fields.uint("what", most=REFUSED),
            fields.uint("crc", most=MOST_CRC),
            fields.text("reason")[:MOST_TEXT],
        ),
    )


class SegmentFetch(NamedTuple):
    """The first frame of a connection: send what was offered, from `at` on."""

    group: str
    member: str
    start: int
    end: int
    at: int

    def encode(self) -> bytes:
        """Return the frame."""
        return encode_frame(FETCH, self._asdict())


def decode_fetch(frame: LinkFrame) -> SegmentFetch:
    """Return FETCH. Raises ProtocolError."""
    fields = frame.fields("FETCH")

    def decode() -> SegmentFetch:
        start, end = _range(fields)
        return SegmentFetch(fields.text("group"), fields.text("member"), start, end, fields.uint("at"))

    fetch = typed("FETCH", decode)
    if not fetch.start <= fetch.at < fetch.end:
        raise ProtocolError(f"FETCH: from {fetch.at} on of {fetch.start} to {fetch.end}")
    return fetch


def read_head(head: bytes | bytearray, left: int) -> tuple[int, int]:
    """Return length and CRC of the piece that follows. Raises ProtocolError."""
    length, crc = PIECE_HEAD.unpack(head)
    if not 0 < length <= min(PIECE, left):
        raise ProtocolError(f"a piece of {length} bytes where {left} are left")
    return length, crc
