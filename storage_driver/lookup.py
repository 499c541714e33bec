"""Finding messages: by queue offset, log offset, time and key; the disk is waited for in bounded threads."""

import errno
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import trio

from storage_driver.bad_sectors import BadSectors
from storage_driver.config import StoreConfig
from storage_driver.errors import UnreadableRecord
from storage_driver.files.disk import Disk
from storage_driver.files.unreadable import only_unreadable
from storage_driver.index.index_file import Index
from storage_driver.log.clock import pieces
from storage_driver.log.commit_log import CommitLog
from storage_driver.queues.consume_queue import ENTRY, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.reader import ColdSource, HotSource, first_from, lowest, nearest, read_log, read_record
from storage_driver.reading import FoundStatus, ReadRequest, ReadResult, SuspectEntry, WouldBlock, collect, edge
from storage_driver.record import SMALLEST_RECORD, MessageQueue, index_keys, parse_record

T = TypeVar("T")
MOST_FOUND_BYTES = 12 << 20  # by key: RocketMQ's clients take frames of 16 MiB
MOST_MENDED = 64  # places of one batch; each takes its neighbours along
DAMAGED = (-1, HOLE_SIZE)  # log offset and size of an entry that cannot be right
MOST_HOLES = 1200  # entries before the answer that may hide one that belongs to it; a start leaves out 1000 at most
MOST_BACK = 1000  # entries that are looked at for one that is right: several blocks of a file
NO_QUEUE = ReadResult(FoundStatus.NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0, 0)


