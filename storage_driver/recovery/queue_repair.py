"""Repairs queue entries that point to no record of theirs: from the log, before a reader skips anything.

The log is between the nearest good entries on both sides; a number that has no intact record there becomes a hole.
"""

from collections.abc import Sequence

import trio

from storage_driver.config import StoreConfig
from storage_driver.files.disk import Disk
from storage_driver.files.unreadable import only_unreadable
from storage_driver.flusher import Flusher, points_at
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.scan import Bad, Blank, damage_end, is_filler, walk
from storage_driver.log.segment import Segment, zeroing
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE, ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import is_queued
from storage_driver.record import MessageQueue, tags_code
from storage_driver.recovery.known_damage import KnownDamage

PIECE_BYTES = 8 << 20


Found = tuple[MessageQueue, dict[int, bytes], list[tuple[int, int, str]]]
"""Of a queue: the entries that were found by their numbers; ranges of the log that hold no record, and why."""


class Span(NamedTuple):
    """Entries [first, end) are suspect; their records are in [start, stop) of the log."""

    first: int
    end: int
    start: int
    stop: int


class QueueRepair:
    """Repairs queues of one store."""

    def __init__(
        self, config: StoreConfig, disk: Disk, log: CommitLog, flusher: Flusher, *, damage: KnownDamage
    ) -> None:
        self.mended = 0  # entries written
        self._config, self._disk, self._log, self._flusher, self._damage = config, disk, log, flusher, damage
        self._thread = trio.CapacityLimiter(1)

    async def mend(self, queue: ConsumeQueue, number: int) -> None:
        """Repair the entries around one, from the log. Raises OSError."""
        if queue.dropped or number >= queue.written:
            return
        files = QueueFiles(
            self._disk, self._config.root, file_entries=self._config.queue_file_entries, most_open=4, read_only=True
        )
        segments, written, committed = self._segments(), queue.written, self._log.committed
        edges = Span(queue.first_file or 0, written, segments[0].base if segments else 0, committed)
        span = await trio.to_thread.run_sync(_doubted, files, segments, queue.key, number, edges, limiter=self._thread)
        found: dict[int, bytes] = {}
        bad: list[tuple[int, int, str]] = []
        at = span.start
        while at < span.stop:
            at = await trio.to_thread.run_sync(
                self._look_through, segments, at, span, (queue.key, found, bad), limiter=self._thread
            )
        for start, end, reason in bad if len(found) < span.end - span.first else ():
            await self._damage.found(start, end, reason, queue.key)
        entries = b"".join(found.get(at, HOLE) for at in range(span.first, span.end))
        if await self._flusher.replace(queue, span.first, entries):
            self.mended += span.end - span.first

    def _segments(self) -> tuple[Segment, ...]:
        """Return the log; a bad sector of it must not keep the entries of all other records from being repaired."""
        return tuple(zeroing(self._disk, each) for each in self._log.segments)

    def _look_through(self, segments: Sequence[Segment], at: int, span: Span, into: Found) -> int:
        """Add the entries of the queue's records in some MiB of the log; return where to continue."""
        key, found, bad = into
        segment = next((s for s in segments if s.base <= at < s.end), None)
        if segment is None:
            return span.stop
        upto = min(span.stop, at + PIECE_BYTES)
        for item in walk(segment, at):
            if isinstance(item, Blank):
                return segment.end
            if isinstance(item, Bad):
                stop = damage_end(segment, item)
                if item.log_offset < span.stop:
                    bad.append((item.log_offset, min(stop, span.stop), item.reason))
                return stop
            if item.log_offset >= upto:
                return item.log_offset
            number = item.queue_offset
            if MessageQueue(item.topic, item.queue_id) == key and is_queued(item.sys_flag) and not is_filler(item):
                for later in [n for n in found if n >= number]:
                    del found[later]  # of a life before its topic was deleted
                if span.first <= number < span.end:
                    code = tags_code(item.topic, item.properties, item.stored_ms, self._config.delays_ms)
                    found[number] = ENTRY.pack(item.log_offset, item.size, code)
        return span.stop


def _doubted(files: QueueFiles, segments: Sequence[Segment], key: MessageQueue, number: int, edges: Span) -> Span:
    """Widen from one entry to the nearest good ones, in doubling steps."""

    def good(at: int) -> tuple[int, int] | None:
        try:
            raw = files.read(key, at, 1)
            if len(raw) < ENTRY_BYTES or not points_at(segments, raw, key, at):
                return None
        except OSError as exc:
            only_unreadable(exc)
            return None
        log_offset, size, _ = ENTRY.unpack(raw)
        return log_offset, log_offset + size

    first, end, start, stop = edges
    step = 1
    while (at := number - step) >= edges.first:
        if (place := good(at)) is not None:
            first, start = at + 1, place[1]
            break
        step *= 2
    step = 1
    while (at := number + step) < edges.end:
        if (place := good(at)) is not None:
            end, stop = at, place[0]
            break
        step *= 2
    return Span(first, end, start, stop)
