"""Where a master cuts its log for slaves: between records, so that a slave stands at one whenever it reports.

A record that is larger than a slice goes in slices of 32 KiB from its beginning. So a slave's report can be checked:
where no record begins, or no cut of a large one, its log is another one.
"""

from collections.abc import Callable
from struct import Struct

from netstack.wire.replication import SLICE_BYTES, SLICE_HEAD
from storage_driver.errors import RecordDamaged
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, parse_record

READ_BYTES = 8 * SLICE_BYTES  # at once, from the disk
LARGEST_RECORD = 64 << 20
_PLACE = Struct(">ii20xq")  # size, magic and log offset of a record
Read = Callable[[int, int], bytes]
"""(log offset, at most so many bytes) → bytes of one segment of the log, none where there are none."""


class Cut(NamedTuple):
    """What to send next: frames, how many slices, the log offset behind them, the end of a record still open there."""

    frames: bytes
    slices: int
    end: int
    open_to: int


def cut(log_offset: int, data: bytes, open_to: int = 0) -> Cut:
    """Cut bytes of the log that begin at a record, or within one that ends at `open_to`; there must be some.

    A record that is there only in part is left out, unless it is the first one.
    """
    ends, first = _whole(data, open_to - log_offset)
    still_open = 0
    if not ends:
        ends, still_open = [*range(SLICE_BYTES, len(data), SLICE_BYTES), len(data)], log_offset + first
    pieces, start = list[bytes](), 0
    for end in ends:
        pieces += (SLICE_HEAD.pack(log_offset + start, end - start), data[start:end])
        start = end
    return Cut(b"".join(pieces), len(ends), log_offset + start, still_open)


def _whole(data: bytes, first: int) -> tuple[list[int], int]:
    """Return where slices of whole records end, and the size of the first record or of what is left of it."""
    ends, start, at = list[int](), 0, 0
    first = first if first > 0 else _size_at(data, 0)
    size = first
    while at + size <= len(data):
        if at > start and at + size - start > SLICE_BYTES:
            ends.append(at)
            start = at
        at += size
        if size > SLICE_BYTES:
            ends += [*range(start + SLICE_BYTES, at, SLICE_BYTES), at]
            start = at
        size = _size_at(data, at)
    return (ends if at == start else [*ends, at]), first


def _size_at(data: bytes, at: int) -> int:
    """Return the size of the record (or the blank) that begins there, of all the rest where none does."""
    if len(data) - at < BLANK_BYTES:
        return BLANK_BYTES
    size, magic = BLANK.unpack_from(data, at)
    whole = magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) and size >= BLANK_BYTES
    return int(size) if whole else len(data) - at


def open_record(read: Read, log_offset: int) -> int | None:
    """Return the end of the record within which a slave stands: the log offset itself where a record begins.

    None where neither a record nor a slice of a large one begins: the slave's log is not this one. Blocks.
    """
    if _begins(read, log_offset):
        return log_offset
    for start in range(log_offset - SLICE_BYTES, max(-1, log_offset - LARGEST_RECORD), -SLICE_BYTES):
        head = read(start, _PLACE.size)
        if len(head) < _PLACE.size:
            return None
        size, magic, place = _PLACE.unpack(head)
        if start + size > log_offset and (magic == MAGIC_BLANK or (magic in (MAGIC_V1, MAGIC_V2) and place == start)):
            return int(start + size)
    return None


def _begins(read: Read, log_offset: int) -> bool:
    """Tell whether an intact record, or the blank at a segment's end, begins at a log offset."""
    head = read(log_offset, BLANK_BYTES)
    if len(head) < BLANK_BYTES:
        return False
    size, magic = BLANK.unpack(head)
    if magic == MAGIC_BLANK or not BLANK_BYTES <= size <= LARGEST_RECORD:
        return bool(magic == MAGIC_BLANK)
    try:
        parse_record(read(log_offset, size), 0, log_offset)
    except RecordDamaged:
        return False
    return True
