"""Where a queue's files end below the restart position, confirmed by the log's records."""

from collections.abc import Sequence
from itertools import pairwise

from storage_driver.errors import RecordDamaged
from storage_driver.files.disk import NO_WAY, Disk
from storage_driver.files.unreadable import unreadable_in
from storage_driver.log.scan import Bad, Blank, is_filler, walk, why_unreadable
from storage_driver.log.segment import Segment
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.record import MessageQueue, parse_record


class QueueEnds:
    """Looks at files, and makes a whole one of a file that had just been made."""

    def __init__(self, disk: Disk, files: QueueFiles, segments: Sequence[Segment]) -> None:
        self._disk, self._files, self._segments = disk, files, segments
        self._start, self.whole_log = 0, True  # whether all of the log is above the start
        self._lost: list[tuple[int, int]] = []

    def begin(self, start: int, lost: list[tuple[int, int]]) -> None:
        """Look below log offset `start` from now on; `lost` ranges hold no records."""
        self._start, self._lost = start, lost
        self.whole_log = not self._segments or start <= self._segments[0].base

    def files_of(self, key: MessageQueue, noted_end: int) -> tuple[list[int], str | None]:
        """Return the first entries of the queue's files, and what is wrong with them."""
        size, firsts = self._files.file_entries * ENTRY_BYTES, []
        for facts in self._disk.list(self._files.folder(key)):
            if facts.is_folder or not facts.name.isdecimal() or int(facts.name) % size:
                return [], f"foreign file {facts.name}"
            if facts.size == 0 and 0 <= noted_end <= int(facts.name) // ENTRY_BYTES:
                self._disk.open(self._files.folder(key) / facts.name).resize(size)  # just made
            elif facts.size != size:
                return [], f"file {facts.name} has {facts.size} bytes, expected {size}"
            firsts.append(int(facts.name) // ENTRY_BYTES)
        if any(b - a != self._files.file_entries for a, b in pairwise(firsts)):
            return [], "a file is missing"
        return firsts, None

    def find(self, queue: ConsumeQueue, firsts: list[int], hint: int) -> str | None:
        """Set the queue's end to the entries below the start; return why they cannot be trusted."""
        low, high = firsts[0], firsts[-1] + self._files.file_entries
        if (
            low <= hint < high
            and not self._is_below(queue.key, hint)
            and (hint == low or self._is_below(queue.key, hint - 1))
        ):
            low = high = hint  # the end that was noted is still the end: most queues rest
        while low < high:  # entries rise with the log, so those below the position are a prefix
            middle = (low + high) // 2
            if self._is_below(queue.key, middle):
                low = middle + 1
            else:
                high = middle
        end = low
        while low > firsts[0]:
            log_offset, size, _ = self.entry(queue.key, low - 1)
            if size == HOLE_SIZE:
                low -= 1
                continue
            if not self._confirms(queue.key, low - 1, log_offset, size):
                return f"entry {low - 1} points to no record of it"
            queue.last_log_offset = log_offset
            break
        low = max(low, min(end, hint))  # holes below the end that was noted stand for numbers that were given out
        queue.next_offset = queue.visible = queue.written = low
        return self._unreadable(queue.key, end) if end != hint else None

    def _unreadable(self, key: MessageQueue, end: int) -> str | None:
        """Return why an end is in doubt: what reads as the first zeros may be a bad sector."""
        first = end - end % self._files.file_entries
        try:
            file = self._files.file(key, first)
        except OSError as exc:
            if exc.errno not in NO_WAY:
                raise
            return None  # it is a file's end
        at = (end - first) * ENTRY_BYTES
        return f"the disk does not give back entry {end}" if unreadable_in(file, at, at + ENTRY_BYTES) else None

    def reaches(self, queue: ConsumeQueue, end: int) -> bool:
        """Tell whether entries continue to a number, the last of them holes perhaps."""
        at = queue.visible
        while at < end and queue.first_file is not None and self.entry(queue.key, at)[1] == HOLE_SIZE:
            at += 1
        return at >= end

    def entry(self, key: MessageQueue, number: int) -> tuple[int, int, int]:
        """Return log offset, size and tag code of an entry; zeros where there is none."""
        raw = self._files.read(key, number, 1)
        return ENTRY.unpack(raw) if len(raw) == ENTRY_BYTES else (0, 0, 0)

    def _is_below(self, key: MessageQueue, number: int) -> bool:
        log_offset, size, _ = self.entry(key, number)
        return size > 0 and 0 <= log_offset < self._start

    def _confirms(self, key: MessageQueue, number: int, log_offset: int, size: int) -> bool:
        """Tell whether the log holds this queue's record there; below the log's first byte it cannot be asked."""
        if not self._segments or log_offset < self._segments[0].base:
            return True
        at = (log_offset - self._segments[0].base) // self._segments[0].size
        if at >= len(self._segments):
            return False
        segment = self._segments[at]
        try:
            entry = parse_record(segment.file.read(size, log_offset - segment.base), 0, log_offset, check_crc=False)
        except RecordDamaged:
            if why_unreadable(segment, log_offset, log_offset + size) is not None:
                return True  # it says nothing against the entry; its readers hear of it
            return self._is_lost(segment, log_offset)
        return is_filler(entry) or (entry.topic, entry.queue_id, entry.queue_offset) == (*key, number)

    def _is_lost(self, segment: Segment, log_offset: int) -> bool:
        """Tell whether a log offset is in a range that was lost and covered."""
        if any(a <= log_offset < b for a, b in self._lost):
            return True
        for item in walk(segment, segment.base):
            if isinstance(item, Blank):
                return True
            if isinstance(item, Bad):
                return item.log_offset <= log_offset
            if item.log_offset + item.size > log_offset:
                return is_filler(item)
        return False
