"""Keeps the index up to the committed log: from the dispatch's backlog, after a loss of it from the log itself."""

from collections.abc import Callable

import trio

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.files.disk import Disk
from storage_driver.index.index_file import Index
from storage_driver.index.indexing import index_range, index_records
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import zeroing
from storage_driver.queues.dispatch import Dispatcher

CATCH_UP_S = 0.5  # then others may have the guard: an index rebuilt from all of the log takes minutes
FEW, MANY, EVERY_S = 200, 30_000, 2.0  # records; a key costs 12 µs among few, 2 among many


class IndexWriter:
    """The index knows the log below `upto`; its files are written in the thread of `limiter`."""

    def __init__(
        self,
        index: Index,
        log: CommitLog,
        dispatcher: Dispatcher,
        *,
        now_ms: Callable[[], int],
        limiter: trio.CapacityLimiter,
        disk: Disk,
    ) -> None:
        """disk: of the log, where it is read; what it does not give back has no keys."""
        self._index, self._log, self._dispatcher = index, log, dispatcher
        self._now_ms, self._one_thread, self._disk = now_ms, limiter, disk
        self.upto = 0
        self.far_behind = False  # it left off on the way to the log's end, for others
        self._catching_up = False  # it reads the log, which may take minutes
        self._wrote_at = 0.0
        self._rests = False

    def pause(self, rests: bool) -> None:
        """While a copy is far behind its log the index rests, so that the copy is there sooner; then it catches up."""
        if rests and not self._rests:
            self._dispatcher.take_backlog()
            self.rest()
        self._rests = rests

    def begin(self, position: CheckpointValues | None, end: int, boot: bytes) -> None:
        """Begin where the restart position says that the index is complete."""
        index_to, count = (position.index_to, position.index_count) if position is not None else (0, 0)
        if position is not None and position.boot != boot:
            self._index.set_back(index_to, count)
        self.upto = max(0, min(index_to, end), self._log.first)
        self._dispatcher.backlog_lost = self.upto < end

    @property
    def reads_log(self) -> bool:
        """Whether the next records come from the log, which may take minutes."""
        return self._dispatcher.backlog_lost or self._catching_up

    @property
    def newest_count(self) -> int:
        """How many units the newest file has."""
        return self._index.files[-1].count if self._index.files else 0

    def due(self, now: float) -> bool:
        """Tell whether to index now: few records at once, many together, since then they share reads and writes."""
        if self._rests:
            return False
        dispatcher = self._dispatcher
        waiting, lost = dispatcher.backlog_records, dispatcher.backlog_lost
        few_or_many = not FEW < waiting < MANY or dispatcher.is_heavy
        return lost or few_or_many or now - self._wrote_at > EVERY_S

    async def write(self, now: float) -> None:
        """Index what was committed, for CATCH_UP_S when that comes from the log. Raises OSError."""
        if self._rests:
            return
        if self._dispatcher.backlog_lost:
            await self._catch_up()
        else:
            await self._write_backlog()
        self._wrote_at = now

    def rest(self) -> None:
        """Read from the log at the next round: a disk that was full is not asked without a rest."""
        self._dispatcher.backlog_lost, self.far_behind = True, False

    async def _catch_up(self) -> None:
        dispatcher, log = self._dispatcher, self._log
        dispatcher.take_backlog()
        dispatcher.backlog_lost, self._catching_up, self.far_behind = False, True, False
        target, done, until = log.committed, False, trio.current_time() + CATCH_UP_S
        try:
            while self.upto < target:
                segment = log.segment_of(max(self.upto, log.first))
                if segment is None:
                    break
                start = max(self.upto, segment.base)
                readable = zeroing(self._disk, segment)
                self.upto = await trio.to_thread.run_sync(
                    index_range, self._index, readable, start, target, self._now_ms(), limiter=self._one_thread
                )
                if self.upto < target and trio.current_time() > until:
                    self.far_behind = True
                    return
            self.upto, done = target, True
        finally:
            self._catching_up = False
            if not done:
                dispatcher.backlog_lost = True

    async def _write_backlog(self) -> None:
        backlog, target, done = self._dispatcher.take_backlog(), self._log.committed, False
        try:
            if backlog:
                await trio.to_thread.run_sync(
                    index_records, self._index, backlog, self._now_ms(), limiter=self._one_thread
                )
            else:
                self._index.rest()
            self.upto, done = target, True
        finally:
            if not done:  # cancelled before it began, as when the one who deletes a topic hangs up
                self._dispatcher.backlog_lost = True
