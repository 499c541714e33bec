"""Where a stretch of the log may be divided: between records, and at a segment's end, whose blank is told by its head.

Sans I/O.
"""

from typing import Final

from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK

BLANKS_LAST: Final = MAGIC_BLANK & 0xFF  # of its bytes; unpacking those of a record takes longer than all the rest


class LogPiece(NamedTuple):
    """Whole records; `end` is the log offset where the next ones begin, behind the blank if one is there."""

    start: int
    data: bytes
    end: int


def whole_records(start: int, data: bytes, segment_bytes: int) -> LogPiece:
    """Return the records that are whole in some bytes of one segment, and the blank's head behind them."""
    at, left = 0, -start % segment_bytes or segment_bytes
    while len(data) - at >= BLANK_BYTES:
        size = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
        if data[at + 7] == BLANKS_LAST and BLANK.unpack_from(data, at)[1] == MAGIC_BLANK:
            return LogPiece(start, data[: at + BLANK_BYTES], start + left)
        if size < BLANK_BYTES or at + size > len(data):
            break
        at += size
    return LogPiece(start, data[:at], start + at)


def cut_piece(piece: LogPiece, most: int) -> LogPiece:
    """Return the first records of a piece, about as many bytes as allowed, one record at least."""
    data, at = piece.data, 0
    while at < len(data):
        size, magic = BLANK.unpack_from(data, at)
        if magic == MAGIC_BLANK:
            return piece
        if at and at + size > most:
            break
        at += size
    return LogPiece(piece.start, data[:at], piece.start + at) if at < len(data) else piece
