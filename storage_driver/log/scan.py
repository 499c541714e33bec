"""Walking the records of a segment, finding the next good one behind damage, covering damage with filler."""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from struct import error as StructError

from storage_driver.errors import RecordDamaged
from storage_driver.files.disk import data_pieces, zero_fill
from storage_driver.files.unreadable import unreadable_in
from storage_driver.log.segment import Segment
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import (
    BLANK,
    BLANK_BYTES,
    MAGIC_BLANK,
    SMALLEST_RECORD,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    DispatchEntry,
    Message,
    encode_record,
    parse_record,
)

BLOCK_BYTES = 1 << 20
FILLER_TOPIC = "_"
MOST_FILLER_BYTES = 1 << 20
_MAGIC_START = b"\xda\xa3\x20"
_FILLER_HEAD = SMALLEST_RECORD + len(FILLER_TOPIC)
_HEAD = Struct(">i24xq")  # size and log offset of a record
_NOWHERE = b"\x7f\0\0\1\0\0\0\0"


class Blank(NamedTuple):
    """The rest of the segment is unused."""

    log_offset: int


class Bad(NamedTuple):
    """No good record is here; `lost` is what the bytes say they are when only the body is wrong."""

    log_offset: int
    reason: str
    lost: DispatchEntry | None


def is_filler(entry: DispatchEntry) -> bool:
    """Tell whether a record only covers a damaged range."""
    return entry.topic == FILLER_TOPIC and entry.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK


