"""Durable records → queue entries and arrivals, in memory; the index gets them from its own backlog."""

from collections.abc import Callable, Container, Sequence
from typing import Final

import trio

from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ConsumeQueue, MisnumberedQueue
from storage_driver.queues.pending import PendingRecord, PendingRun
from storage_driver.record import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    MessageQueue,
    tags_code,
    tags_codes,
)

FLUSH_AT: Final = 10_000
HEAVY = 4 << 20  # bytes of properties that wait for the index
RUN_BYTES: Final = 140  # what a message of a run takes beside the bytes of its properties


class Arrival(NamedTuple):
    """A message that can be pulled from now on."""

    queue: MessageQueue
    queue_offset: int
    tags_code: int
    stored_ms: int
    log_offset: int
    size: int


def is_queued(sys_flag: int) -> bool:
    """Tell whether a record gets a queue entry: prepared and rollback records do not."""
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


class Dispatcher:
    """Makes durable records visible; changes memory only."""

    def __init__(
        self,
        arrived: Callable[[Arrival], None],
        delays_ms: tuple[int, ...],
        *,
        watched: Container[MessageQueue] | None = None,
        backlog_limit: int = 150_000,
        backlog_bytes_limit: int = 24 << 20,
    ) -> None:
        """Arrivals in queues that are not watched at that moment are not told; None: all are."""
        self.dirty: dict[MessageQueue, ConsumeQueue] = {}  # queues with entries that are not in their file
        self.flush_due = trio.Event()  # so many entries wait that a round should begin at once
        self._dirty_entries = 0
        self.backlog: list[PendingRecord | PendingRun] = []  # for the index
        self.backlog_records = self.backlog_bytes = 0
        self.last_stored_ms = 0
        self.backlog_lost = False  # the backlog overflowed: the index catches up from the log
        self._arrived, self._watched = arrived, watched
        self._delays_ms, self._backlog_limits = delays_ms, (backlog_limit, backlog_bytes_limit)

    def dispatch(self, records: Sequence[PendingRecord | PendingRun]) -> int:
        """Queue each record's entry and announce it, in log order; return how many records there were."""
        dirty, arrived, delays_ms, watched, in_runs, held = (
            self.dirty,
            self._arrived,
            self._delays_ms,
            self._watched,
            0,
            0,
        )
        for record in records:
            if isinstance(record, PendingRun):
                in_runs += len(record.sizes) - 1
                held += sum(map(len, record.properties)) + RUN_BYTES * len(record.sizes)
                self._dispatch_run(record)
                continue
            queue, sys_flag, properties = record.queue, record.sys_flag, record.properties
            held += len(properties)
            if (sys_flag & TRANSACTION_MASK and not is_queued(sys_flag)) or queue.dropped:
                if isinstance(queue, MisnumberedQueue):
                    dirty[queue.key] = queue.leave_hole(record.queue_offset)
                continue
            key = queue.key
            code = tags_code(key.topic, properties, record.stored_ms, delays_ms)
            queue.add(record.queue_offset, record.log_offset, record.size, code)
            dirty[key] = queue
            if watched is None or key in watched:
                stored = record.stored_ms, record.log_offset, record.size
                arrived(Arrival(key, record.queue_offset, code, *stored))
        count = len(records) + in_runs
        if records:
            self.last_stored_ms = records[-1].stored_ms
        if not self.backlog_lost:
            self._keep(records, count, held)
        self._dirty_entries += count
        if self._dirty_entries > FLUSH_AT or self.is_heavy:
            self.flush_due.set()
        return count

    @property
    def is_heavy(self) -> bool:
        """Whether the index is to take the backlog soon, because of its bytes."""
        return self.backlog_bytes > HEAVY

    def _keep(self, records: Sequence[PendingRecord | PendingRun], count: int, held: int) -> None:
        """Keep records for the index, unless they become too many: it then reads them from the log."""
        self.backlog += records
        self.backlog_records += count
        self.backlog_bytes += held
        most_records, most_bytes = self._backlog_limits
        if self.backlog_records > most_records or self.backlog_bytes > most_bytes:
            self.take_backlog()
            self.backlog_lost = True

    def _dispatch_run(self, run: PendingRun) -> None:
        queue = run.queue
        if queue.dropped:
            return
        key, arrived, stored_ms, delays_ms = queue.key, self._arrived, run.stored_ms, self._delays_ms
        self.dirty[key] = queue
        codes = tags_codes(key.topic, run.properties, stored_ms, delays_ms)
        queue.add_run(run.queue_offset, run.log_offsets, run.sizes, codes)
        for at, code in enumerate(codes if self._watched is None or key in self._watched else ()):
            arrived(Arrival(key, run.queue_offset + at, code, stored_ms, run.log_offsets[at], run.sizes[at]))

    def take_backlog(self) -> list[PendingRecord | PendingRun]:
        """Return the backlog of the index and clear it."""
        backlog, self.backlog, self.backlog_records, self.backlog_bytes = self.backlog, [], 0, 0
        return backlog

    def take_dirty(self) -> dict[MessageQueue, ConsumeQueue]:
        """Return the queues that have entries to write and clear the list."""
        dirty, self.dirty, self._dirty_entries = self.dirty, {}, 0
        self.flush_due = trio.Event()
        return dirty
