"""Appends records of another log at their offsets: the copy is identical byte for byte.

A follower does this with all that its leader has, so it is done for many records at a time: neighbours in the log that
are neighbours in their queue too are one run from here to the queue's file, as the batch of a producer is.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final

from storage_driver.crc import crc32
from storage_driver.errors import MessageIllegal, NotNext, QueueRestarted, RecordDamaged
from storage_driver.log.commit_log import CommitLog
from storage_driver.queues.consume_queue import ConsumeQueue, MisnumberedQueue
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.pending import PendingRecord, PendingRun
from storage_driver.record import (
    BLANK,
    BLANK_BYTES,
    BORN_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAX_PROPERTIES_BYTES,
    STORE_V6,
    DispatchEntry,
    MessageQueue,
    check_queue,
    parse_record,
)

NOWHERE = ConsumeQueue(MessageQueue("", 0), b"")  # of records that no queue has
NOWHERE.dropped = True
# size magic crc queue_id queue_offset log_offset sys_flag stored_ms n, where both hosts have IPv4 addresses
_USUAL: Final = Struct(">iiii4xqqi16xq20xi")
_USUAL_BYTES: Final = _USUAL.size
_V6: Final = BORN_V6 | STORE_V6


class CopiedRun:
    """Records of one queue that follow one another in the log, equal in flags and time; mostly a single one."""

    __slots__ = ("key", "log_offsets", "next_offset", "properties", "queued", "sizes", "stored_ms", "sys_flag")

    def __init__(self, key: MessageQueue, queue_offset: int, sys_flag: int, stored_ms: int) -> None:
        self.key, self.sys_flag, self.stored_ms, self.queued = key, sys_flag, stored_ms, is_queued(sys_flag)
        self.next_offset = queue_offset  # the number behind the last one
        self.log_offsets: list[int] = []
        self.sizes: list[int] = []
        self.properties: list[bytes] = []

    @property
    def queue_offset(self) -> int:
        """The number of the first one."""
        return self.next_offset - len(self.sizes)

    def goes_on_with(self, key: MessageQueue, queue_offset: int, sys_flag: int, stored_ms: int) -> bool:
        """Return whether a record is the next one; `key` is the same object for all records of a queue."""
        alike = self.key is key and self.sys_flag == sys_flag and self.stored_ms == stored_ms
        return alike and self.next_offset == queue_offset and self.queued

    def append(self, log_offset: int, size: int, properties: bytes) -> None:
        """Take the next record."""
        self.next_offset += 1
        self.log_offsets.append(log_offset)
        self.sizes.append(size)
        self.properties.append(properties)


class CopiedRuns:
    """Takes the records of some bytes, one after the other."""

    def __init__(self) -> None:
        self.found: list[CopiedRun] = []
        self._run: CopiedRun | None = None  # the last one
        self._topic = b""  # of the last record, as its queue
        self._queue_id = -1
        self._last: MessageQueue | None = None
        self._keys: dict[tuple[bytes, int], MessageQueue] = {}

    def take(self, data: bytes, at: int, log_offset: int) -> int:
        """Take the record at data[at] and return its size; 0 when it is unusual or damaged: `parse_record` tells."""
        if len(data) - at < _USUAL_BYTES:
            return 0
        fields: tuple[int, int, int, int, int, int, int, int, int] = _USUAL.unpack_from(data, at)
        size, magic, crc, queue_id, queue_offset, phys, sys_flag, stored_ms, length = fields
        stop, topic_at = at + size, at + _USUAL_BYTES + length
        if magic != MAGIC_V1 or sys_flag & _V6 or phys != log_offset or length < 0 or not topic_at < stop <= len(data):
            return 0
        properties_at = topic_at + data[topic_at] + 3
        if properties_at > stop or (length and crc32(data[topic_at - length : topic_at]) & 0x7FFFFFFF != crc):
            return 0
        more = data[properties_at - 2] << 8 | data[properties_at - 1]
        topic, key = data[topic_at + 1 : properties_at - 2], self._last
        if queue_id != self._queue_id or topic != self._topic:
            key = self._last = self._key(topic, queue_id)
            self._topic, self._queue_id = topic, queue_id
        if properties_at + more != stop or more > MAX_PROPERTIES_BYTES or key is None:
            return 0
        run = self._run
        if run is None or not run.goes_on_with(key, queue_offset, sys_flag, stored_ms):
            run = self._begin(key, queue_offset, sys_flag, stored_ms)
        run.append(log_offset, size, data[properties_at:stop])
        return size

    def add(self, entry: DispatchEntry) -> None:
        """Take a record that was parsed."""
        key = MessageQueue(entry.topic, entry.queue_id)
        run = self._begin(key, entry.queue_offset, entry.sys_flag, entry.stored_ms)
        run.append(entry.log_offset, entry.size, entry.properties)

    def _begin(self, key: MessageQueue, queue_offset: int, sys_flag: int, stored_ms: int) -> CopiedRun:
        run = self._run = CopiedRun(key, queue_offset, sys_flag, stored_ms)
        self.found.append(run)
        return run

    def _key(self, topic: bytes, queue_id: int) -> MessageQueue | None:
        """Return the one key of a queue among these records, None for a topic that is none."""
        key = self._keys.get((topic, queue_id))
        if key is None and topic:
            try:
                key = self._keys[topic, queue_id] = MessageQueue(topic.decode("utf-8", "surrogatepass"), queue_id)
            except ValueError:
                return None
        return key


class RawAppender:
    """Appends whole records of another log at the log offsets they have there; they have their numbers already."""

    def __init__(
        self,
        log: CommitLog,
        queues: Mapping[MessageQueue, ConsumeQueue],
        *,
        make_queue: Callable[[MessageQueue, int], ConsumeQueue],
    ) -> None:
        self._log, self._queues, self._make_queue = log, queues, make_queue

    def append(self, log_offset: int, data: bytes) -> int:
        """Append records, a segment's blank perhaps behind them, all or none; return the log offset just past them.

        Raises NotNext when `log_offset` is not the end of this log, RecordDamaged for anything but whole intact
        records that fit the segment, LogFailed, QueueRestarted for a queue whose numbers start again: what is below
        that record was appended then.
        """
        log = self._log
        if log.failure is not None:
            log.reserve(0)  # raises it
        if log_offset != log.end or log.read_to < log.end:
            raise NotNext(log_offset, min(log.end, log.read_to))
        runs, blank = _parse(log_offset, data, log.segment_left)
        ends: dict[MessageQueue, int] = {}
        for number, run in enumerate(runs):
            try:
                if run.queued:
                    self._check_number(run, ends)
            except QueueRestarted as exc:
                self._append(data[: exc.log_offset - log_offset], runs[:number])
                raise
        self._append(data[:-BLANK_BYTES] if blank else data, runs)
        if blank:
            log.end_segment()
        return log.end

    def _append(self, data: bytes, runs: Sequence[CopiedRun]) -> None:
        if runs:
            self._log.append_all(data, [self._pending_run(run) for run in runs])

    def read(self, log_offset: int, data: bytes, left: int) -> int:
        """Number the records that are whole in some bytes which the log has already, behind `read_to`.

        `left`: bytes to the end of the segment. Return the log offset behind them, the end of the segment where its
        blank was reached. Raises RecordDamaged, QueueRestarted: what is below was taken then.
        """
        runs, end = _parse_whole(log_offset, data, left)
        ends: dict[MessageQueue, int] = {}
        at = log_offset
        for number, run in enumerate(runs):
            try:
                if run.queued:
                    self._check_number(run, ends)
            except (QueueRestarted, RecordDamaged):
                self._log.take_read([self._pending_run(each) for each in runs[:number]], at)
                raise
            at = run.log_offsets[-1] + run.sizes[-1]
        self._log.take_read([self._pending_run(run) for run in runs], end)
        return end

    def _check_number(self, run: CopiedRun, ends: dict[MessageQueue, int]) -> None:
        """Raise for a number that its queue has given out before."""
        key, log_offset = run.key, run.log_offsets[0]
        queue = self._queues.get(key)
        if queue is None and key not in ends:
            _check_name(log_offset, key)
        end = ends.get(key, queue.next_offset if queue is not None else 0)
        if run.queue_offset < end:
            if run.queue_offset == 0:
                raise QueueRestarted(key.topic, key.queue_id, log_offset)
            raise RecordDamaged(log_offset, f"number {run.queue_offset}, its queue ends at {end}")
        ends[key] = run.next_offset

    def _pending_run(self, run: CopiedRun) -> PendingRecord | PendingRun:
        places, sizes, properties = run.log_offsets, run.sizes, run.properties
        queue = self._queue(run.key, run.queue_offset, len(sizes)) if run.queued else NOWHERE
        if len(sizes) == 1:
            return PendingRecord(
                queue, places[0], sizes[0], run.queue_offset, run.sys_flag, run.stored_ms, properties[0]
            )
        return PendingRun(queue, places[0], run.queue_offset, run.sys_flag, run.stored_ms, places, sizes, properties)

    def _queue(self, key: MessageQueue, queue_offset: int, count: int) -> ConsumeQueue:
        """Return a queue that has given out these numbers."""
        queue = self._queues.get(key) or self._make_queue(key, queue_offset)
        queue.next_offset = queue_offset + count
        return queue

    def pending(self, entry: DispatchEntry, wrong_numbers: Mapping[int, int | None]) -> PendingRecord:
        """Return a record that is in the log and in no queue yet, its number given out.

        wrong_numbers: log offsets of records with damaged numbers, what they were; such a record leaves a hole.
        """
        queue, number = NOWHERE, wrong_numbers.get(entry.log_offset, entry.queue_offset)
        if is_queued(entry.sys_flag) and number is not None:
            queue = self._queue(MessageQueue(entry.topic, entry.queue_id), number, 1)
            queue = MisnumberedQueue(queue) if entry.log_offset in wrong_numbers else queue
        return PendingRecord(
            queue,
            entry.log_offset,
            entry.size,
            entry.queue_offset if number is None else number,
            entry.sys_flag,
            entry.stored_ms,
            entry.properties,
        )


def _check_name(log_offset: int, key: MessageQueue) -> None:
    try:
        check_queue(key)
    except MessageIllegal as exc:
        raise RecordDamaged(log_offset, str(exc)) from exc


def _is_blank(log_offset: int, data: bytes, at: int, left: int) -> bool:
    """Return whether no record is there but the end of the segment. Raises RecordDamaged for one elsewhere."""
    size, magic = BLANK.unpack_from(data, at) if len(data) - at >= BLANK_BYTES else (0, 0)
    if magic == MAGIC_BLANK and (size != left - at or at + BLANK_BYTES != len(data)):
        raise RecordDamaged(log_offset + at, f"a blank of {size} bytes, {left - at} are left")
    return bool(magic == MAGIC_BLANK)


def _parse(log_offset: int, data: bytes, left: int) -> tuple[list[CopiedRun], bool]:
    """Return the records of some bytes, and whether a blank ends the segment behind them. Raises RecordDamaged."""
    runs, at, end = CopiedRuns(), 0, len(data)
    while at < end:
        size = runs.take(data, at, log_offset + at)
        if not size:
            if _is_blank(log_offset, data, at, left):
                return runs.found, True
            entry = parse_record(data, at, log_offset + at)
            size = entry.size
            runs.add(entry)
        if at + size + BLANK_BYTES > left:
            raise RecordDamaged(log_offset + at, f"{size} bytes do not fit the segment")
        at += size
    return runs.found, False


def _parse_whole(log_offset: int, data: bytes, left: int) -> tuple[list[CopiedRun], int]:
    """Return the records that are whole in some bytes, and where the next one begins. Raises RecordDamaged."""
    runs, at, end = CopiedRuns(), 0, len(data)
    while end - at >= BLANK_BYTES:
        size = runs.take(data, at, log_offset + at)
        if not size:
            size, magic = BLANK.unpack_from(data, at)
            if magic == MAGIC_BLANK and size == left - at:
                return runs.found, log_offset + left
            if at + size > end and BLANK_BYTES < size <= left - at:
                break
            entry = parse_record(data, at, log_offset + at)
            size = entry.size
            runs.add(entry)
        at += size
    return runs.found, log_offset + at
