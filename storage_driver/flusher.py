"""The second task: queue entries and index entries to their files, then the restart position.

An error here refuses senders and is tried again every round; it never ends the process, or a full disk would keep the
box from starting.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from storage_driver.config import StoreConfig
from storage_driver.files.checkpoint import CheckpointFile, CheckpointValues, CommittedFile, PositionFile, Times
from storage_driver.files.disk import Disk, SyncFailed
from storage_driver.index.index_file import Index
from storage_driver.index.indexing import index_range, index_records
from storage_driver.log.commit_log import SPACE_ERRORS, CommitLog
from storage_driver.log.segment import Segment
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import Dispatcher
from storage_driver.queues.queue_table import save_table, table_file, table_value
from storage_driver.reader import read_record
from storage_driver.record import (
    DispatchEntry,
    MessageQueue,
    parse_record,
    tags_code,
)

SYNC_SINGLY = 32  # with more dirty files one syncfs is cheaper
CATCH_UP_S = 0.5  # then others may have the guard: an index rebuilt from all of the log takes minutes
ENDS_EVERY_S = 60.0
MOST_HOLES = 64  # entries looked at before one that is to be repaired
INDEX_BEHIND = 4  # positions of the queues per one of the index, while many messages come
INDEX_FEW, INDEX_MANY, INDEX_EVERY_S = 200, 30_000, 2.0  # a key costs 12 µs among few, 2 among many


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
        self.index_to = 0  # the index covers the log below
        self._catching_up = False  # the index reads the log, which may take minutes
        self._far_behind = False  # it left off on the way to the log's end, for others
        self.queues_to = 0  # queue files hold the log below, not synced
        self.position = CheckpointValues(0, 0, 0, 0, bytes(16))
        self.committed_file: CommittedFile | None = None  # of a log that others share
        self._config, self._disk, self._log, self._dispatcher, self._index = config, disk, log, dispatcher, index
        self._now_ms, self._queues = now_ms, queues
        self._ends_file = table_file(disk, config.root)
        self._ends_saved = (-ENDS_EVERY_S, -1, 0)  # when, how many queues there were, complete up to which log offset
        self._files = QueueFiles(disk, config.root, file_entries=config.queue_file_entries)
        self._position_file = PositionFile(disk, config.root / "rocketbox" / "position")
        self._checkpoint_file = CheckpointFile(disk, config.root / "checkpoint")
        self._unsynced: set[Path] = set()
        self._last_stored_ms = 0
        self._saved_at = self._indexed_at = self._index_synced_at = 0.0
        self._one_thread = trio.CapacityLimiter(1)
        self.guard = trio.Lock()  # rounds, deletions of queues

    def begin(self, position: CheckpointValues | None, end: int, boot: bytes, last_stored_ms: int) -> None:
        """Take over from recovery: queues are complete up to `end`; save that as the new position. Raises OSError."""
        self._position_file.load()
        index_to, count = (position.index_to, position.index_count) if position is not None else (0, 0)
        if position is not None and position.boot != boot:
            self._index.set_back(index_to, count)
        self.index_to = max(0, min(index_to, end), self._log.first)
        self.queues_to, self._last_stored_ms = end, last_stored_ms
        self._dispatcher.backlog_lost = self.index_to < end
        self.position = CheckpointValues(end, self.index_to, count, last_stored_ms, boot)
        self._position_file.save(self.position)
        if end or self._queues or self._disk.exists(self._ends_file.path):  # of an empty store it would say nothing
            save_table(self._ends_file, table_value(end, self._queues.values()))

    async def run(self) -> None:
        """Write rounds until cancelled."""
        self._saved_at = self._index_synced_at = trio.current_time()
        while True:
            with trio.move_on_after(0 if self._far_behind else self._config.flush_every_s):
                await self._dispatcher.flush_due.wait()
            async with self.guard:
                await self.round()

    async def index_now(self) -> None:
        """Let the index know what was durable before the call, unless it is far behind and reads the log itself."""
        target, behind = self._log.committed, self._dispatcher.backlog_lost or self._catching_up
        if self._config.index_enabled and self.index_to < target and not behind:
            async with self.guard:
                if self.index_to < target and not self._dispatcher.backlog_lost:
                    await self.round(index=True)

    async def round(self, *, save: bool = False, index: bool = False) -> None:
        """Write all waiting entries; then, if it is time or `save` is set, sync them and move the position."""
        config, now = self._config, trio.current_time()
        try:
            await self._write_queues()
            if config.index_enabled and (save or index or self._index_due(now)):
                await self._write_index()
                self._indexed_at = now
            moved = self.queues_to - self.position.queues_to
            due = moved and (now - self._saved_at > config.position_every_s or moved > config.position_every_bytes)
            if (save or due) and not self.sealed:
                await self._save_position(with_index=save or self._index_sync_due(now))
        except SyncFailed as exc:
            self.failure, self.sealed = exc, True
            with trio.CancelScope(shield=True):  # whoever asked for the round may have hung up
                await trio.to_thread.run_sync(self._distrust, limiter=self._one_thread)
        except OSError as exc:
            self._dispatcher.backlog_lost, self._far_behind = True, False  # a full disk is not asked without a rest
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
            await trio.to_thread.run_sync(self._position_file.save, self.position, limiter=self._one_thread)
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

    def _index_due(self, now: float) -> bool:
        """Tell whether to index now: few records at once, many together, since then they share reads and writes."""
        dispatcher = self._dispatcher
        waiting, lost = dispatcher.backlog_records, dispatcher.backlog_lost
        few_or_many = not INDEX_FEW < waiting < INDEX_MANY or dispatcher.is_heavy
        return lost or few_or_many or now - self._indexed_at > INDEX_EVERY_S

    async def _write_index(self) -> None:
        dispatcher, log = self._dispatcher, self._log
        if not dispatcher.backlog_lost:
            await self._index_backlog()
            return
        dispatcher.take_backlog()
        dispatcher.backlog_lost, self._catching_up, self._far_behind = False, True, False
        target, done, until = log.committed, False, trio.current_time() + CATCH_UP_S
        try:
            while self.index_to < target:
                segment = log.segment_of(max(self.index_to, log.first))
                if segment is None:
                    break
                start = max(self.index_to, segment.base)
                self.index_to = await trio.to_thread.run_sync(
                    index_range, self._index, segment, start, target, self._now_ms(), limiter=self._one_thread
                )
                if self.index_to < target and trio.current_time() > until:
                    self._far_behind = True
                    return
            self.index_to, done = target, True
        finally:
            self._catching_up = False
            if not done:
                dispatcher.backlog_lost = True

    async def _index_backlog(self) -> None:
        backlog, target, done = self._dispatcher.take_backlog(), self._log.committed, False
        try:
            if backlog:
                await trio.to_thread.run_sync(
                    index_records, self._index, backlog, self._now_ms(), limiter=self._one_thread
                )
            else:
                self._index.rest()
            self.index_to, done = target, True
        finally:
            if not done:  # cancelled before it began, as when the one who deletes a topic hangs up
                self._dispatcher.backlog_lost = True

    def _index_sync_due(self, now: float) -> bool:
        """Tell whether to sync the index with the queues: its slots are everywhere, 20 MB of many keys."""
        far = self.index_to - self.position.index_to > INDEX_BEHIND * self._config.position_every_bytes
        return far or now - self._index_synced_at > self._config.position_every_s

    async def _save_position(self, *, with_index: bool) -> None:
        position = self.position._replace(queues_to=self.queues_to, stored_ms=self._last_stored_ms)
        if with_index:
            count = self._index.files[-1].count if self._index.files else 0
            position = position._replace(index_to=self.index_to, index_count=count)
        paths, self._unsynced, saved = self._unsynced, set(), False
        try:
            await trio.to_thread.run_sync(self._sync_and_save, paths, position, with_index, limiter=self._one_thread)
            saved = True
        finally:
            if not saved:
                self._unsynced |= paths
        now = trio.current_time()
        if with_index:
            self._index_synced_at = now
        if self._ends_due(now):
            await self.save_ends(position.queues_to)
        self.position, self._saved_at = position, now
        self._log.proven_at = self._saved_at

    def _distrust(self) -> None:
        """Make the next start reset the index to what was synced, as after a reboot."""
        try:
            self._position_file.save(self.position._replace(boot=bytes(16)))
        except OSError:
            pass  # a disk that takes nothing more: what is there is older and holds as well

    async def save_ends(self, as_of: int) -> None:
        """Write the table of queues; all entries of the log below `as_of` are in the files, synced. Raises OSError."""
        value = table_value(as_of, self._queues.values())
        await trio.to_thread.run_sync(save_table, self._ends_file, value, limiter=self._one_thread)
        self._ends_saved = trio.current_time(), len(self._queues), as_of

    def _ends_due(self, now: float) -> bool:
        """Tell whether the table of queues is old, from which a start scans; a large one is not saved each time."""
        saved_at, count, as_of = self._ends_saved
        many = len(self._queues) > self._config.trust_queues_above
        moved = self.queues_to - as_of > (self._config.position_every_bytes if many else 0)
        return now - saved_at > ENDS_EVERY_S or count != len(self._queues) or moved

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
        self._position_file.save(position)
        if self.committed_file is not None:
            self.committed_file.save(position.queues_to)
        full = self._index.files[-2].end_ms if len(self._index.files) > 1 else 0
        self._checkpoint_file.save(Times(position.stored_ms, position.stored_ms, full))

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
        self._ends_saved = (-ENDS_EVERY_S, -1, 0)


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
