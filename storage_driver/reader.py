"""Reading for consumers: from memory and page cache within the loop, from the disk in a bounded thread."""

import bisect
from collections.abc import Callable, Container, Sequence
from typing import Final

from storage_driver.errors import RecordDamaged, UnreadableRecord
from storage_driver.files.unreadable import only_unreadable
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import Segment
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.reading import SuspectEntry, WouldBlock
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD, parse_record, stored_ms_of

MOST_BETWEEN: Final = 8 << 10  # bytes; to copy them takes less than another call
_UNWANTED: Final = memoryview(bytearray(MOST_BETWEEN))  # where they go
HEAD_BYTES: Final = 76  # enough of any record to read its store time


class HotSource:
    """Memory and page cache; raises WouldBlock where the disk would be needed."""

    __slots__ = ("_damaged", "_files", "_log", "_queue", "most_between")

    def __init__(
        self, log: CommitLog, files: QueueFiles, queue: ConsumeQueue, damaged: Sequence[tuple[int, int, str]] = ()
    ) -> None:
        self._log, self._files, self._queue, self._damaged = log, files, queue, damaged
        self.most_between = MOST_BETWEEN

    def entries(self, queue_offset: int, count: int) -> bytes:
        held = self._queue.held(queue_offset, count)
        if held is not None:
            return held
        raw = self._files.read_open(self._queue.key, queue_offset, min(count, self._queue.written - queue_offset))
        if raw is None:
            raise WouldBlock
        return raw

    def records(self, places: list[tuple[int, int]], total: int) -> bytes | None:
        first, end = places[0][0], places[-1][0] + places[-1][1]
        if end - first == total:
            return self.log(first, total)
        segment = self._log.segment_of(first)
        if segment is not None and not self._damaged and end <= segment.end:
            buffer = bytearray(total)
            if segment.file.fill_hot(_scattered(places, memoryview(buffer)), first - segment.base):
                return bytes(buffer)
        parts: list[bytes] = []
        for log_offset, size in places:  # what lies between them may be what is not in memory
            part = self.log(log_offset, size)
            if part is None:
                return None
            parts.append(part)
        return b"".join(parts)

    def log(self, log_offset: int, count: int) -> bytes | None:
        """Return bytes of one segment, None when they are gone. Raises WouldBlock."""
        segment = self._log.segment_of(log_offset)
        if segment is None or log_offset + count > segment.end:
            return None
        if self._damaged and any(a < log_offset + count and log_offset < b for a, b, _ in self._damaged):
            raise WouldBlock  # bodies are checked by the reader that waits for the disk
        data = segment.file.read_hot(count, log_offset - segment.base)
        if data is None:
            raise WouldBlock
        return data


def _scattered(places: list[tuple[int, int]], target: memoryview) -> list[memoryview]:
    """Return where a read of all that lies from the first record to the last goes: the records into the target."""
    buffers: list[memoryview] = []
    at = begin = 0
    end = places[0][0]
    for log_offset, size in places:
        if log_offset > end:
            buffers.append(target[begin:at])
            buffers.append(_UNWANTED[: log_offset - end])
            begin = at
        at += size
        end = log_offset + size
    buffers.append(target[begin:at])
    return buffers


class ColdSource:
    """A snapshot of one queue and the log for a thread; checks the body CRC of what it reads."""

    def __init__(
        self, segments: Sequence[Segment], files: QueueFiles, queue: ConsumeQueue, given_up: Container[int] = ()
    ) -> None:
        """given_up: log offsets of records that the disk does not give back; their entries count as holes."""
        self.damaged: list[tuple[int, int, str]] = []  # log ranges that the disk no longer gives back intact, why
        self.last_read = -1  # highest log offset read
        self.files, self.most_between = files, 0
        self._segments, self._key, self._given_up = segments, queue.key, given_up
        self._alone = -1
        self._held, self._written = queue.waiting(), queue.written

    def entries(self, queue_offset: int, count: int) -> bytes:
        if queue_offset >= self._written:
            at = (queue_offset - self._written) * ENTRY_BYTES
            raw = self._held[at : at + count * ENTRY_BYTES]
        else:
            raw = self.files.read(self._key, queue_offset, min(count, self._written - queue_offset))
        return with_holes(raw, self._given_up) if self._given_up else raw

    def records(self, places: list[tuple[int, int]], total: int) -> bytes | None:
        try:
            return self.log(places[0][0], total)
        except OSError as exc:
            only_unreadable(exc)
            if len(places) > 1:
                return None  # each is asked for alone next
            raise UnreadableRecord(*places[0], exc) from exc

    def log(self, log_offset: int, count: int) -> bytes | None:
        """Return whole records that follow one another, None when they are gone or damaged. Raises OSError."""
        data, at = read_log(self._segments, log_offset, count), 0
        if data is None or len(data) < count:
            return None
        self.last_read = max(self.last_read, log_offset)
        while at < count:
            try:
                size = parse_record(data, at, log_offset + at).size
            except RecordDamaged as exc:
                if at == 0 and (self._alone == log_offset or BLANK.unpack_from(data)[0] == count):
                    self.damaged.append((log_offset, log_offset + count, exc.reason))
                self._alone = log_offset
                return None  # asked for with neighbours, each is asked for alone next
            at += size
        return data

    def stored_ms(self, queue_offset: int) -> int | None:
        """Return the store time of one message, None when it is not there.

        Raises SuspectEntry, UnreadableRecord where the disk does not give it back, OSError.
        """
        try:
            raw = self.entries(queue_offset, 1)
        except OSError as exc:
            only_unreadable(exc)
            raise SuspectEntry(queue_offset) from exc
        if len(raw) < ENTRY_BYTES:
            return None
        log_offset, size, _ = ENTRY.unpack(raw)
        if size == HOLE_SIZE or size < SMALLEST_RECORD:
            return None
        try:
            head = read_log(self._segments, log_offset, HEAD_BYTES)
        except OSError as exc:
            only_unreadable(exc)
            raise UnreadableRecord(log_offset, size, exc) from exc
        return stored_ms_of(head) if head is not None and len(head) == HEAD_BYTES else None


