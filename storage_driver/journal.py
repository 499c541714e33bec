"""A journal that many change and one thread writes: changes that come during a sync share the next one.

The owner changes its table in memory, then adds the bytes of the change; an answer waits for the mark it gets. When
the file is several times what the table amounts to, or after an error of the disk, a new file is written from
`snapshot` instead. No failed sync is repeated: the new file has bytes of its own.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import outcome
import trio

from storage_driver.errors import ENDED
from storage_driver.files.journal_file import Frames, JournalFile
from storage_driver.log.marks import Mark, Wake, reached
from storage_driver.log.sync_thread import Call, SyncThread, open_sync_thread

log = logging.getLogger("storage_driver")

LEAST_BYTES = 1 << 20  # a file below is not worth a new one
GROWTH = 4  # times the size of the last snapshot
RETRY_S = 1.0


class JournalFailed(Exception):
    """A change did not reach the disk; it may be there after a restart or not."""


class Journal:
    """Entries of one owner; `run` writes them. `snapshot` returns payloads that amount to all entries so far."""

    def __init__(self, file: JournalFile, snapshot: Callable[[], list[bytes]]) -> None:
        self.failure: str | None = None  # why the last write failed; the next one writes a new file
        self.syncs = self.replacements = 0
        self._file, self._snapshot = file, snapshot
        self._added = self._taken = 0  # marks: of the newest entry, of the newest that is being written
        self._synced = Mark(0)
        self._entries: list[bytes] = []
        self._writing: deque[int] = deque()  # marks: the next write begins before the last is heard of
        self._not_before = 0.0
        self._work, self._thread = trio.Event(), list[SyncThread]()

    @property
    def size(self) -> int:
        """Bytes of the file that are in use."""
        return self._file.size

    @property
    def newest(self) -> int:
        """The mark of the newest change."""
        return self._added

    def load(self) -> Frames:
        """Return what an earlier run left; the first write replaces it. Blocks. Raises OSError."""
        return self._file.load()

    def add(self, entry: bytes) -> int:
        """Queue one change and return the mark under which it will be on stable storage. Never blocks."""
        self._entries.append(entry)
        self._added += 1
        return self._added

    def when_synced(self, mark: int, wake: Wake) -> None:
        """Call wake(None) once the changes up to a mark are on stable storage, wake(reason) if they are not."""
        if self._synced.when(mark, wake):
            self._begin()

    async def wait_synced(self, mark: int) -> None:
        """Return once the changes up to a mark are on stable storage. Raises JournalFailed."""
        reason = await reached(self.when_synced, mark)
        if reason is not None:
            raise JournalFailed(reason)

    def _begin(self) -> None:
        """Have the thread write now, unless it does already; the task has a turn only where it cannot begin yet."""
        if self._thread:
            self._thread[0].nudge()
        if not self._writing:
            self._work.set()

    async def run(self) -> None:
        """Write until cancelled; what has begun is finished, who waits for more is told that it is not sure."""
        try:
            async with open_sync_thread(self._take, self._done) as thread:
                self._thread.append(thread)
                await self._write_changes(thread)
        finally:
            self._thread.clear()
            self._synced.fail(ENDED)

    async def _write_changes(self, thread: SyncThread) -> None:
        while True:
            await thread.do_all()
            await self._work.wait()
            self._work = trio.Event()
            await trio.sleep(max(0.0, self._not_before - trio.current_time()))

    async def flush(self) -> None:
        """Write what was added and nobody waits for, at a stop, after `run` has ended. Raises OSError."""
        if (call := self._take()) is not None:
            await trio.to_thread.run_sync(call)

    def _take(self) -> Call | None:
        if self._added == self._taken or trio.current_time() < self._not_before:
            return None
        self._taken = self._added
        self._writing.append(self._taken)
        entries, self._entries = self._entries, []
        if not self._file.ready or self._file.size > max(LEAST_BYTES, GROWTH * self._file.replaced_size):
            self.replacements += 1
            return partial(self._file.replace, self._snapshot())
        return partial(self._file.append, b"".join(entries))

    def _done(self, ended: outcome.Outcome[None]) -> None:
        mark = self._writing.popleft()
        if isinstance(ended, outcome.Error):
            self._failed(ended.error)
        else:
            self.syncs += 1
            self.failure = None
            self._synced.move(mark)

    def _failed(self, error: BaseException) -> None:
        self._work.set()
        if not isinstance(error, OSError):
            raise error
        self.failure = f"{self._file.path.name}: {error}"
        log.error("event=journal_not_written file=%s reason=%r", self._file.path.name, str(error))
        self._not_before, self._taken = trio.current_time() + RETRY_S, self._synced.at
        self._synced.fail(self.failure)
