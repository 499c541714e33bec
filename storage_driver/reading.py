"""Queue entries → record bytes, with nothing re-encoded; the same steps from the page cache and from the disk."""

from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Final, Protocol

from storage_driver.files.unreadable import only_unreadable
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from storage_driver.record import (
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    MessageQueue,
)

MOST_SCANNED: Final = 800  # entries, as Apache's 16000 bytes
SLICE: Final = 64
_HEAD: Final = Struct(">ii20xqi")  # size, magic, log offset, flags
RUN_BYTES: Final = 256 * 1024  # neighbouring records are read together up to this


class FoundStatus(Enum):
    """Outcome of a read, named as Apache's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED = "NO_MATCHED_MESSAGE"
    REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(NamedTuple):
    """What a read found; each chunk is one or more whole records."""

    status: FoundStatus
    chunks: list[bytes]
    records: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slow: bool = False


class ReadRequest(NamedTuple):
    """What a read asks for; `accepts` takes a tag code, `accepts_record` a whole record."""

    queue: MessageQueue
    queue_offset: int
    max_count: int
    max_bytes: int
    accepts: Callable[[int], bool] | None = None
    accepts_record: Callable[[memoryview], bool] | None = None


class WouldBlock(Exception):
    """It is not in the page cache."""


class SuspectEntry(Exception):
    """An entry below the queue's end points to no record: it must not be skipped before the log was checked."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Source(Protocol):
    """Where entries and log bytes come from. Both may raise WouldBlock."""

    def entries(self, queue_offset: int, count: int) -> bytes:
        """Return up to count entries of the queue, none when they cannot be read."""

    most_between: int  # bytes of others' between two records that are read together

    def records(self, places: list[tuple[int, int]], total: int) -> bytes | None:
        """Return the records at rising places of one segment, `total` bytes, joined; None when they are gone."""


def edge(wanted: ReadRequest, low: int, high: int) -> ReadResult | None:
    """Return the answer for an offset that no message can have, None for one within the queue."""
    at = wanted.queue_offset
    if high == 0:
        return ReadResult(FoundStatus.NO_MESSAGE_IN_QUEUE, [], 0, 0, low, high)
    if at < low:
        return ReadResult(FoundStatus.OFFSET_TOO_SMALL, [], 0, low, low, high)
    if at == high:
        return ReadResult(FoundStatus.OFFSET_OVERFLOW_ONE, [], 0, at, low, high)
    if at > high:
        return ReadResult(FoundStatus.OFFSET_OVERFLOW_BADLY, [], 0, high, low, high)
    return None


def collect(source: Source, wanted: ReadRequest, low: int, high: int, *, doubt: bool = True) -> ReadResult:
    """Read from wanted.queue_offset on until the batch is full, the queue ends or 800 entries were looked at.

    Raises SuspectEntry at an entry that leads nowhere and is no hole; with `doubt` off such entries are skipped.
    """
    chunks: list[bytes] = []
    count = taken = matched = 0
    at, stop = wanted.queue_offset, min(high, wanted.queue_offset + max(MOST_SCANNED, wanted.max_count))
    full = False
    while at < stop and not full:
        raw = _entries(source, at, min(SLICE, stop - at), doubt=doubt)
        if not raw:
            if doubt:
                raise SuspectEntry(at)
            break
        picked: list[tuple[int, int]] = []
        begin = at
        room = max(1, wanted.max_count) - count
        for log_offset, size, code in ENTRY.iter_unpack(raw[: len(raw) - len(raw) % ENTRY_BYTES]):
            if size != HOLE_SIZE and size >= SMALLEST_RECORD and (wanted.accepts is None or wanted.accepts(code)):
                if len(picked) >= room or (taken and taken + size > wanted.max_bytes):
                    full = True
                    break
                picked.append((log_offset, size))
                taken += size
            elif size < SMALLEST_RECORD and doubt:
                raise SuspectEntry(at)
            at += 1
        matched += len(picked)
        got = fetch(source, picked, wanted.accepts_record)
        if got[2] and doubt:
            raise SuspectEntry(_number(raw, begin, got[2][0]))
        count += got[1]
        chunks += got[0]
        if full and picked and wanted.accepts_record is not None and count < wanted.max_count:
            taken, full = sum(map(len, chunks)), False  # what was refused takes no room
    if at == wanted.queue_offset and not count:
        return ReadResult(FoundStatus.OFFSET_FOUND_NULL, [], 0, at + 1, low, high)
    return ReadResult(_status(count, matched, wanted), chunks, count, at, low, high)


def _entries(source: Source, at: int, count: int, *, doubt: bool) -> bytes:
    """Return entries; a bad sector among them is as wrong ones: the log has what they said. Raises SuspectEntry."""
    try:
        return source.entries(at, count)
    except OSError as exc:
        only_unreadable(exc)
        if not doubt:
            raise
        for number in range(at, at + count):
            try:
                source.entries(number, 1)
            except OSError:
                raise SuspectEntry(number) from exc
        raise


def _status(count: int, matched: int, wanted: ReadRequest) -> FoundStatus:
    if count:
        return FoundStatus.FOUND
    return FoundStatus.REMOVING if matched and wanted.accepts_record is None else FoundStatus.NO_MATCHED


def _number(raw: bytes, first: int, log_offset: int) -> int:
    """Return which of these entries, the first of which has number `first`, points there."""
    return first + next(i for i, entry in enumerate(ENTRY.iter_unpack(raw)) if entry[0] == log_offset)


def fetch(
    source: Source, picked: list[tuple[int, int]], accepts: Callable[[memoryview], bool] | None
) -> tuple[list[bytes], int, list[int]]:
    """Return the records at these places, neighbours joined, their number, and the places that hold no such record."""
    chunks: list[bytes] = []
    missing: list[int] = []
    count, first, most_between = 0, 0, source.most_between
    while first < len(picked):
        start, size = picked[first]
        behind, end, total = first + 1, start + size, size
        while behind < len(picked):
            log_offset, size = picked[behind]
            if not 0 <= log_offset - end <= most_between or log_offset + size - start > RUN_BYTES:
                break
            behind, end, total = behind + 1, log_offset + size, total + size
        run, first = picked[first:behind], behind
        data = source.records(run, total)
        if data is None or len(data) < total:
            if len(run) == 1:
                missing.append(start)
                continue
            for one in run:  # the neighbours may still be there
                more, n, lost = fetch(source, [one], accepts)
                chunks, count, missing = chunks + more, count + n, missing + lost
            continue
        good, lost = _whole(data, run, accepts)
        missing += lost
        if len(good) == len(run):
            chunks.append(data)
        else:
            chunks += [data[at : at + size] for at, size in good]
        count += len(good)
    return chunks, count, missing


def _whole(
    data: bytes, run: list[tuple[int, int]], accepts: Callable[[memoryview], bool] | None
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return where in data the records are that are wanted, and the places of this run that hold no such record."""
    good: list[tuple[int, int]] = []
    missing: list[int] = []
    at = 0
    for log_offset, size in run:
        if _is_record(data, at, log_offset, size):
            good.append((at, size))
        else:
            missing.append(log_offset)
        at += size
    if accepts is not None:
        view = memoryview(data)
        good = [(at, size) for at, size in good if accepts(view[at : at + size])]
    return good, missing


def _is_record(data: bytes, at: int, log_offset: int, size: int) -> bool:
    found, magic, phys, sys_flag = _HEAD.unpack_from(data, at)
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return False  # covers what was lost
    return found == size and phys == log_offset and magic in (MAGIC_V1, MAGIC_V2)