def with_holes(entries: bytes, given_up: Container[int]) -> bytes:
    """Return entries with holes in place of those that lead to these log offsets."""
    whole = entries[: len(entries) - len(entries) % ENTRY_BYTES]
    return b"".join(HOLE if row[0] in given_up else ENTRY.pack(*row) for row in ENTRY.iter_unpack(whole))


def segment_at(segments: Sequence[Segment], log_offset: int) -> Segment | None:
    """Return the segment that holds a log offset."""
    at = bisect.bisect_right(segments, log_offset, key=lambda segment: segment.base) - 1
    return segments[at] if at >= 0 and log_offset < segments[at].end else None


def read_log(segments: Sequence[Segment], log_offset: int, count: int) -> bytes | None:
    """Return bytes of the log, cut at the segment's end, None when no segment holds the offset. Raises OSError."""
    segment = segment_at(segments, log_offset)
    if segment is None:
        return None
    return segment.file.read(min(count, segment.end - log_offset), log_offset - segment.base)


def read_record(segments: Sequence[Segment], log_offset: int, size: int | None, end: int) -> bytes | None:
    """Return one whole intact record that begins at a log offset below end, None when there is none. Raises OSError."""
    if log_offset < 0 or log_offset >= end:
        return None
    head = read_log(segments, log_offset, BLANK_BYTES)
    if head is None or len(head) < BLANK_BYTES:
        return None
    found, magic = BLANK.unpack(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or found < SMALLEST_RECORD or size not in (None, found):
        return None
    data = read_log(segments, log_offset, found)
    try:
        parse_record(data or b"", 0, log_offset)
    except RecordDamaged:
        return None
    return data


def lowest(entry: Callable[[int], tuple[int, int]], low: int, high: int, first: int) -> int:
    """Return the lowest entry in [low, high) whose record begins at log offset `first` or above, else high.

    `entry` gives log offset and size; holes take the answer of the next real entry, and are never the answer.
    """
    found = high
    while low < high:
        middle = (low + high) // 2
        at = middle
        log_offset, size = entry(at)
        while size == HOLE_SIZE and at + 1 < high:
            at += 1
            log_offset, size = entry(at)
        if size == HOLE_SIZE:
            high = middle  # nothing but holes from here on: they say nothing of what is before them
        elif log_offset >= first:
            found, high = at, middle
        else:
            low = at + 1
    return found


def nearest(stored_ms: Callable[[int], int | None], low: int, high: int, time_ms: int) -> int:
    """Return the entry in [low, high) stored nearest to a time, the earlier one of two; low must be below high.

    Source: RocketMQ 4.9.8 ConsumeQueue.getOffsetInQueueByTime, over the whole queue.
    """
    after = first_from(stored_ms, low, high, time_ms)
    if after == high:
        return high - 1
    later = stored_ms(after)
    if after == low or later is None or later == time_ms:
        return after
    earlier = stored_ms(after - 1)
    return after - 1 if earlier is not None and time_ms - earlier <= later - time_ms else after


def first_from(stored_ms: Callable[[int], int | None], low: int, high: int, time_ms: int) -> int:
    """Return the first entry in [low, high) stored at or after a time, high when there is none."""
    first = high
    while low < high:
        middle = (low + high) // 2
        at, found = middle, stored_ms(middle)
        while found is None and at + 1 < high:
            at += 1
            found = stored_ms(at)
        if found is None:
            high = middle  # nothing but holes from here on
        elif found >= time_ms:
            first = high = middle
        else:
            low = at + 1
    return first
