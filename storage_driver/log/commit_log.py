"""The append-only log: group commit by one task and one thread, its two marks and their waiters.

Every byte below `synced` survives a power cut of this machine. Every byte below `committed` may be acknowledged,
dispatched, pulled and shipped: it is on as many disks as the owner wants. `committed` never passes `synced`; a log by
itself commits what it has synced. Appends never block; what arrives during a sync shares the next one.
"""

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import trio
from outcome import Outcome  # trio's own

from storage_driver.errors import Busy, LogFailed
from storage_driver.log.cut_history import CutDone
from storage_driver.log.marks import Mark, Wake, reached
from storage_driver.log.segment import Segment, SegmentWriter, Stopped, Write, WriteResult
from storage_driver.log.sync_thread import open_sync_thread
from storage_driver.log.truncation import Truncation
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.dispatch import PendingRecord, PendingRun, split_run
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK

PendingAppend = PendingRecord | PendingRun
Ended = Callable[[Outcome[Any]], None]
Writing = Callable[[Sequence[Write], int], None]
"""(writes, the log offset behind them): a batch begins to be written."""
SPACE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
BUSY_AFTER_S: Final = 1.0
BUSY_CHECK_EVERY: Final = 16  # the clock costs 0.3 µs
ALL: Final = 1 << 62  # above every log offset


class SyncCounters:
    """Counts of the writer; buckets are powers of two of microseconds, bucket i holds syncs under 2**i µs."""

    def __init__(self) -> None:
        self.syncs = self.messages = self.bytes = 0
        self.slowest_s = self.sync_s = 0.0
        self.histogram = [0] * 26

    def add(self, count: int, sync_s: float) -> None:
        """Count one sync of so many bytes."""
        self.syncs += 1
        self.bytes += count
        self.sync_s += sync_s
        self.slowest_s = max(self.slowest_s, sync_s)
        self.histogram[min(25, int(sync_s * 1e6).bit_length())] += 1


class CutRequest:
    """A cut of the log that was asked for; `done` says what it took away once it has `ended`."""

    def __init__(self, log_offset: int, reason: str, truncation: Truncation) -> None:
        self.log_offset, self.reason, self._truncation = log_offset, reason, truncation
        self.done: CutDone | None = None
        self.ended = trio.Event()

    def work(self, writer: SegmentWriter, end: int) -> CutDone:
        """Cut in the log's thread, when nothing is being written. Raises OSError."""
        done = self._truncation.cut(self.log_offset, end, self.reason)
        writer.go_back(self.log_offset)
        return done


def end_of(record: PendingAppend) -> int:
    """Return the log offset just past a record or a batch."""
    if isinstance(record, PendingRun):
        return record.log_offsets[-1] + record.sizes[-1]
    return record.log_offset + record.size


class Sharing(NamedTuple):
    """Who is told of syncs and commits, and who sends to others what begins to be written."""

    synced_to: Callable[[int], None]
    writing: Writing | None


