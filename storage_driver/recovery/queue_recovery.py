"""The queues and their ends: from files up to the restart position, from the log after it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from storage_driver.errors import MessageIllegal, RecordDamaged
from storage_driver.files.disk import Disk, DiskFile, zero_fill
from storage_driver.log.scan import Bad, Blank, intact, is_filler, walk
from storage_driver.log.segment import Segment
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.queue_table import QueueRow, QueueTable, RebuildMark
from storage_driver.record import (
    DELAY_LEVELS_MS,
    SMALLEST_RECORD,
    DispatchEntry,
    MessageQueue,
    encode_topic,
    parse_record,
    tags_code,
)
from storage_driver.recovery.lost_numbers import LostNumbers

FLUSH_ENTRIES = 200_000


class QueueRecovery:
    """Builds the queue table during one recovery."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        files: QueueFiles,
        segments: Sequence[Segment],
        note: Callable[[str], None],
        *,
        delays_ms: tuple[int, ...] = DELAY_LEVELS_MS,
        lost: LostNumbers,
    ) -> None:
        self._delays_ms = delays_ms
        self.queues: dict[MessageQueue, ConsumeQueue] = {}
        self.rebuilt = self.cut = 0
        self._disk, self._folder, self._files = disk, root / "consumequeue", files
        self._segments, self._note = segments, note
        self._found: dict[MessageQueue, list[int]] = {}
        self._fresh: set[MessageQueue] = set()  # queues whose first scanned record has not been seen
        self._broken: set[MessageQueue] = set()
        self._start, self._whole_log = 0, True
        self._ends_hold = True  # the scan begins where the table was complete, or behind: its ends are entries below
        self._unlisted_end = -1  # 0: a queue that the table does not have has no entry below the restart position
        self._lost: list[tuple[int, int]] = []
        self.damaged_bytes = 0  # of the log, found by the scan so far
        self._entries = 0
        self._touched: dict[Path, DiskFile] = {}
        self.trusted: dict[MessageQueue, QueueRow] = {}  # taken from the table, not one file looked at
        self._looked_at: set[MessageQueue] | None = None  # None: all of them
        self._noted_ends: dict[MessageQueue, int] = {}  # of broken queues, as the table has them
        self._mark = RebuildMark(disk, root)
        self.lost = lost

    @property
    def touched(self) -> int:
        """How many files were written and wait for a sync."""
        return len(self._touched)

    def load(self, start: int, lost: list[tuple[int, int]], table: QueueTable) -> None:
        """Find each queue's end below the restart position `start` from its files; `lost` ranges hold no records."""
        self._set_start(start, lost)
        noted, self._ends_hold = {row.key: row for row in table.rows}, table.as_of <= start
        self._unlisted_end = 0 if table.as_of >= start else -1
        for topic in self._disk.list(self._folder):
            if not topic.is_folder:
                continue
            for queue in self._disk.list(self._folder / topic.name):
                if queue.is_folder and queue.name.isdecimal():
                    name = MessageQueue(topic.name, int(queue.name))
                    self._load_queue(name, noted.pop(name, None))
        for row in noted.values():
            self._noted_ends[row.key] = row.end
            self._break(row.key, "missing")
        self._break_unfinished()

    def trust(self, table: QueueTable) -> None:
        """Take the queues from a table that is complete up to its `as_of`; the scan must begin there.

        A queue's files are looked at when the scan meets it, all of them when the log is damaged.
        """
        self._set_start(table.as_of, [])
        self._looked_at = set()
        there = {facts.name for facts in self._disk.list(self._folder) if facts.is_folder}
        topics: dict[str, bytes] = {}
        for row in table.rows:
            if row.key.topic not in there:
                self._noted_ends[row.key] = row.end
                self._break(row.key, "missing")
                continue
            topic = topics.get(row.key.topic)
            if topic is None:
                topic = topics[row.key.topic] = encode_topic(row.key.topic)
            queue = self.queues[row.key] = ConsumeQueue(row.key, topic, end=row.end, first_file=row.first_file)
            queue.last_log_offset = row.last_log_offset
            self.trusted[row.key] = row
        for topic_name in sorted(there - topics.keys()):  # made after the table, or left over from a deletion
            for facts in self._disk.list(self._folder / topic_name):
                if facts.is_folder and facts.name.isdecimal():
                    self._look_at(MessageQueue(topic_name, int(facts.name)))
        self._break_unfinished()

    def _break_unfinished(self) -> None:
        for key in self._mark.load():
            self._break(key, "its rebuild was interrupted")

    def _set_start(self, start: int, lost: list[tuple[int, int]]) -> None:
        self._lost, self._start = lost, start
        self._whole_log = not self._segments or start <= self._segments[0].base

    def _look_at(self, key: MessageQueue) -> None:
        if self._looked_at is not None and key not in self._looked_at:
            self._looked_at.add(key)
            if key not in self._broken:
                self._load_queue(key, self.trusted.pop(key, None))

    def _break(self, key: MessageQueue, why: str) -> None:
        """Mark a queue for rebuilding from the log."""
        self._note(f"consumequeue/{key.topic}/{key.queue_id}: {why}, rebuilt from the log")
        self._broken.add(key)
        if (row := self.trusted.pop(key, None)) is not None:
            self._noted_ends[key] = row.end
        if key not in self.queues:
            self.queues[key] = ConsumeQueue(key, encode_topic(key.topic))
            self._found[key] = []

    def _load_queue(self, key: MessageQueue, noted: QueueRow | None) -> None:
        try:
            topic = encode_topic(key.topic)
        except MessageIllegal:
            return
        firsts, problem = self._file_list(key, noted.end if noted is not None else self._unlisted_end)
        self._found[key] = firsts
        queue = self.queues[key] = ConsumeQueue(key, topic)
        self._fresh.add(key)
        if problem is None and firsts:
            queue.first_file = firsts[0]
            problem = self._find_end(queue, firsts, noted.end if noted is not None else -1)
        if problem is None and noted is not None and firsts and 0 <= noted.first_file < firsts[0]:
            problem = f"begins at {firsts[0]}, had {noted.first_file}"
        if problem is None and noted is not None and self._ends_hold and not self._reaches(queue, noted.end):
            problem = f"ends at {queue.visible}, had {noted.end}"
        if noted is not None:
            self._noted_ends[key] = noted.end
        if problem is not None:
            self._break(key, problem)

    def _reaches(self, queue: ConsumeQueue, end: int) -> bool:
        """Tell whether entries continue to a number, the last of them holes perhaps."""
        at = queue.visible
        while at < end and queue.first_file is not None and self._entry(queue.key, at)[1] == HOLE_SIZE:
            at += 1
        return at >= end

    def _file_list(self, key: MessageQueue, noted_end: int) -> tuple[list[int], str | None]:
        """Return where the queue's files begin, and what is wrong with them."""
        size, firsts = self._files.file_entries * ENTRY_BYTES, []
        for facts in self._disk.list(self._files.folder(key)):
            if facts.is_folder or not facts.name.isdecimal() or int(facts.name) % size:
                return [], f"foreign file {facts.name}"
            if facts.size == 0 and 0 <= noted_end <= int(facts.name) // ENTRY_BYTES:
                self._disk.open(self._folder / key.topic / str(key.queue_id) / facts.name).resize(size)  # just made
            elif facts.size != size:
                return [], f"file {facts.name} has {facts.size} bytes, expected {size}"
            firsts.append(int(facts.name) // ENTRY_BYTES)
        if any(b - a != self._files.file_entries for a, b in pairwise(firsts)):
            return [], "a file is missing"
        return firsts, None

    def _find_end(self, queue: ConsumeQueue, firsts: list[int], hint: int) -> str | None:
        """Set the queue's end to the entries below the restart position; return why they cannot be trusted."""
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
            log_offset, size, _ = self._entry(queue.key, low - 1)
            if size == HOLE_SIZE:
                low -= 1
                continue
            if not self._confirms(queue.key, low - 1, log_offset, size):
                return f"entry {low - 1} points to no record of it"
            queue.last_log_offset = log_offset
            break
        low = max(low, min(end, hint))  # holes below the end that was noted stand for numbers that were given out
        queue.next_offset = queue.visible = queue.written = low
        return None

    def _is_below(self, key: MessageQueue, number: int) -> bool:
        log_offset, size, _ = self._entry(key, number)
        return size > 0 and 0 <= log_offset < self._start

    def _entry(self, key: MessageQueue, number: int) -> tuple[int, int, int]:
        raw = self._files.read(key, number, 1)
        return ENTRY.unpack(raw) if len(raw) == ENTRY_BYTES else (0, 0, 0)

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

    def add(self, entry: DispatchEntry) -> None:
        """Take one record of the scan, in log order."""
        self._take(entry, entry.size, self._code(entry))

    def _code(self, entry: DispatchEntry) -> int:
        return tags_code(entry.topic, entry.properties, entry.stored_ms, self._delays_ms)

    def lose(self, entry: DispatchEntry) -> None:
        """Take a damaged record whose head can be read: its number in the queue stays used."""
        if self.lost.has(entry.log_offset):
            self.lost.add(MessageQueue(entry.topic, entry.queue_id), 1)
        self._take(entry, HOLE_SIZE, 0)

    def _take(self, entry: DispatchEntry, size: int, code: int) -> None:
        key = MessageQueue(entry.topic, entry.queue_id)
        self._look_at(key)
        queue = self.queues.get(key)
        if queue is None:
            try:
                queue = self.queues[key] = ConsumeQueue(key, encode_topic(entry.topic))
            except MessageIllegal:
                return
            self._fresh.add(key)
        if key in self._fresh:
            self._fresh.discard(key)
            if self._whole_log and queue.first_file is None:
                queue.visible = queue.written = entry.queue_offset  # what was before has left the log
            elif self._is_gap(queue, entry.queue_offset) and not self._whole_log and key not in self._broken:
                self._break(key, f"ends at {queue.visible}, the log continues at {entry.queue_offset}")
        if key in self._broken:
            return
        if entry.queue_offset < queue.visible:
            if entry.queue_offset:
                self._break(key, f"ends at {queue.visible}, the log continues at {entry.queue_offset}")
                return
            queue = self._begin_anew(key, entry)
        if entry.queue_offset > queue.visible and self.lost.ranges:
            self.lost.gap(queue, entry)
        queue.add(entry.queue_offset, entry.log_offset, size, code)
        self._entries += 1
        if self._entries > FLUSH_ENTRIES:
            self._write_all()

    def _is_gap(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Tell whether entries are missing below the first one scanned, more than the damage before it explains."""
        return queue_offset - queue.visible > self.damaged_bytes // SMALLEST_RECORD

    def reach(self, end: int, most: int) -> int:
        """Return how far entries after the end of their queue say that the log went, 0 when there are none.

        One entry alone must be that of the first lost record, else it is ignored as garbage.
        """
        asked = [queue for key, queue in self.queues.items() if key not in self.trusted and key not in self._broken]
        said = [(first, at, count) for first, at, count in (self.lost.beyond(q, end, most) for q in asked) if count]
        if min(said, default=(0, 0, 0))[0] != end and sum(count for *_, count in said) < 2:
            return 0
        return max((at for _, at, _ in said), default=0)

    def finish(self, end: int, damaged: list[tuple[int, int]]) -> None:
        """Write what is missing, cut what is after, rebuild broken queues from the log."""
        for key in list(self.trusted) if damaged else ():
            self._look_at(key)  # an entry after the end may stand for a message that was lost
        if self._broken:
            self._rebuild(end)
        self._write_all()
        for key, queue in self.queues.items():
            if key in self.trusted:
                continue
            self._keep_numbering(queue, damaged)
            self._cut(queue)
            queue.next_offset = queue.visible

    def _write_all(self) -> None:
        for queue in self.queues.values():
            entries = queue.waiting()
            if not entries:
                continue
            self._write(queue, entries)  # even if the same is there: a sync that failed leaves it in the cache alone
            queue.wrote(len(entries) // ENTRY_BYTES)
        self._entries = 0

    def _write(self, queue: ConsumeQueue, entries: bytes) -> None:
        for path in self._files.write(queue.key, queue.written, entries, has_files=queue.first_file is not None):
            self._touched[path] = self._disk.open(path)
        if queue.first_file is None:
            queue.first_file = queue.written - queue.written % self._files.file_entries
        self._found.setdefault(queue.key, [])

    def _keep_numbering(self, queue: ConsumeQueue, damaged: list[tuple[int, int]]) -> None:
        """Keep entries after the last record that stand for lost messages, so that no number is given out twice."""
        while queue.first_file is not None:
            log_offset, size, _ = self._entry(queue.key, queue.visible)
            if size != HOLE_SIZE and not (size > 0 and any(a <= log_offset < b for a, b in damaged)):
                break
            if size != HOLE_SIZE and self.lost.has(log_offset):
                self.lost.add(queue.key, 1)
            queue.visible += 1
            queue.written = queue.visible

    def _cut(self, queue: ConsumeQueue) -> None:
        """Zero the entries after the end and delete files behind it."""
        entries, was_cut = self._files.file_entries, False
        for first in self._found.get(queue.key, ()):
            if first >= queue.visible and first != queue.first_file:
                self._disk.remove(self._files.path(queue.key, first))
                was_cut = True
            elif first + entries > queue.visible:
                file = self._files.file(queue.key, first)
                if zero_fill(file, max(0, queue.visible - first) * ENTRY_BYTES, entries * ENTRY_BYTES):
                    self._touched[self._files.path(queue.key, first)] = file
                    was_cut = True
        self.cut += was_cut

    def _begin_anew(self, key: MessageQueue, entry: DispatchEntry) -> ConsumeQueue:
        """Forget what the scan made of the queue so far; files that are the new life's already stay."""
        if self._found.get(key, [])[:1] != [0] or self._entry(key, 0)[0] != entry.log_offset:
            return self._restart(key)
        queue = self.queues[key] = ConsumeQueue(key, self.queues[key].topic_bytes, first_file=0)
        return queue

    def _restart(self, key: MessageQueue) -> ConsumeQueue:
        """Forget what the queue had: its topic was deleted and created again, so its numbers begin at 0."""
        self._files.forget(key)
        self._disk.remove_folder(self._files.folder(key))
        self._touched = {path: file for path, file in self._touched.items() if path.parent != self._files.folder(key)}
        self._found[key] = []
        queue = self.queues[key] = ConsumeQueue(key, self.queues[key].topic_bytes)
        return queue

    def _rebuild(self, end: int) -> None:
        """Write the broken queues again from the whole log."""
        self._mark.set(self._broken)
        for key in sorted(self._broken):
            self._restart(key)
        waiting = set(self._broken)
        for segment in self._segments:
            for item in intact(segment):
                if item.log_offset >= end:
                    break
                key = MessageQueue(item.topic, item.queue_id)
                if key not in self._broken or not is_queued(item.sys_flag) or is_filler(item):
                    continue
                self._rebuild_entry(self.queues[key], item, first=key in waiting)
                waiting.discard(key)
        for key in self._broken:
            queue, noted_end = self.queues[key], self._noted_ends.get(key, 0)
            self.lost.add(key, noted_end - queue.visible)
            if key in waiting and noted_end:
                queue.visible = queue.written = noted_end - 1  # nothing of it is left in the log
            queue.skip_to(noted_end)  # numbers of messages that the log has lost stay used
        self.rebuilt = len(self._broken)

    def _rebuild_entry(self, queue: ConsumeQueue, item: DispatchEntry, *, first: bool) -> None:
        if first:
            queue.visible = queue.written = item.queue_offset
        elif item.queue_offset < queue.visible:
            if item.queue_offset:
                return
            queue = self._restart(queue.key)
        if item.queue_offset > queue.visible:
            self.lost.gap(queue, item, has_files=False)
        queue.add(item.queue_offset, item.log_offset, item.size, self._code(item))
        self._entries += 1
        if self._entries > FLUSH_ENTRIES:
            self._write_all()

    def sync(self) -> None:
        """Return once every file written is on stable storage."""
        for path, file in self._touched.items():
            file.sync()
            self._disk.sync_folder(path.parent)
            self._disk.sync_folder(path.parent.parent)
        if self._touched:
            self._disk.sync_folder(self._folder)
        self.synced()

    def synced(self) -> None:
        """Note that every file written is on stable storage. Raises OSError."""
        self._touched.clear()
        self._mark.clear()
