"""Deletion: a topic's queues; the oldest segment with the queue and index files that refer only to it.

The table of queues is saved first: a start never takes a deleted file for a lost one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from storage_driver.appending import Appender
from storage_driver.config import StoreConfig
from storage_driver.errors import LogFailed
from storage_driver.files.checkpoint import FirstFile
from storage_driver.files.disk import Disk
from storage_driver.flusher import Flusher
from storage_driver.log.commit_log import CommitLog
from storage_driver.lookup import Lookup
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from storage_driver.queues.dispatch import Dispatcher
from storage_driver.record import MessageQueue

T = TypeVar("T")


class Deletion:
    """Deletes from one store; each method holds the tables' guard, so that no round writes meanwhile."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        flusher: Flusher,
        queues: dict[MessageQueue, ConsumeQueue],
        *,
        first_file: FirstFile,
        dispatcher: Dispatcher,
        appender: Appender,
        lookup: Lookup,
    ) -> None:
        self._file_entries, self._folder = config.queue_file_entries, config.root / "consumequeue"
        self._disk, self._log, self._flusher, self._queues = disk, log, flusher, queues
        self._dispatcher, self._appender, self._lookup = dispatcher, appender, lookup
        self._first_file = first_file
        self._one_thread = trio.CapacityLimiter(1)
        self.topics = 0  # that were deleted so far

    async def delete_topic(self, topic: str, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Delete the topic's queues; its records leave with the log. Raises OSError, LogFailed.

        `unless`: asked at the last moment whether it is used again; return whether the queues are gone.
        """
        async with self._flusher.guard:
            old = self._of(topic)
            if not old:
                self._appender.forget_topic(topic)
                return True
            await self._drop(topic, lambda queue: not unless())
            if not all(queue.dropped for queue in old):
                return False
            end = min(self._log.end, self._log.read_to)
        # Rounds go on meanwhile: of a log that others share nobody knows how long this takes.
        await self._log.wait_committed(min(end, self._log.end))  # the position goes past all that was on its way
        async with self._flusher.guard:
            await self._flusher.save()  # recovery must not bring them back, wherever it starts
            await self._flusher.save_ends(self._flusher.restart.values.queues_to)
        return True

    async def restart_queue(self, topic: str, queue_id: int) -> None:
        """Delete a queue of a copied log whose numbers begin again, with those of its topic that began before its end.

        Those that began later may have records of the topic's new life. Raises OSError, LogFailed.
        """
        queue = self._queues.get(MessageQueue(topic, queue_id))
        if queue is None:
            return
        while queue.next_offset > queue.visible:  # what is on its way to it is of its life before
            try:
                await self._log.wait_committed(self._log.committed + 1)
            except LogFailed:
                if self._log.failure is not None:
                    raise
        async with self._flusher.guard:
            older = set[MessageQueue]()
            for each in self._of(topic):
                if await self._began(each) < queue.last_log_offset:
                    older.add(each.key)  # in the new life it would have begun again as well
            await self._drop(topic, lambda each: each is queue or each.key in older)

    async def _began(self, queue: ConsumeQueue) -> int:
        """Return the log offset of a queue's first message, 0 where it is not known any more. Raises OSError."""
        files = self._lookup.cold_source(queue).files
        read = partial(files.read, queue.key, 0, 1)
        raw = queue.held(0, 1)
        if not raw:
            raw = await trio.to_thread.run_sync(read, limiter=self._one_thread)
        return int(ENTRY.unpack(raw)[0]) if len(raw) == ENTRY_BYTES else 0

    async def delete_ended(self, topic: str, log_offset: int) -> None:
        """Delete the topic's queues that have nothing at a log offset or above: it was deleted there. Raises OSError.

        Everything below must be committed.
        """
        async with self._flusher.guard:
            if any(_has_ended(queue, log_offset) for queue in self._of(topic)):
                await self._drop(topic, lambda queue: _has_ended(queue, log_offset))

    def _of(self, topic: str) -> list[ConsumeQueue]:
        return [queue for queue in self._queues.values() if queue.key.topic == topic]

    async def _drop(self, topic: str, goes: Callable[[ConsumeQueue], bool]) -> None:
        """Forget queues of a topic, and delete their files. Raises OSError."""
        await self._flusher.save()
        gone = [queue.key for queue in self._of(topic) if goes(queue)]
        for key in gone:
            self._queues.pop(key).dropped = True  # what is still on its way to it goes nowhere
            self._dispatcher.dirty.pop(key, None)
            self._lookup.files.forget(key)
            self._flusher.forget(key)
        self.topics += 1
        folders = [self._folder / topic / str(key.queue_id) for key in gone]
        if not self._of(topic):
            self._appender.forget_topic(topic)
            folders = [self._folder / topic]
        await self._flusher.save_ends(self._flusher.restart.values.queues_to)
        await self._in_thread(self._remove_folders, folders)

    def _remove_folders(self, folders: list[Path]) -> None:
        for folder in folders:
            self._disk.remove_folder(folder)
        if folders and self._disk.exists(folders[0].parent):
            self._disk.sync_folder(folders[0].parent)

    async def drop_first(self, base: int | None = None) -> bool:
        """Delete the oldest segment, if it begins at `base` and is not the newest; return whether it was deleted.

        Readers that have it open may finish. Raises OSError.
        """
        async with self._flusher.guard:
            segments = self._log.segments
            if len(segments) < 2 or base not in (None, segments[0].base) or self._log.read_to < segments[1].base:
                return False
            first = segments[1].base
            if self._flusher.restart.values.queues_to < first:
                await self._in_thread(self._disk.sync_folder, self._folder)
                await self._flusher.save()  # recovery must not start in what is gone
            await self._in_thread(self._first_file.save, first)
            await self._in_thread(self._remove_segment, segments[0].path)
            del segments[0]  # not before: of one that stays those behind it stay, a start would miss them
            await self._drop_queue_files()
            await self._flusher.drop_index(first)
            return True

    async def begin_at(self, log_offset: int) -> None:
        """Have a log that never held a record begin at a segment's first byte, as if what is below were deleted.

        It may begin again at a higher one. Raises ValueError for a log that has records and for another log offset,
        OSError.
        """
        async with self._flusher.guard:
            log, began = self._log, max(0, self._first_file.log_offset)
            if log.end != began or log.segments or log_offset < began or log_offset % log.segment_bytes:
                text = f"a log from {log.first} to {log.end}, in segments of {log.segment_bytes}, can't begin at"
                raise ValueError(f"{text} {log_offset}")
            await self._in_thread(self._first_file.save, log_offset)
            log.begin_at(log_offset)

    def _remove_segment(self, path: Path) -> None:
        self._disk.remove(path)
        self._disk.sync_folder(path.parent)

    async def _drop_queue_files(self) -> None:
        """Delete the files of queues all of whose entries point below the log; never a queue's last."""
        old: list[Path] = []
        for queue in [q for q in self._queues.values() if self._files_before(q, q.written)]:
            low = await self._lookup.low_in_thread(queue)
            count = self._files_before(queue, min(low, queue.written))
            if queue.first_file is None or queue.dropped or not count:
                continue
            numbers = range(queue.first_file, queue.first_file + count * self._file_entries, self._file_entries)
            old += [self._flusher.path(queue.key, number) for number in numbers]
            self._lookup.files.forget(queue.key)
            self._flusher.forget(queue.key)
            queue.first_file += count * self._file_entries
        if old:
            await self._flusher.save()
            await self._flusher.save_ends(self._flusher.restart.values.queues_to)
            await self._in_thread(self._remove_files, old)

    def _files_before(self, queue: ConsumeQueue, number: int) -> int:
        """Return how many files of the queue are whole below an entry that has a file."""
        return (number - queue.first_file) // self._file_entries if queue.first_file is not None else 0

    def _remove_files(self, paths: list[Path]) -> None:
        for path in paths:
            self._disk.remove(path)

    async def _in_thread(self, work: Callable[[T], None], argument: T) -> None:
        await trio.to_thread.run_sync(work, argument, limiter=self._one_thread)


def _has_ended(queue: ConsumeQueue, log_offset: int) -> bool:
    """Return whether all records of a queue, those on their way among them, are below a log offset."""
    return queue.next_offset <= queue.visible and 0 <= queue.last_log_offset < log_offset