class CommitLog:
    """The log of one store.

    `dispatch` gets each record once it is committed, `on_truncated` those that never will be; `no_room` is told why
    the disk refused more.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        end: int,
        writer: SegmentWriter,
        *,
        segment_bytes: int,
        dispatch: Callable[[Sequence[PendingAppend]], int],
        on_truncated: Callable[[Sequence[PendingAppend]], None],
        no_room: Callable[[str], None],
        flush_budget_s: float = 0.0,
    ) -> None:
        self.segments = list(segments)
        self.segment_bytes = segment_bytes
        self.end = end
        self.truncations = 0  # how often appended records were given up, their offsets given out again
        self.failure: str | None = None  # sticky: a failed sync is never retried
        self.counters = SyncCounters()
        self.proven_at: float | None = None  # trio time of the last completed sync
        self._writer, self._dispatch, self._budget_s = writer, dispatch, flush_budget_s
        self._on_truncated, self._no_room = on_truncated, no_room
        whole = not segments or segments[-1].end == end  # the next record begins a segment
        self._limit = end - end % segment_bytes + segment_bytes if whole else segments[-1].end
        self._pieces: list[bytes] = []
        self._writes = [Write(end, self._pieces)]
        self._pending: list[PendingAppend] = []
        self._uncommitted: deque[PendingAppend] = deque()  # synced, not dispatched
        self._synced, self._committed = Mark(end), Mark(end)
        self.read_to = ALL  # behind it the log has whole files of which no record was read yet
        self._wanted = 0  # what `commit` was asked for while it was lower
        self.answers: Mark | None = None  # `committed` again, for clients, where they do not wait for ever
        self._sharing: Sharing | None = None  # None: a log by itself
        self._oldest_at: float | None = None  # since when the oldest record that is not synced waits
        self._work = trio.Event()
        self._rested = not flush_budget_s  # the budget, if there is one, has passed for the next batch
        self._cut: CutRequest | None = None  # asked for, not begun
        self._jobs: deque[Ended] = deque()  # what hears how each call of the thread ended; at most two
        self._nudge: Callable[[], None] = lambda: None  # has the thread begin, when it rests
        self._spare_thread = trio.CapacityLimiter(1)

    @property
    def first(self) -> int:
        """The lowest log offset on disk."""
        return self.segments[0].base if self.segments else self._synced.at

    @property
    def synced(self) -> int:
        """Every byte below is on this disk."""
        return self._synced.at

    @property
    def committed(self) -> int:
        """Every byte below may be acknowledged, dispatched, pulled and shipped."""
        return self._committed.at

    @property
    def waiting_s(self) -> float:
        """How long the oldest record that is not synced has waited, 0 when there is none."""
        return 0.0 if self._oldest_at is None else trio.current_time() - self._oldest_at

    def reserve(self, size: int) -> int:
        """Return the log offset where `size` bytes will be, ending the segment if need be. Raises LogFailed, Busy."""
        if self.failure is not None:
            raise LogFailed(self.failure)
        if self._oldest_at is not None and not len(self._pending) % BUSY_CHECK_EVERY and self.waiting_s > BUSY_AFTER_S:
            raise Busy(int(self.waiting_s * 1000))
        if self.end + size + BLANK_BYTES > self._limit:
            self.end_segment()
        return self.end

    @property
    def segment_left(self) -> int:
        """How many bytes the segment has behind `end`, those of its blank included."""
        return self._limit - self.end

    def end_segment(self) -> None:
        """Leave the rest of the segment blank: the next record begins the next one."""
        self._pieces.append(BLANK.pack(self._limit - self.end, MAGIC_BLANK))
        self.end, self._limit = self._limit, self._limit + self.segment_bytes
        self._pieces = []
        self._writes.append(Write(self.end, self._pieces))

    def begin_at(self, log_offset: int) -> None:
        """Give the first record of a log that never held one this log offset, the first of a segment."""
        self.end, self._limit = log_offset, log_offset + self.segment_bytes
        self._writes = [Write(log_offset, self._pieces)]
        self._synced.move(log_offset)
        self._committed_to(log_offset)

    def append(self, data: bytes, pending: PendingAppend) -> int:
        """Queue a record or a batch at `end` (after `reserve`), return the log offset just past it. Not synced yet."""
        if not self._pending:
            self._work.set()
            if self._oldest_at is None:
                self._oldest_at = trio.current_time()
        self._pieces.append(data)
        self._pending.append(pending)
        self.end += len(data)
        return self.end

    def append_all(self, data: bytes, pending: Sequence[PendingAppend]) -> None:
        """Queue records that follow one another at `end`, in one piece; they fit the segment."""
        first, *rest = pending
        self.append(data, first)
        self._pending += rest

    # ---- whole files of another log

    def adopt(self, segment: Segment) -> None:
        """Take a file that has what this log has of its segment, and all behind it, on stable storage; all is synced.

        Nothing behind `read_to` is committed before `take_read` was given its records.
        """
        if self.end != self._synced.at or self._pending or not segment.base <= self.end < segment.end:
            raise ValueError(f"a file from {segment.base} on for a log that ends at {self.end}, synced {self.synced}")
        self.segments[:] = [*(each for each in self.segments if each.base < segment.base), segment]
        self._writer.take_over(segment)
        self.read_to = min(self.read_to, self.end)
        self.end = segment.end
        self._limit = self.end + self.segment_bytes
        self._writes = [Write(self.end, self._pieces)]
        self.proven_at = trio.current_time()
        self._synced.move(self.end)

    def take_read(self, pending: Sequence[PendingAppend], log_offset: int) -> None:
        """Take the records between `read_to` and a log offset, where one ends; commit what waited for them."""
        self._uncommitted += pending
        self.read_to = log_offset if log_offset < self.end else ALL
        self.commit(self._wanted)

    def when_committed(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are committed, wake(reason) if they will not be."""
        self._when(self._committed, log_offset, wake)

    async def wait_committed(self, log_offset: int) -> None:
        """Return once all bytes below log_offset are committed. Raises LogFailed."""
        if reason := await reached(self.when_committed, log_offset):
            raise LogFailed(reason)

    def bound_answers(self) -> Mark:
        """Let clients wait at a mark of their own from now on, so that their wait can end early; return it."""
        self.answers = Mark(self._committed.at)
        return self.answers

    def when_answered(self, log_offset: int, wake: Wake) -> None:
        """Do what `when_committed` does, for a client: wake(reason) also where it has waited for too long."""
        mark = self.answers
        self._when(self._committed if mark is None else mark, log_offset, wake)

    def when_synced(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are on this disk, wake(reason) if they will not be."""
        self._when(self._synced, log_offset, wake)

    def _when(self, mark: Mark, log_offset: int, wake: Wake) -> None:
        if self.failure is not None and log_offset > mark.at:
            wake(self.failure)
        elif mark.when(log_offset, wake):
            self._nudge()

    # ---- what does not become part of the log

    async def truncate(self, log_offset: int, reason: str, truncation: Truncation) -> CutDone | None:
        """Remove what is above a log offset between `committed` and `synced`; None when there is nothing.

        Waiters get the reason, the bytes on this disk go to quarantine. Appends made meanwhile are
        removed too. Raises ValueError for another log offset, LogFailed when the disk fails.
        """
        if not self.committed <= log_offset <= self.synced:
            raise ValueError(f"a cut at {log_offset}: committed is {self.committed}, synced {self.synced}")
        self._check()
        if log_offset == self.end:
            return None
        cut = self._cut = CutRequest(log_offset, reason, truncation)
        self._work.set()
        self._nudge()
        await cut.ended.wait()
        self._check()
        return cut.done

    def _check(self) -> None:
        if self.failure is not None:
            raise LogFailed(self.failure)

    def _was_cut(self, cut: "CutRequest", ended: Outcome[CutDone]) -> None:
        try:
            cut.done = ended.unwrap()
        except OSError as exc:
            self.seal(f"cut at {cut.log_offset}: {exc}")
        else:
            dropped = self._take_above(cut.log_offset) + self._pending
            self.segments[:] = [segment for segment in self.segments if segment.base < cut.log_offset]
            self._synced.at, self._wanted = cut.log_offset, min(self._wanted, cut.log_offset)
            if self.read_to >= cut.log_offset:
                self.read_to = ALL
            self._go_on_at(cut.log_offset)
            self._on_truncated(dropped)
            self._fail_above(cut.log_offset, cut.reason)
        cut.ended.set()

    def _take_above(self, log_offset: int) -> list[PendingAppend]:
        """Remove the records above a log offset from those that wait for `commit`, and return them."""
        waiting = self._uncommitted
        above = [pending for pending in waiting if pending.log_offset >= log_offset]
        self._uncommitted = waiting = deque(pending for pending in waiting if pending.log_offset < log_offset)
        if waiting and isinstance(waiting[-1], PendingRun) and end_of(waiting[-1]) > log_offset:
            kept, gone = split_run(waiting[-1], log_offset)
            waiting[-1] = kept
            above.insert(0, gone)
        return above

    # ---- who commits

    def share(self, synced_to: Callable[[int], None], writing: Writing | None = None) -> None:
        """From now on `commit` alone moves `committed`; synced_to(log_offset) is called after each sync.

        writing(writes, end) is called as a batch begins to be written, so that others write it at the same time. What
        they may have got is never replaced by other bytes: a disk that does not take it seals the log.
        """
        self._sharing = Sharing(synced_to, writing)

    def commit_alone(self) -> None:
        """What is on this disk is committed, now and from now on."""
        self._sharing = None
        self.commit(self._synced.at)

    def begin_shared(self, records: Sequence[PendingAppend], committed: int) -> None:
        """Adopt records that recovery found above the committed mark: they wait for `commit` or `truncate`."""
        self._uncommitted += records
        self._committed.at = committed
        self._sharing = Sharing(lambda log_offset: None, None)

    def commit(self, log_offset: int) -> None:
        """Dispatch what is below a log offset and let it be acknowledged, as far as it is synced.

        A batch is committed as a whole, and the mark never falls.
        """
        self._wanted = max(self._wanted, log_offset)
        end, ready = min(log_offset, self._synced.at, self.read_to), list[PendingAppend]()
        if end <= self._committed.at:
            return
        waiting = self._uncommitted
        if waiting and end_of(waiting[-1]) <= end:  # all of it, mostly
            ready = list(waiting)
            waiting.clear()
        while waiting and end_of(waiting[0]) <= end:
            ready.append(waiting.popleft())
        if waiting and waiting[0].log_offset < end:
            end = waiting[0].log_offset
        self._dispatch_to(ready, end)

    def _dispatch_to(self, ready: Sequence[PendingAppend], end: int) -> None:
        self.counters.messages += self._dispatch(ready)  # before the mark moves: what is acknowledged can be pulled
        self._committed_to(end)

    def _committed_to(self, log_offset: int) -> None:
        self._committed.move(log_offset)
        if self.answers is not None:
            self.answers.move(log_offset)

    async def prepare_spare(self) -> None:
        """Have the next segment's file ready once the tail is more than half full. Raises OSError."""
        if (
            self._writer.wants_spare
            and (self.segments or self.end)
            and self._limit - self.end < self.segment_bytes // 2
        ):
            await trio.to_thread.run_sync(self._writer.prepare_spare, limiter=self._spare_thread)

    async def run(self) -> None:
        """Write batches until cancelled or until the disk fails; a batch handed to the thread is always finished."""
        async with open_sync_thread(self._take, self._ended) as thread:
            self._nudge = thread.nudge
            while self.failure is None:
                if not self._pending:
                    self._work = trio.Event()
                    await self._work.wait()
                if self._budget_s:
                    await trio.sleep(self._budget_s)
                    self._rested = True
                await thread.do_all()

    def _take(self) -> Callable[[], object] | None:
        """Return the call that writes and syncs the waiting records, or that cuts the log."""
        if self.failure is not None:
            return None
        if self._cut is not None:
            cut, self._cut = self._cut, None
            self._jobs.append(partial(self._was_cut, cut))
            return partial(cut.work, self._writer, self.end)
        if not self._pending or not self._rested:
            return None
        self._rested = not self._budget_s
        self._jobs.append(partial(self._wrote, self._pending, self.end, trio.current_time()))
        writes, self._pieces, self._pending = self._writes, [], []
        self._writes = [Write(self.end, self._pieces)]
        if self._sharing is not None and self._sharing.writing is not None:
            self._sharing.writing(writes, self.end)
        return partial(self._writer.write_and_sync, writes)

    def _ended(self, ended: Outcome[Any]) -> None:
        self._jobs.popleft()(ended)

    def _wrote(self, pending: list[PendingAppend], end: int, began: float, ended: Outcome[WriteResult]) -> None:
        """Publish the batch that the thread wrote. Raises what its disk never does."""
        try:
            written = ended.unwrap()
        except Stopped as exc:
            self._stopped(exc, pending)
        else:
            self._oldest_at = began if self._jobs or self._pending else None
            self._completed(written, pending, end)

    def _completed(self, written: WriteResult, pending: Sequence[PendingAppend], end: int) -> None:
        self.segments += written.begun
        self.proven_at = trio.current_time()
        self.counters.add(end - self._synced.at, written.sync_s)
        self._synced.move(end)
        if self._sharing is None:
            self._dispatch_to(pending, end)
        else:
            self._uncommitted += pending
            self._sharing.synced_to(end)

    def _stopped(self, exc: Stopped, pending: list[PendingAppend]) -> None:
        """Acknowledge what was synced nevertheless; remove the rest and stay usable if only space was missing."""
        dropped = [p for p in pending if p.log_offset >= exc.base] + self._pending
        if exc.base > self._synced.at or exc.written.begun:
            self._completed(exc.written, [p for p in pending if p.log_offset < exc.base], exc.base)
        if exc.unsure or exc.errno not in SPACE_ERRORS:
            self.seal(str(exc))
            return
        if self._sharing is not None and self._sharing.writing is not None:
            self.seal(f"{exc}: other boxes may have it")
            return
        self._go_on_at(exc.base)
        self._on_truncated(dropped)
        self._no_room(str(exc))
        self._fail_above(exc.base, str(exc))

    def _go_on_at(self, log_offset: int) -> None:
        """Append the next record at a log offset; records that wait to be written are dropped."""
        self.end, self._limit = log_offset, log_offset - log_offset % self.segment_bytes + self.segment_bytes
        self._pieces, self._pending, self._oldest_at = [], [], None
        self._writes = [Write(log_offset, self._pieces)]
        self.truncations += 1

    def _fail_above(self, log_offset: int, reason: str) -> None:
        self._synced.fail(reason, above=log_offset)
        self._committed.fail(reason, above=log_offset)
        if self.answers is not None:
            self.answers.fail(reason, above=log_offset)

    def seal(self, reason: str) -> None:
        """Refuse every append from now on; waiters for a sync get the reason."""
        self.failure = reason
        self._fail_above(self._synced.at, reason)
        if self._cut is not None:
            self._cut.ended.set()  # the thread takes nothing any more

    def segment_of(self, log_offset: int) -> Segment | None:
        """Return the segment that holds a log offset, None when there is no such file."""
        at = bisect_right(self.segments, log_offset, key=_base) - 1
        if at < 0 or log_offset >= self.segments[at].end:
            return None
        return self.segments[at]


def _base(segment: Segment) -> int:
    return segment.base
