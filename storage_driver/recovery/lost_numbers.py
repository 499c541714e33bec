"""Counts the numbers in queues whose messages lay in a lost range of the log, before the queue files are repaired."""

from collections.abc import Iterator
from itertools import takewhile

from storage_driver.log.scan import Bad
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.record import SMALLEST_RECORD, DispatchEntry, MessageQueue

AT_ONCE = 4096  # entries
MOST_UNKNOWN = 1000  # numbers of a queue


class LostNumbers:
    """The count of each queue; `ranges` of the log are lost, more may be found while the log is scanned."""

    def __init__(self, files: QueueFiles) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.counts: dict[MessageQueue, int] = {}
        self.unread: list[tuple[Bad, int]] = []  # what a rebuild could not read, and where it ends: no entry has it
        self.headless: list[tuple[int, int]] = []  # ranges of the log of which nobody knows whose records they held
        self._files = files

    def unknown_after(self, log_offset: int) -> int:
        """Return how many records of one queue may have been in such ranges above a log offset."""
        return min(MOST_UNKNOWN, sum(b - a for a, b in self.headless if a > log_offset) // SMALLEST_RECORD)

    def has(self, log_offset: int) -> bool:
        """Tell whether a log offset is lost."""
        return any(start <= log_offset < end for start, end in self.ranges)

    def add(self, key: MessageQueue, count: int) -> None:
        """Count messages, if anything of the log is lost."""
        if self.ranges and count > 0:
            self.counts[key] = self.counts.get(key, 0) + count

    def gap(self, queue: ConsumeQueue, entry: DispatchEntry, *, has_files: bool = True) -> None:
        """Count the numbers between a queue's end and its next record that lay in a lost range."""
        before = queue.last_log_offset
        if not any(before < end and start < entry.log_offset for start, end in self.ranges):
            return
        first, count = queue.visible, entry.queue_offset - queue.visible
        known = self._entries(queue.key, first, entry.queue_offset) if has_files else ()
        for log_offset, size in known:
            if size == HOLE_SIZE or (size > 0 and not self.has(log_offset)) or (before < 0 and size <= 0):
                count -= 1  # a hole was told before; what is before the log's first byte has left with it
        if before >= 0 or has_files:
            self.add(queue.key, count)

    def _entries(self, key: MessageQueue, first: int, stop: int) -> Iterator[tuple[int, int]]:
        while first < stop:
            raw = self._files.read(key, first, min(AT_ONCE, stop - first))
            if not raw:
                return
            for log_offset, size, _ in ENTRY.iter_unpack(raw[: len(raw) // ENTRY_BYTES * ENTRY_BYTES]):
                yield log_offset, size
            first += len(raw) // ENTRY_BYTES

    def beyond(self, queue: ConsumeQueue, end: int, most: int) -> tuple[int, int, int]:
        """Return where a queue's entries after its end begin in the log, how far they go there, how many there are.

        They must be one after the other in the log, from its end up to `most`, else nobody wrote them in this order.
        """
        first, at, count = most, end, 0
        for log_offset, size in self._entries(queue.key, queue.visible, 1 << 62):
            if size == HOLE_SIZE:
                continue
            if size == 0:
                break
            if size < SMALLEST_RECORD or not at <= log_offset <= most:
                return most, end, 0
            first, at, count = min(first, log_offset), log_offset + size, count + 1
        return first, at, count

    def whole(self, queue: ConsumeQueue, below: int = 1 << 63) -> None:
        """Count all entries of a queue that are in a lost range, and below a log offset."""
        if queue.first_file is not None:
            entries = self._entries(queue.key, queue.first_file, queue.visible)
            until = takewhile(lambda entry: entry[1] in (0, HOLE_SIZE) or entry[0] < below, entries)
            self.add(queue.key, sum(size not in (0, HOLE_SIZE) and self.has(at) for at, size in until))
