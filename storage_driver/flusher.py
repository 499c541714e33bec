"""The second task: queue entries and index entries to their files, then the restart position.

An error here refuses senders and is tried again every round; it never ends the process, or a full disk would keep the
box from starting.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from storage_driver.config import StoreConfig
from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.files.disk import SPACE_ERRORS, Disk, SyncFailed
from storage_driver.index.index_file import Index
from storage_driver.index.index_writer import IndexWriter
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import Segment
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import Dispatcher
from storage_driver.reader import read_record
from storage_driver.record import (
    DispatchEntry,
    MessageQueue,
    parse_record,
    tags_code,
)
from storage_driver.restart_position import RestartPosition

SYNC_SINGLY: Final = 32  # with more dirty files one syncfs is cheaper
MOST_HOLES: Final = 64  # entries looked at before one that is to be repaired


class QueueWrite(NamedTuple):
    """Entries of one queue for its file."""

    key: MessageQueue
    queue_offset: int
    entries: bytes
    has_files: bool


class Flusher:
    """Writes what dispatch left in memory; one round at a time, its disk work in one thread."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        dispatcher: Dispatcher,
        *,
        queues: Mapping[MessageQueue, ConsumeQueue],
        index: Index,
        now_ms: Callable[[], int],
    ) -> None:
        self.failure: OSError | None = None
        self.sealed = False  # a sync failed: until a restart the position stays, so that recovery writes all again
        self.queues_to = 0  # queue files hold the log below, not synced
        self._config, self._disk, self._log, self._dispatcher, self._index = config, disk, log, dispatcher, index
        self._queues = queues
        self._one_thread = trio.CapacityLimiter(1)
        self.indexer = IndexWriter(index, log, dispatcher, now_ms=now_ms, limiter=self._one_thread, disk=disk)
        self.restart = RestartPosition(config, disk, queues, index)
        self._files = QueueFiles(disk, config.root, file_entries=config.queue_file_entries)
        self._unsynced: set[Path] = set()
        self._last_stored_ms = 0
        self.guard = trio.Lock()  # rounds, deletions of queues

    def begin(self, position: CheckpointValues | None, end: int, boot: bytes, last_stored_ms: int) -> None:
        """Take over from recovery: queues are complete up to `end`; save that as the new position. Raises OSError."""
        self.indexer.begin(position, end, boot)
        self.queues_to, self._last_stored_ms = end, last_stored_ms
        count = position.index_count if position is not None else 0
        self.restart.begin(CheckpointValues(end, self.indexer.upto, count, last_stored_ms, boot))

    async def run(self) -> None:
        """Write rounds until cancelled."""
        self.restart.start(trio.current_time())
        while True:
            with trio.move_on_after(0 if self.indexer.far_behind else self._config.flush_every_s):
                await self._dispatcher.flush_due.wait()
            async with self.guard:
                await self.round()

    async def index_now(self) -> None:
        """Let the index know what was durable before the call, unless it is far behind and reads the log itself."""
        target, indexer = self._log.committed, self.indexer
        if self._config.index_enabled and indexer.upto < target and not indexer.reads_log:
            async with self.guard:
                if indexer.upto < target and not indexer.reads_log:
                    await self.round(index=True)

    async def round(self, *, save: bool = False, index: bool = False) -> None:
        """Write all waiting entries; then, if it is time or `save` is set, sync them and move the position."""
        now, indexer = trio.current_time(), self.indexer
        try:
            await self._write_queues()
            if self._config.index_enabled and (save or index or indexer.due(now)):
                await indexer.write(now)
            if (save or self.restart.due(self.queues_to, now)) and not self.sealed:
                await self._save_position(with_index=save or self.restart.index_due(indexer.upto, now))
        except SyncFailed as exc:
            self.failure, self.sealed = exc, True
            with trio.CancelScope(shield=True):  # whoever asked for the round may have hung up
                await trio.to_thread.run_sync(self.restart.distrust, limiter=self._one_thread)
        except OSError as exc:
            indexer.rest()
            if not self.sealed:
                self.failure = exc
        else:
            if not self.sealed:
                self.failure = None

    async def save(self) -> None:
        """Do a round that moves the position now; the caller holds the guard. Raises OSError."""
        await self.round(save=True)
        if self.failure is not None:
            raise self.failure

    @property
    def lacks_room(self) -> bool:
        """Tell whether tables wait for nothing but space: no restart cures that, and no disk is broken."""
        return self.failure is not None and not self.sealed and self.failure.errno in SPACE_ERRORS

    async def prove(self) -> None:
        """Write and sync something now; the caller holds the guard. Raises OSError.

        No room for a table is not the disk's fault: then the position is written once more, in its place.
        """
        try:
            await self.save()
        except OSError:
            if not self.lacks_room:
                raise
        else:
            return
        try:
            await trio.to_thread.run_sync(self.restart.save_again, limiter=self._one_thread)
        except OSError as exc:
            if exc.errno not in SPACE_ERRORS:  # else a file system that writes nothing in place has answered
                raise
        self._log.proven_at = trio.current_time()

    def path(self, key: MessageQueue, first_entry: int) -> Path:
        """Return the queue's file that begins with this entry."""
        return self._files.path(key, first_entry)

    async def drop_index(self, log_offset: int) -> None:
        """Delete index files that only speak of the log below an offset. Raises OSError."""
        await trio.to_thread.run_sync(self._index.drop_before, log_offset, limiter=self._one_thread)

    async def _write_queues(self) -> None:
        dispatcher = self._dispatcher
        dirty = dispatcher.take_dirty()
        self._last_stored_ms = max(self._last_stored_ms, dispatcher.last_stored_ms)
        if not dirty:
            self.queues_to = self._log.committed
            return
        writes = [QueueWrite(q.key, q.written, q.waiting(), q.first_file is not None) for q in dirty.values()]
        upto, failed = self._log.committed, True
        try:
            self._unsynced |= await trio.to_thread.run_sync(
                _write_queues, self._files, writes, limiter=self._one_thread
            )
            failed = False
        finally:
            if failed:
                dispatcher.dirty = dirty | dispatcher.dirty
        for write in writes:
            self._wrote(dirty[write.key], write)
        self.queues_to = upto

    def _wrote(self, queue: ConsumeQueue, write: QueueWrite) -> None:
        if queue.first_file is None:
            queue.first_file = write.queue_offset - write.queue_offset % self._config.queue_file_entries
        queue.wrote(len(write.entries) // ENTRY_BYTES)

    async def _save_position(self, *, with_index: bool) -> None:
        position = self.restart.values._replace(queues_to=self.queues_to, stored_ms=self._last_stored_ms)
        if with_index:
            position = position._replace(index_to=self.indexer.upto, index_count=self.indexer.newest_count)
        paths, self._unsynced, saved = self._unsynced, set(), False
        try:
            await trio.to_thread.run_sync(self._sync_and_save, paths, position, with_index, limiter=self._one_thread)
            saved = True
        finally:
            if not saved:
                self._unsynced |= paths
        now = trio.current_time()
        if self.restart.ends_due(self.queues_to, now):
            await self.save_ends(position.queues_to)
        self.restart.saved(position, now, with_index=with_index)
        self._log.proven_at = now

    async def save_ends(self, as_of: int) -> None:
        """Write the table of queues; all entries of the log below `as_of` are in the files, synced. Raises OSError."""
        await self.restart.save_ends(as_of, self._one_thread)

    def _sync_and_save(self, paths: set[Path], position: CheckpointValues, with_index: bool) -> None:
        root = self._config.root
        if len(paths) > SYNC_SINGLY:
            self._disk.sync_all(root)
        else:
            for path in sorted(paths):
                if self._disk.exists(path):  # else its queue or the start of it was deleted
                    self._disk.open(path).sync()
            made = self._files.made  # only a new name changes a folder, and each sync holds up those of the log
            for folder in sorted({above for path in made for above in (path.parent, path.parent.parent)}):
                if self._disk.exists(folder):
                    self._disk.sync_folder(folder)
            if made:
                self._disk.sync_folder(root / "consumequeue")
        self._files.made.clear()
        if with_index:
            self._index.sync()
        self.restart.save(position)

    async def heal(self, entries: list[DispatchEntry]) -> int:
        """Repair the queue entries of these records, return how many were wrong. Raises OSError."""
        async with self.guard:  # a queue, or the start of one, that is deleted meanwhile must not get a file again
            segments, wanted = tuple(self._log.segments), []
            for entry in entries:
                key = MessageQueue(entry.topic, entry.queue_id)
                queue = self._queues.get(key)
                if queue is not None and _in_files(queue, entry.queue_offset):
                    code = tags_code(entry.topic, entry.properties, entry.stored_ms, self._config.delays_ms)
                    wanted.append((key, entry.queue_offset, ENTRY.pack(entry.log_offset, entry.size, code)))
            return await trio.to_thread.run_sync(_heal, self._files, wanted, segments, limiter=self._one_thread)

    async def replace(self, queue: ConsumeQueue, queue_offset: int, entries: bytes) -> bool:
        """Write entries over those in a queue's files, unless these were deleted meanwhile. Raises OSError."""
        async with self.guard:
            last = queue_offset + len(entries) // ENTRY_BYTES - 1
            if queue.dropped or not (_in_files(queue, queue_offset) and _in_files(queue, last)):
                return False
            write = [QueueWrite(queue.key, queue_offset, entries, True)]
            self._unsynced |= await trio.to_thread.run_sync(_write_queues, self._files, write, limiter=self._one_thread)
            return True

    async def wrong_ends(self, keys: Sequence[MessageQueue]) -> int:
        """Return how many of these queues do not end with an entry of theirs in their file. Raises OSError."""
        async with self.guard:
            queues = [self._queues[key] for key in keys if key in self._queues]
            ends = [(queue.key, queue.written) for queue in queues if queue.written]
            segments = tuple(self._log.segments)
            return await trio.to_thread.run_sync(_wrong_ends, self._files, ends, segments, limiter=self._one_thread)

    def forget(self, key: MessageQueue) -> None:
        """Close a queue's files before some of them are deleted."""
        self._files.forget(key)
        self.restart.forget_ends()


def _write_queues(files: QueueFiles, writes: list[QueueWrite]) -> set[Path]:
    touched: set[Path] = set()
    for key, queue_offset, entries, has_files in writes:
        touched |= files.write(key, queue_offset, entries, has_files=has_files)
    return touched


def _in_files(queue: ConsumeQueue, queue_offset: int) -> bool:
    return queue.first_file is not None and queue.first_file <= queue_offset < queue.written


def _heal(files: QueueFiles, wanted: list[tuple[MessageQueue, int, bytes]], segments: Sequence[Segment]) -> int:
    """Replace entries that point at no record of theirs; one that does belongs to a later life of the queue."""
    wrong = 0
    for key, queue_offset, entry in wanted:
        found = files.read(key, queue_offset, 1)
        if found == entry or points_at(segments, found, key, queue_offset):
            continue
        if _in_order(files, segments, key, queue_offset, entry):
            files.write(key, queue_offset, entry, has_files=True)
            wrong += 1
    return wrong


def _wrong_ends(files: QueueFiles, ends: list[tuple[MessageQueue, int]], segments: Sequence[Segment]) -> int:
    wrong, first = 0, segments[0].base if segments else 1 << 62
    for key, end in ends:
        raw = files.read(key, end - 1, 1)
        if len(raw) == ENTRY_BYTES:
            log_offset, size, _ = ENTRY.unpack(raw)
            if size == HOLE_SIZE or (size > 0 and log_offset < first) or points_at(segments, raw, key, end - 1):
                continue
        wrong += 1
    return wrong


def _in_order(
    files: QueueFiles, segments: Sequence[Segment], key: MessageQueue, queue_offset: int, entry: bytes
) -> bool:
    """Tell whether an entry fits after the last good one: a record of a deleted topic's life before does not."""
    for at in range(queue_offset - 1, max(-1, queue_offset - 1 - MOST_HOLES), -1):
        before = files.read(key, at, 1)
        if points_at(segments, before, key, at):
            return bool(ENTRY.unpack(before)[0] < ENTRY.unpack(entry)[0])
    return True


def points_at(segments: Sequence[Segment], raw: bytes, key: MessageQueue, queue_offset: int) -> bool:
    """Tell whether an entry leads to the intact record with its number. Raises OSError."""
    if len(raw) < ENTRY_BYTES:
        return False
    log_offset, size, _ = ENTRY.unpack(raw)
    data = read_record(segments, log_offset, size, 1 << 62)
    if data is None:
        return False
    entry = parse_record(data, 0, log_offset, check_crc=False)
    return (entry.topic, entry.queue_id, entry.queue_offset) == (*key, queue_offset)
