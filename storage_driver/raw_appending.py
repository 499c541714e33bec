"""Appends records of another log at their offsets: the copy is identical byte for byte."""

from collections.abc import Callable, Mapping

from storage_driver.errors import MessageIllegal, NotNext, QueueRestarted, RecordDamaged
from storage_driver.log.commit_log import CommitLog
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.dispatch import PendingRecord, is_queued
from storage_driver.record import (
    BLANK,
    BLANK_BYTES,
    MAGIC_BLANK,
    DispatchEntry,
    MessageQueue,
    check_queue,
    parse_record,
)

NOWHERE = ConsumeQueue(MessageQueue("", 0), b"")  # of records that no queue has
NOWHERE.dropped = True


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
        records that fit the segment, QueueRestarted for a queue whose numbers start again, LogFailed.
        """
        log = self._log
        if log.failure is not None:
            log.reserve(0)  # raises it
        if log_offset != log.end:
            raise NotNext(log_offset, log.end)
        entries, blank = _parse(log_offset, data, log.segment_left)
        ends: dict[MessageQueue, int] = {}
        for entry in entries:
            self._check_number(entry, ends)
        for entry in entries:
            at = entry.log_offset - log_offset
            log.append(data[at : at + entry.size], self.pending(entry))
        if blank:
            log.end_segment()
        return log.end

    def _check_number(self, entry: DispatchEntry, ends: dict[MessageQueue, int]) -> None:
        """Raise for a number that its queue has given out before."""
        if not is_queued(entry.sys_flag):
            return
        key = MessageQueue(entry.topic, entry.queue_id)
        queue = self._queues.get(key)
        if queue is None and key not in ends:
            _check_name(entry.log_offset, key)
        end = ends.get(key, queue.next_offset if queue is not None else 0)
        if entry.queue_offset < end:
            if entry.queue_offset == 0:
                raise QueueRestarted(entry.topic, entry.log_offset)
            raise RecordDamaged(entry.log_offset, f"number {entry.queue_offset}, its queue ends at {end}")
        ends[key] = entry.queue_offset + 1

    def pending(self, entry: DispatchEntry) -> PendingRecord:
        """Return a record that is in the log and in no queue yet, its number given out."""
        queue = NOWHERE
        if is_queued(entry.sys_flag):
            key = MessageQueue(entry.topic, entry.queue_id)
            queue = self._queues.get(key) or self._make_queue(key, entry.queue_offset)
            queue.next_offset = entry.queue_offset + 1
        return PendingRecord(
            queue, entry.log_offset, entry.size, entry.queue_offset, entry.sys_flag, entry.stored_ms, entry.properties
        )


def _check_name(log_offset: int, key: MessageQueue) -> None:
    try:
        check_queue(key)
    except MessageIllegal as exc:
        raise RecordDamaged(log_offset, str(exc)) from exc


def _parse(log_offset: int, data: bytes, left: int) -> tuple[list[DispatchEntry], bool]:
    """Return the records of some bytes, and whether a blank ends the segment behind them. Raises RecordDamaged."""
    at, entries = 0, list[DispatchEntry]()
    while at < len(data):
        size, magic = BLANK.unpack_from(data, at) if len(data) - at >= BLANK_BYTES else (0, 0)
        if magic == MAGIC_BLANK:
            if size != left - at or at + BLANK_BYTES != len(data):
                raise RecordDamaged(log_offset + at, f"a blank of {size} bytes, {left - at} are left")
            return entries, True
        entry = parse_record(data, at, log_offset + at)
        at += entry.size
        if at + BLANK_BYTES > left:
            raise RecordDamaged(entry.log_offset, f"{entry.size} bytes do not fit the segment")
        entries.append(entry)
    return entries, False
