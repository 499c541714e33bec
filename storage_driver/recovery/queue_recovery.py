"""The queues and their ends: from files up to the restart position, from the log after it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from storage_driver.errors import MessageIllegal
from storage_driver.files.disk import Disk
from storage_driver.files.unreadable import only_unreadable
from storage_driver.log.scan import Bad, intact, is_filler, why_unreadable
from storage_driver.log.segment import Segment
from storage_driver.log.unwritable import keep_blocks
from storage_driver.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.queue_table import QueueRow, QueueTable, RebuildMark
from storage_driver.record import (
    DELAY_LEVELS_MS,
    SMALLEST_RECORD,
    DispatchEntry,
    MessageQueue,
    encode_topic,
    tags_code,
)
from storage_driver.recovery.lost_numbers import LostNumbers
from storage_driver.recovery.noted_queues import NotedQueues
from storage_driver.recovery.odd_numbers import HeldRecord, OddNumbers, is_legal, is_right, wrong_numbers
from storage_driver.recovery.queue_ends import QueueEnds
from storage_driver.recovery.recovered_files import RecoveredFiles

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
        odd: OddNumbers,
    ) -> None:
        self._disk, self._segments, self._note = disk, segments, note
        self._delays_ms, self.lost, self.odd = delays_ms, lost, odd
        self.queues: dict[MessageQueue, ConsumeQueue] = {}
        self.rebuilt = 0
        self.damaged_bytes = 0  # of the log, found by the scan so far
        self.noted, self._ends = NotedQueues(), QueueEnds(disk, files, segments)
        self.files = RecoveredFiles(disk, root, files)
        self._fresh: set[MessageQueue] = set()  # queues whose first scanned record has not been seen
        self._broken: set[MessageQueue] = set()
        self._entries = 0
        self._mark = RebuildMark(disk, root)

    def load(self, start: int, lost: list[tuple[int, int]], table: QueueTable) -> None:
        """Find each queue's end below the restart position `start` from its files; `lost` ranges hold no records."""
        self._ends.begin(start, lost)
        noted = self.noted.check(table, start)
        for topic in self._disk.list(self.files.folder):
            if not topic.is_folder:
                continue
            for queue in self._disk.list(self.files.folder / topic.name):
                if queue.is_folder and queue.name.isdecimal():
                    name = MessageQueue(topic.name, int(queue.name))
                    self._load_queue(name, noted.pop(name, None))
        for row in noted.values():
            self.noted.note(row)
            self._break(row.key, "missing")
        self._break_unfinished()

    def trust(self, table: QueueTable) -> None:
        """Take the queues from a table that is complete up to its `as_of`; the scan must begin there.

        A queue's files are looked at when the scan meets it, all of them when the log is damaged.
        """
        self._ends.begin(table.as_of, [])
        self.noted.trust()
        there = {facts.name for facts in self._disk.list(self.files.folder) if facts.is_folder}
        topics: dict[str, bytes] = {}
        for row in table.rows:
            if row.key.topic not in there:
                self.noted.note(row)
                self._break(row.key, "missing")
                continue
            topic = topics.get(row.key.topic)
            if topic is None:
                topic = topics[row.key.topic] = encode_topic(row.key.topic)
            queue = self.queues[row.key] = ConsumeQueue(row.key, topic, end=row.end, first_file=row.first_file)
            queue.last_log_offset = row.last_log_offset
            self.noted.trusted[row.key] = row
        for topic_name in sorted(there - topics.keys()):  # made after the table, or left over from a deletion
            for facts in self._disk.list(self.files.folder / topic_name):
                if facts.is_folder and facts.name.isdecimal():
                    self._look_at(MessageQueue(topic_name, int(facts.name)))
        self._break_unfinished()

    def _break_unfinished(self) -> None:
        for key in self._mark.load():
            self._break(key, "its rebuild was interrupted")

    def _look_at(self, key: MessageQueue) -> None:
        if self.noted.to_look_at(key) and key not in self._broken:
            self._load_queue(key, self.noted.trusted.pop(key, None))

    def _break(self, key: MessageQueue, why: str) -> None:
        """Mark a queue for rebuilding from the log."""
        self._note(f"consumequeue/{key.topic}/{key.queue_id}: {why}, rebuilt from the log")
        self._broken.add(key)
        self.noted.note(self.noted.trusted.pop(key, None))
        if key not in self.queues:
            self.queues[key] = ConsumeQueue(key, encode_topic(key.topic))
            self.files.firsts[key] = []

    def _load_queue(self, key: MessageQueue, noted: QueueRow | None) -> None:
        try:
            topic = encode_topic(key.topic)
        except MessageIllegal:
            return
        firsts, problem = self._ends.files_of(key, self.noted.made_end(noted))
        self.files.firsts[key] = firsts
        queue = self.queues[key] = ConsumeQueue(key, topic)
        self._fresh.add(key)
        if problem is None and firsts:
            queue.first_file = firsts[0]
            problem = self._ends.find(queue, firsts, noted.end if noted is not None else -1)
        if problem is None and noted is not None and firsts and 0 <= noted.first_file < firsts[0]:
            problem = f"begins at {firsts[0]}, had {noted.first_file}"
        if problem is None and noted is not None and not self._ends.reaches(queue, self.noted.must_reach(noted)):
            problem = f"ends at {queue.visible}, had {noted.end}"
        self.noted.note(noted)
        if problem is not None:
            self._break(key, problem)

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
        if not is_legal(key):
            self.odd.wrong.append(entry)
            return
        self._look_at(key)
        if key not in self.queues:
            self.queues[key] = ConsumeQueue(key, encode_topic(entry.topic))
            self._fresh.add(key)
        self._settle(key, entry.queue_offset)
        if key in self._broken:
            return
        if entry.queue_offset == (self._expected(key) or 0):
            self._place(key, entry, size, code)
        else:
            self.odd.hold(key, HeldRecord(entry, size, code))

    def _expected(self, key: MessageQueue) -> int | None:
        """Return the number that the next record of a queue has, None where the log begins with it."""
        queue = self.queues[key]
        return None if self._ends.whole_log and queue.first_file is None and key in self._fresh else queue.visible

    def _settle(self, key: MessageQueue, following: int | None) -> None:
        """Place the record that is held of a queue, or a hole for it when its number is wrong."""
        held = self.odd.take(key)
        if held is None or key in self._broken:  # a rebuild sees it again
            return
        expected = self._expected(key)
        if is_right(held.entry, expected, following):
            self._place(key, *held)
        elif (number := self._misnumbered(key, held.entry, expected, following)) is not None:
            self._place(key, held.entry._replace(queue_offset=number), HOLE_SIZE, 0)

    def _misnumbered(
        self, key: MessageQueue, entry: DispatchEntry, expected: int | None, following: int | None
    ) -> int | None:
        """Note a record whose number is wrong; return the number that stays used for it, None when nobody knows."""
        if expected is None and following:
            expected = following - 1
        self.odd.wrong.append(entry)
        return expected

    def _settle_all(self) -> None:
        for key in self.odd.queues():
            self._settle(key, None)

    def _place(self, key: MessageQueue, entry: DispatchEntry, size: int, code: int) -> None:
        queue = self.queues[key]
        if key in self._fresh:
            self._fresh.discard(key)
            if self._ends.whole_log and queue.first_file is None:
                queue.visible = queue.written = entry.queue_offset  # what was before has left the log
            elif self._is_gap(queue, entry.queue_offset) and not self._ends.whole_log:
                self._break(key, f"ends at {queue.visible}, the log continues at {entry.queue_offset}")
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
        self._settle_all()
        trusted, broken = self.noted.trusted, self._broken
        asked = [queue for key, queue in self.queues.items() if key not in trusted and key not in broken]
        said = [(first, at, count) for first, at, count in (self.lost.beyond(q, end, most) for q in asked) if count]
        if min(said, default=(0, 0, 0))[0] != end and sum(count for *_, count in said) < 2:
            return 0
        return max((at for _, at, _ in said), default=0)

    def finish(self, end: int, damaged: list[tuple[int, int]]) -> None:
        """Write what is missing, cut what is after, rebuild broken queues from the log."""
        self._settle_all()
        for key in list(self.noted.trusted) if damaged else ():
            self._look_at(key)  # an entry after the end may stand for a message that was lost
        if self._broken:
            self._rebuild(end)
        self._write_all()
        for key, queue in self.queues.items():
            if key in self.noted.trusted:
                continue
            self._keep_numbering(queue, damaged)
            if queue.visible:  # consumers may be behind them, and would pass over others that get these numbers
                queue.skip_to(queue.visible + self.lost.unknown_after(queue.last_log_offset))
        self._write_all()
        for key, queue in self.queues.items():
            if key in self.noted.trusted:
                continue
            self.files.cut_behind(queue)
            queue.next_offset = queue.visible

    def misnumbered(self, uncommitted: Sequence[DispatchEntry]) -> dict[int, int | None]:
        """Return which records above what was committed of a shared log do not follow in their queues, by log offset.

        With the number that each had, None where nobody knows it. Call after `finish`.
        """
        queued = [entry for entry in uncommitted if is_queued(entry.sys_flag)]
        wrong = wrong_numbers(queued, {key: queue.visible for key, queue in self.queues.items()})
        self.odd.wrong += [entry for entry in queued if entry.log_offset in wrong]
        return wrong

    def _write_all(self) -> None:
        for queue in self.queues.values():
            entries = queue.waiting()
            if not entries:
                continue
            # Even if the same is there: a sync that failed leaves it in the cache alone.
            self.files.write(queue, entries)
            queue.wrote(len(entries) // ENTRY_BYTES)
        self._entries = 0

    def _keep_numbering(self, queue: ConsumeQueue, damaged: list[tuple[int, int]]) -> None:
        """Keep entries after the last record that stand for lost messages, so that no number is given out twice."""
        while queue.first_file is not None:
            log_offset, size, _ = self._ends.entry(queue.key, queue.visible)
            if size != HOLE_SIZE and not (size > 0 and any(a <= log_offset < b for a, b in damaged)):
                break
            if size != HOLE_SIZE and self.lost.has(log_offset):
                self.lost.add(queue.key, 1)
            queue.visible += 1
            queue.written = queue.visible

    def _begin_anew(self, key: MessageQueue, entry: DispatchEntry) -> ConsumeQueue:
        """Forget what the scan made of the queue so far; files that are the new life's already stay."""
        if self.files.firsts.get(key, [])[:1] != [0] or self._ends.entry(key, 0)[0] != entry.log_offset:
            return self._restart(key)
        queue = self.queues[key] = ConsumeQueue(key, self.queues[key].topic_bytes, first_file=0)
        return queue

    def _restart(self, key: MessageQueue) -> ConsumeQueue:
        """Forget what the queue had: its topic was deleted and created again, so its numbers begin at 0."""
        self.files.remove(key)
        queue = self.queues[key] = ConsumeQueue(key, self.queues[key].topic_bytes)
        return queue

    def _rebuild(self, end: int) -> None:
        """Write the broken queues again from the whole log."""
        self._mark.set(self._broken)
        for key in sorted(self._broken):
            self._restart(key)
        waiting = set(self._broken)
        for segment in self._segments:
            for item in intact(segment, partial(self._note_unread, segment)):
                if item.log_offset >= end:
                    break
                key = MessageQueue(item.topic, item.queue_id)
                if key not in self._broken or not is_queued(item.sys_flag) or is_filler(item):
                    continue
                self._rebuild_next(key, item, waiting)
        for key in self.odd.queues():
            self._settle_rebuilt(key, None, waiting)
        for key in self._broken:
            queue, noted_end = self.queues[key], self.noted.end_of(key)
            self.lost.add(key, noted_end - queue.visible)
            if key in waiting and noted_end:
                queue.visible = queue.written = noted_end - 1  # nothing of it is left in the log
            queue.skip_to(noted_end)  # numbers of messages that the log has lost stay used
        self.rebuilt = len(self._broken)

    def _note_unread(self, segment: Segment, bad: Bad, stop: int) -> None:
        if why_unreadable(segment, bad.log_offset, stop) is not None:
            self.lost.unread.append((bad, stop))

    def _rebuild_next(self, key: MessageQueue, item: DispatchEntry, waiting: set[MessageQueue]) -> None:
        self._settle_rebuilt(key, item.queue_offset, waiting)
        if item.queue_offset == (0 if key in waiting else self.queues[key].visible):
            self._rebuild_entry(self.queues[key], item, first=key in waiting)
            waiting.discard(key)
        else:
            self.odd.hold(key, HeldRecord(item, item.size, 0))

    def _settle_rebuilt(self, key: MessageQueue, following: int | None, waiting: set[MessageQueue]) -> None:
        held, queue = self.odd.take(key), self.queues[key]
        if held is None:
            return
        expected = None if key in waiting else queue.visible
        if is_right(held.entry, expected, following):
            self._rebuild_entry(queue, held.entry, first=key in waiting)
            waiting.discard(key)
        elif (number := self._misnumbered(key, held.entry, expected, following)) is not None:
            if key in waiting:
                queue.visible = queue.written = number
            queue.add(number, held.entry.log_offset, HOLE_SIZE, 0)
            waiting.discard(key)

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
        """Return once every file written is on stable storage. Raises OSError: the next start rebuilds that queue."""
        try:
            self.files.sync()
        except OSError as exc:
            only_unreadable(exc)
            if self.files.refused is not None:
                key, path = self.files.refused
                keep_blocks(self._disk, self.files.folder.parent, path)
                self._mark.set({*self._mark.load(), key})
            raise
        self.synced()

    def synced(self) -> None:
        """Note that every file written is on stable storage. Raises OSError."""
        self.files.synced()
        self._mark.clear()