def covered(segments: Iterable[Segment], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what of a log range is filler or blank, from where that begins in each segment. Raises OSError."""
    for segment in segments:
        at = begin = max(start, segment.base)
        while at < min(end, segment.end):
            item = next(walk(segment, at, check_crc=False))
            if isinstance(item, Blank):
                at = segment.end
            elif isinstance(item, DispatchEntry) and is_filler(item):
                at += item.size
            else:
                break
        if begin < at:
            yield begin, min(at, end)


def walk(segment: Segment, at: int, *, check_crc: bool = True) -> Iterator[DispatchEntry | Blank | Bad]:
    """Yield the records of a segment from a log offset on; the last item is a Blank or a Bad."""
    data, start = b"", at  # data holds the segment's bytes from log offset `start` on
    while True:
        left = segment.end - at
        i = at - start
        if len(data) - i < BLANK_BYTES:
            data, start, i = segment.file.read(min(BLOCK_BYTES, left), at - segment.base), at, 0
        if left < BLANK_BYTES or len(data) < BLANK_BYTES:
            yield Bad(at, f"{min(left, len(data))} bytes left", None)
            return
        size, magic = BLANK.unpack_from(data, i)
        if magic == MAGIC_BLANK and size == left:
            yield Blank(at)
            return
        if len(data) - i < size <= left:
            data, start, i = segment.file.read(min(max(size, BLOCK_BYTES), left), at - segment.base), at, 0
        try:
            entry = parse_record(data, i, at, check_crc=check_crc)
        except RecordDamaged as exc:
            unread = why_unreadable(segment, at, at + (size if 0 < size <= left else 1))
            yield Bad(at, unread or exc.reason, _without_crc(segment, data, i, at))
            return
        if (unread := why_unreadable(segment, at, at + entry.size)) is not None:  # no checksum covers all of it
            yield Bad(at, unread, _without_crc(segment, data, i, at))
            return
        yield entry
        at += entry.size


def why_unreadable(segment: Segment, start: int, end: int) -> str | None:
    """Return why a range of the log is not what was stored where the disk did not give back all of it, else None."""
    found = unreadable_in(segment.file, start - segment.base, end - segment.base)
    if not found:
        return None
    return f"the disk does not give back bytes {segment.base + found[0][0]} to {segment.base + found[-1][1]}"


def _without_crc(segment: Segment, data: bytes, at: int, log_offset: int) -> DispatchEntry | None:
    """Return what a record says that it is, None where its head or its end cannot be read."""
    try:
        entry = parse_record(data, at, log_offset, check_crc=False)
    except RecordDamaged:
        return None
    end = log_offset + entry.size
    behind_body = end - len(entry.properties) - len(entry.topic.encode("utf-8", "surrogatepass")) - 4
    for start, stop in ((log_offset, log_offset + SMALLEST_RECORD), (behind_body, end)):
        if why_unreadable(segment, start, stop) is not None:
            return None
    return entry


def next_good(segment: Segment, after: int) -> int | None:
    """Return the log offset of the first good record at or behind `after` in this segment."""
    carry, carry_at = b"", -1
    for at, piece in data_pieces(segment.file, max(0, after - segment.base), segment.size):
        if carry_at + len(carry) != at:
            carry, carry_at = b"", at
        data, base = carry + piece, carry_at
        found = data.find(_MAGIC_START)
        while found >= 0:
            candidate = segment.base + base + found - 4
            if candidate >= after and _is_good(segment, candidate):
                return candidate
            found = data.find(_MAGIC_START, found + 1)
        keep = len(_MAGIC_START) - 1
        carry, carry_at = data[-keep:], base + len(data) - keep
    return None


def damage_end(segment: Segment, bad: Bad) -> int:
    """Return the log offset behind what is no record: of the next good one, or the segment's end."""
    behind = next_good(segment, bad.log_offset + 1)
    return segment.end if behind is None else behind


def intact(segment: Segment, told: Callable[[Bad, int], None] = lambda bad, end: None) -> Iterator[DispatchEntry]:
    """Yield every intact record of a segment, also those behind damage; told(bad, log offset behind it) of each."""
    at = segment.base
    while at < segment.end:
        start, at = at, segment.end
        for item in walk(segment, start):
            if isinstance(item, Bad):
                at = damage_end(segment, item)
                told(item, at)
            elif not isinstance(item, Blank):
                yield item


def _is_good(segment: Segment, log_offset: int) -> bool:
    head = segment.file.read(_HEAD.size, log_offset - segment.base)
    try:
        size, place = _HEAD.unpack(head)
        if place != log_offset or not SMALLEST_RECORD <= size <= segment.end - log_offset:
            return False  # without reading it: a body may hold a hundred thousand heads, each of a record of 1 GiB
        parse_record(segment.file.read(size, log_offset - segment.base), 0, log_offset)
    except (RecordDamaged, StructError):
        return False
    return why_unreadable(segment, log_offset, log_offset + size) is None


def fill(segment: Segment, start: int, end: int, stored_ms: int) -> int:
    """Cover [start, end) with records that no reader sees, or with a blank at the segment's end; return where it ends.

    A range shorter than the smallest record also covers the good record after it: the returned end may be higher.
    """
    if end >= segment.end:
        if segment.end - start >= BLANK_BYTES:
            zero_fill(segment.file, start - segment.base + BLANK_BYTES, segment.size)
            segment.file.write([BLANK.pack(segment.end - start, MAGIC_BLANK)], start - segment.base)
        return segment.end
    while end - start < _FILLER_HEAD:
        following = next(walk(segment, end))
        if not isinstance(following, DispatchEntry):
            return fill(segment, start, segment.end, stored_ms)
        end += following.size
    at = start
    while at < end:
        size = end - at
        if size > MOST_FILLER_BYTES:
            size = min(MOST_FILLER_BYTES, size - _FILLER_HEAD)
        body = bytes(size - _FILLER_HEAD)
        message = Message(FILLER_TOPIC, 0, body, b"", 0, TRANSACTION_ROLLBACK, stored_ms, _NOWHERE)
        topic = bytes((len(FILLER_TOPIC),)) + FILLER_TOPIC.encode()
        record = encode_record(message, topic, 0, at, stored_ms=stored_ms, store_host=_NOWHERE)
        segment.file.write([record], at - segment.base)
        at += size
    return end