class Lookup:
    """The reading side of one store."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        queues: Mapping[MessageQueue, ConsumeQueue],
        *,
        index: Index,
        boundaries: Callable[[], list[int]],
        bad_sectors: BadSectors,
        mend: Callable[[ConsumeQueue, int], Awaitable[None]],
    ) -> None:
        self.files = QueueFiles(disk, config.root, file_entries=config.queue_file_entries)  # for reads within the loop
        self.cold_reads = 0
        self._config, self._disk, self._log, self._queues, self._index = config, disk, log, queues, index
        self._boundaries, self._damage = boundaries, bad_sectors.damage
        self._mend = mend
        self.bad_sectors = bad_sectors
        self._threads = trio.CapacityLimiter(config.cold_readers)
        self._hot_bytes = config.hot_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 40 // 100

    def low(self, queue: ConsumeQueue) -> int:
        """Return the first entry whose record is still in the log, its end when there is none."""
        first = self._log.first
        if queue.min_cached[0] != first:
            queue.min_cached = (first, first_entry(self.cold_source(queue), *self._bounds(queue), first))
        return queue.min_cached[1]

    async def low_in_thread(self, queue: ConsumeQueue) -> int:
        """Return what `low` returns without blocking the loop on the disk. Raises OSError."""
        first = self._log.first
        if queue.min_cached[0] != first:
            source, (start, end) = self.cold_source(queue), self._bounds(queue)
            low = await trio.to_thread.run_sync(first_entry, source, start, end, first, limiter=self._threads)
            queue.min_cached = (first, low)
        return queue.min_cached[1]

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        start = max(queue.min_cached[1], queue.first_file if queue.first_file is not None else queue.written)
        return min(start, queue.visible), queue.visible

    def read_hot(self, wanted: ReadRequest) -> ReadResult | None:
        """Return messages without waiting for the disk, None when that cannot be done."""
        found = self._queues.get(wanted.queue)
        if found is None:
            return NO_QUEUE
        low, high = found.min_cached[1], found.visible
        if found.min_cached[0] != self._log.first:
            return None  # where the queue begins now is looked for on the disk
        try:
            source = HotSource(self._log, self.files, found, self._damage.ranges)
            return edge(wanted, low, high) or collect(source, wanted, low, high)
        except (WouldBlock, SuspectEntry):
            return None

    async def read(self, wanted: ReadRequest) -> ReadResult:
        """Return messages, waiting for the disk; a body that fails its check is left out and noted. Raises OSError."""
        found = self._queues.get(wanted.queue)
        if found is None:
            return NO_QUEUE
        self.cold_reads += 1
        mended: set[int] = set()
        while len(mended) < MOST_MENDED:
            try:
                return await self._read(found, wanted, doubt=True)
            except UnreadableRecord as failed:
                if not await self.bad_sectors.gives_up(failed, wanted.queue):
                    raise
            except SuspectEntry as doubtful:
                if doubtful.number in mended:
                    break  # nothing of it is left, or its queue goes
                await self._mend(found, doubtful.number)
                self.files.forget(wanted.queue)
                mended.add(doubtful.number)
        return await self._read(found, wanted, doubt=False)

    async def _read(self, queue: ConsumeQueue, wanted: ReadRequest, *, doubt: bool) -> ReadResult:
        low, high = await self.low_in_thread(queue), queue.visible
        beyond = edge(wanted, low, high)
        if beyond is not None:
            return beyond
        source = self.cold_source(queue)
        try:
            read = partial(collect, source, wanted, low, high, doubt=doubt)
            result = await trio.to_thread.run_sync(read, limiter=self._threads)
        finally:
            for start, end, reason in source.damaged:
                await self._damage.found(start, end, reason)
        if not queue.dropped:  # its topic was deleted meanwhile: a new queue has other files
            self.files.adopt(source.files)
        behind = self._log.end - source.last_read
        return result._replace(suggest_slow=source.last_read >= 0 and behind > self._hot_bytes)

    def cold_source(self, queue: ConsumeQueue) -> ColdSource:
        """Return a snapshot of a queue and the log for use in a thread."""
        files = QueueFiles(
            self._disk, self._config.root, file_entries=self._config.queue_file_entries, most_open=4, read_only=True
        )
        return ColdSource(tuple(self._log.segments), files, queue, self.bad_sectors.given_up)

    async def record_at(self, log_offset: int, size: int | None) -> bytes | None:
        """Return the whole record that begins there, None when there is none. Raises OSError."""
        segments, committed = tuple(self._log.segments), self._log.committed
        return await trio.to_thread.run_sync(read_record, segments, log_offset, size, committed, limiter=self._threads)

    async def record_of(self, queue: MessageQueue, log_offset: int, size: int) -> bytes:
        """Return the bytes of a record of a queue, none where the disk does not give it back. Raises OSError."""
        segments = tuple(self._log.segments)
        try:
            found = await trio.to_thread.run_sync(read_log, segments, log_offset, size, limiter=self._threads)
        except OSError as exc:
            only_unreadable(exc)
            if not await self.bad_sectors.gives_up(UnreadableRecord(log_offset, size, exc), queue):
                raise
            return b""
        return found or b""

    async def longest_kept(self, base: int, end: int) -> int:
        """Return the longest age of the topics that have entries for a range of the log, 0 when none. Raises OSError.

        Half and filler records have no entries: the log of a transaction under way is kept by `retain`.
        """
        keep_of, queues = self._config.retention.keep_of, list(self._queues.values())
        by_age: dict[int, list[ConsumeQueue]] = {}
        for queue in queues:
            by_age.setdefault(keep_of(queue.key.topic), []).append(queue)
        for keep_ms in sorted(by_age, reverse=True):
            for queue in by_age[keep_ms]:
                if await self._has_entry(queue, base, end):
                    return keep_ms
        return 0

    async def _has_entry(self, queue: ConsumeQueue, base: int, end: int) -> bool:
        if queue.last_log_offset < base:
            return False
        low, high, source = await self.low_in_thread(queue), queue.visible, self.cold_source(queue)

        def look() -> bool:
            at = first_entry(source, low, high, base)
            found = _place_of(source, at) if at < high else (-1, 0)
            return found == DAMAGED or 0 <= found[0] < end  # what cannot be read may be of this range

        return await trio.to_thread.run_sync(look, limiter=self._threads)

    async def offset_by_time(self, queue: MessageQueue, time_ms: int, boundary: str) -> int:
        """Return the message stored nearest to a time, or first not before ("lower"), or last not after it ("upper").

        Store times rise within a clock epoch only, so each epoch's stretch is searched by itself; the newest that has
        an answer wins.
        """
        found = self._queues.get(queue)
        if found is None or (low := await self.low_in_thread(found)) >= found.visible:
            return found.visible if found is not None else 0
        source, high, boundaries = self.cold_source(found), found.visible, self._boundaries()
        end = self._log.committed

        def search() -> int:
            spans = []
            for start, stop in pieces(boundaries, self._log.first, end):
                a, b = first_entry(source, low, high, start), first_entry(source, low, high, stop)
                if a < b:
                    spans.append((a, b))
            return search_spans(source.stored_ms, spans or [(low, high)], time_ms, boundary)

        return await self._searched(found, search)

    async def _searched(self, queue: ConsumeQueue, search: Callable[[], T]) -> T:
        """Search in a thread; what cannot be read is repaired or given up, as for a consumer. Raises OSError."""
        mended: set[int] = set()
        while True:
            try:
                return await trio.to_thread.run_sync(search, limiter=self._threads)
            except UnreadableRecord as failed:
                if not await self.bad_sectors.gives_up(failed, queue.key):
                    raise
            except SuspectEntry as doubtful:
                if doubtful.number in mended:
                    raise OSError(errno.EIO, f"entry {doubtful.number} of {queue.key} cannot be read") from doubtful
                await self._mend(queue, doubtful.number)
                mended.add(doubtful.number)

    async def stored_ms_at(self, queue: MessageQueue, queue_offset: int) -> int | None:
        """Return the store time of one message, None when it is not there."""
        found = self._queues.get(queue)
        if found is None or not await self.low_in_thread(found) <= queue_offset < found.visible:
            return None
        return await self._searched(found, partial(self.cold_source(found).stored_ms, queue_offset))

    async def find_by_key(self, text: str, most: int, begin_ms: int, end_ms: int) -> list[bytes]:
        """Return whole records with a key `topic#key`, oldest first, at most 64 and what fits one frame of a client."""
        segments, committed = tuple(self._log.segments), self._log.committed

        def search() -> list[bytes]:
            records: list[bytes] = []
            size = 0
            for log_offset in self._index.find(text, most, begin_ms, end_ms):
                if log_offset in self.bad_sectors.given_up:
                    continue
                data = read_record(segments, log_offset, None, committed)
                if data is None:
                    continue
                entry = parse_record(data, 0, log_offset, check_crc=False)
                if text in index_keys(entry.topic, entry.properties) and begin_ms <= entry.stored_ms <= end_ms:
                    size += len(data)
                    if records and size > MOST_FOUND_BYTES:
                        break
                    records.append(data)
            return records

        return await trio.to_thread.run_sync(search, limiter=self._threads)


def first_entry(source: ColdSource, low: int, high: int, log_offset: int) -> int:
    """Return the first entry whose record begins at a log offset or above.

    An entry that is damaged, or that the disk does not give back, says nothing of those before it: as a hole. So does
    one that points lower than one before it. Before the answer they belong to it, with holes between or without: who
    reads there has them repaired.
    One that the disk gives back at the second try is what it says.
    """

    def entry(at: int) -> tuple[int, int]:
        place, size = _place_of(source, at)
        if size != HOLE_SIZE and 0 <= place < log_offset:
            for before in range(at - 1, max(low, at - MOST_BACK) - 1, -1):
                earlier, found = _place_of(source, before)
                if found != HOLE_SIZE:
                    return DAMAGED if earlier >= log_offset else (place, size)
        return place, size

    found = at = lowest(entry, low, high, log_offset)
    while at > low and found - at < MOST_HOLES:
        at -= 1
        place, size = entry(at)
        if (place, size) == DAMAGED or (size != HOLE_SIZE and place >= log_offset):
            found = at
        elif size != HOLE_SIZE:
            break
    return found


def _place_of(source: ColdSource, at: int) -> tuple[int, int]:
    """Return log offset and size of an entry, those of a hole for one that cannot be right."""
    try:
        raw = source.entries(at, 1)
    except OSError as exc:
        only_unreadable(exc)
        return DAMAGED
    if not raw:
        return -1, 0
    place, size, _ = ENTRY.unpack(raw)
    if size == HOLE_SIZE:
        return 0, HOLE_SIZE
    return (place, size) if place >= 0 and size >= SMALLEST_RECORD else DAMAGED


def search_spans(
    stored_ms: Callable[[int], int | None], spans: list[tuple[int, int]], time_ms: int, boundary: str
) -> int:
    """Search stretches within which store times rise, the newest first."""
    low, high = spans[0][0], spans[-1][1]
    if boundary == "nearest":
        best, distance = high - 1, 1 << 63
        for a, b in reversed(spans):
            at = nearest(stored_ms, a, b, time_ms)
            found = stored_ms(at)
            if found is not None and abs(found - time_ms) < distance:
                best, distance = at, abs(found - time_ms)
        return best
    later: int | None = None  # where the stretch behind this one begins, when all of it is at or after the time
    for a, b in reversed(spans):
        at = first_from(stored_ms, a, b, time_ms if boundary == "lower" else time_ms + 1)
        if boundary == "upper" and at > a:
            return at - 1
        if boundary == "lower" and at < b and (at > a or a == low):
            return at
        if boundary == "lower" and at == b and later is not None:
            return later  # the time is between the two
        later = a if at == a else later
    return high if boundary == "lower" and (stored_ms(high - 1) or 0) < time_ms else low
