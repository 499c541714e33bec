"""The append-only log: group commit by one task and one thread, its two marks and their waiters.

Every byte below `synced` survives a power cut of this machine. Every byte below `committed` may be acknowledged,
dispatched, pulled and shipped: it is on as many disks as the owner wants. `committed` never passes `synced`; a log by
itself commits what it has synced. Appends never block; what arrives during a sync shares the next one.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

import trio
from outcome import Outcome  # trio's own

from storage_driver.errors import LogFailed
from storage_driver.files.disk import SPACE_ERRORS
from storage_driver.log.commitment import Commitment
from storage_driver.log.cut_history import CutDone
from storage_driver.log.marks import Mark, Wake, reached
from storage_driver.log.segment import Segment, SegmentWriter, Stopped, Write, WriteResult
from storage_driver.log.sync_thread import open_sync_thread
from storage_driver.log.tail import Tail
from storage_driver.log.truncation import Truncation
from storage_driver.log.turns import CutRequest, Turns
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.pending import PendingAppend

Writing = Callable[[Sequence[Write], int], None]
"""(writes, the log offset behind them): a batch begins to be written."""


class SyncCounters:
    """Counts of the writer; buckets are powers of two of microseconds, bucket i holds syncs under 2**i µs."""

    def __init__(self) -> None:
        self.syncs = self.bytes = 0
        self.slowest_s = self.sync_s = 0.0
        self.histogram = [0] * 26

    def add(self, count: int, sync_s: float) -> None:
        """Count one sync of so many bytes."""
        self.syncs += 1
        self.bytes += count
        self.sync_s += sync_s
        self.slowest_s = max(self.slowest_s, sync_s)
        self.histogram[min(25, int(sync_s * 1e6).bit_length())] += 1


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
        self.failure: str | None = None  # sticky: a failed sync is never retried
        self.counters = SyncCounters()
        self.proven_at: float | None = None  # trio time of the last completed sync
        self._writer, self._on_truncated, self._no_room = writer, on_truncated, no_room
        whole = not segments or segments[-1].end == end  # the next record begins a segment
        limit = end - end % segment_bytes + segment_bytes if whole else segments[-1].end
        self._tail, self._synced = Tail(end, limit, segment_bytes), Mark(end)
        self._commitment = Commitment(end, dispatch)
        self._sharing: Sharing | None = None  # None: a log by itself
        self._turns = Turns(flush_budget_s)

    @property
    def first(self) -> int:
        """The lowest log offset on disk."""
        return self.segments[0].base if self.segments else self._synced.at

    @property
    def end(self) -> int:
        """Where the next record will be appended."""
        return self._tail.end

    @property
    def synced(self) -> int:
        """Every byte below is on this disk."""
        return self._synced.at

    @property
    def committed(self) -> int:
        """Every byte below may be acknowledged, dispatched, pulled and shipped."""
        return self._commitment.mark.at

    @property
    def read_to(self) -> int:
        """Behind it the log has whole files of which no record was read yet."""
        return self._commitment.read_to

    @property
    def dispatched(self) -> int:
        """How many records have been committed since the opening."""
        return self._commitment.dispatched

    @property
    def segment_bytes(self) -> int:
        """The size of a file."""
        return self._tail.segment_bytes

    @property
    def segment_left(self) -> int:
        """How many bytes the segment has behind `end`, those of its blank included."""
        return self._tail.limit - self._tail.end

    @property
    def truncations(self) -> int:
        """How often appended records were given up, their offsets given out again."""
        return self._tail.truncations

    @property
    def waiting_s(self) -> float:
        """How long the oldest record that is not synced has waited, 0 when there is none."""
        return self._tail.waiting_s

    def reserve(self, size: int) -> int:
        """Return the log offset where `size` bytes will be, ending the segment if need be. Raises LogFailed, Busy."""
        if self.failure is not None:
            raise LogFailed(self.failure)
        return self._tail.reserve(size)

    def end_segment(self) -> None:
        """Leave the rest of the segment blank: the next record begins the next one."""
        self._tail.end_segment()

    def begin_at(self, log_offset: int) -> None:
        """Give the first record of a log that never held one this log offset, the first of a segment."""
        self._tail.begin_at(log_offset)
        self._synced.move(log_offset)
        self._commitment.move(log_offset)

    def append(self, data: bytes, pending: PendingAppend) -> int:
        """Queue a record or a batch at `end` (after `reserve`), return the log offset just past it. Not synced yet."""
        if not self._tail.pending:
            self._turns.ask()
        return self._tail.append(data, pending)

    def append_all(self, data: bytes, pending: Sequence[PendingAppend]) -> None:
        """Queue records that follow one another at `end`, in one piece; they fit the segment."""
        if not self._tail.pending:
            self._turns.ask()
        self._tail.append_all(data, pending)

    # ---- whole files of another log

    def adopt(self, segment: Segment) -> None:
        """Take a file that has what this log has of its segment, and all behind it, on stable storage; all is synced.

        Nothing behind `read_to` is committed before `take_read` was given its records.
        """
        end = self.end
        if end != self._synced.at or self._tail.pending or not segment.base <= end < segment.end:
            raise ValueError(f"a file from {segment.base} on for a log that ends at {end}, synced {self.synced}")
        self.segments[:] = [*(each for each in self.segments if each.base < segment.base), segment]
        self._writer.take_over(segment)
        self._commitment.adopt(end)
        self._tail.begin_at(segment.end)
        self.proven_at = trio.current_time()
        self._synced.move(segment.end)

    def take_read(self, pending: Sequence[PendingAppend], log_offset: int) -> None:
        """Take the records between `read_to` and a log offset, where one ends; commit what waited for them."""
        self._commitment.take_read(pending, log_offset, end=self.end, synced=self.synced)

    # ---- who waits

    def when_committed(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are committed, wake(reason) if they will not be."""
        self._when(self._commitment.mark, log_offset, wake)

    async def wait_committed(self, log_offset: int) -> None:
        """Return once all bytes below log_offset are committed. Raises LogFailed."""
        if reason := await reached(self.when_committed, log_offset):
            raise LogFailed(reason)

    def bound_answers(self) -> Mark:
        """Let clients wait at a mark of their own from now on, so that their wait can end early; return it."""
        return self._commitment.bound_answers()

    def when_answered(self, log_offset: int, wake: Wake) -> None:
        """Do what `when_committed` does, for a client: wake(reason) also where it has waited for too long."""
        mark = self._commitment.answers
        self._when(self._commitment.mark if mark is None else mark, log_offset, wake)

    def when_synced(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are on this disk, wake(reason) if they will not be."""
        self._when(self._synced, log_offset, wake)

    def _when(self, mark: Mark, log_offset: int, wake: Wake) -> None:
        if self.failure is not None and log_offset > mark.at:
            wake(self.failure)
        elif mark.when(log_offset, wake):
            self._turns.nudge()

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
        cut = CutRequest(log_offset, reason, truncation)
        self._turns.ask_cut(cut)
        await cut.ended.wait()
        self._check()
        return cut.done

    def _check(self) -> None:
        if self.failure is not None:
            raise LogFailed(self.failure)

    def _was_cut(self, cut: CutRequest, ended: Outcome[CutDone]) -> None:
        try:
            cut.done = ended.unwrap()
        except OSError as exc:
            self.seal(f"cut at {cut.log_offset}: {exc}")
        else:
            self.segments[:] = [segment for segment in self.segments if segment.base < cut.log_offset]
            self._synced.at = cut.log_offset
            self._on_truncated(self._commitment.cut(cut.log_offset) + self._tail.go_back(cut.log_offset))
            self._fail_above(cut.log_offset, cut.reason)
        cut.ended.set()

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
        self._commitment.add(records)
        self._commitment.mark.at = committed
        self._sharing = Sharing(lambda log_offset: None, None)

    def commit(self, log_offset: int) -> None:
        """Dispatch what is below a log offset and let it be acknowledged, as far as it is synced.

        A batch is committed as a whole, and the mark never falls.
        """
        self._commitment.commit(log_offset, self._synced.at)

    def next_segment_bytes(self) -> int:
        """Return what the next segment still needs of the disk: nothing once it is prepared."""
        return self.segment_bytes if self._writer.wants_spare else 0

    # ---- the thread

    async def prepare_spare(self) -> None:
        """Have the next segment's file ready once the tail is more than half full; one task. Raises OSError."""
        half_full = self.segment_left < self.segment_bytes // 2
        if self._writer.wants_spare and (self.segments or self.end) and half_full:
            await trio.to_thread.run_sync(self._writer.prepare_spare, limiter=trio.CapacityLimiter(1))

    async def run(self) -> None:
        """Write batches until cancelled or until the disk fails; a batch handed to the thread is always finished."""
        async with open_sync_thread(self._take, self._turns.ended) as thread:
            self._turns.nudge = thread.nudge
            while self.failure is None:
                await self._turns.due(bool(self._tail.pending))
                await thread.do_all()

    def _take(self) -> Callable[[], object] | None:
        """Return the call that writes and syncs the waiting records, or that cuts the log."""
        turns, tail, sharing = self._turns, self._tail, self._sharing
        if self.failure is not None:
            return None
        if (cut := turns.cut) is not None:
            turns.begin_cut(partial(self._was_cut, cut))
            return partial(cut.work, self._writer, self.end)
        if not tail.pending or not turns.rested:
            return None
        writes, pending = tail.take()
        turns.begin_batch(partial(self._wrote, pending, tail.end, trio.current_time()))
        if sharing is not None and sharing.writing is not None:
            sharing.writing(writes, tail.end)
        return partial(self._writer.write_and_sync, writes)

    def _wrote(self, pending: Sequence[PendingAppend], end: int, began: float, ended: Outcome[WriteResult]) -> None:
        """Publish the batch that the thread wrote. Raises what its disk never does."""
        try:
            written = ended.unwrap()
        except Stopped as exc:
            self._stopped(exc, pending)
        else:
            self._tail.oldest_at = began if self._turns.under_way or self._tail.pending else None
            self._completed(written, pending, end)

    def _completed(self, written: WriteResult, pending: Sequence[PendingAppend], end: int) -> None:
        self.segments += written.begun
        self.proven_at = trio.current_time()
        self.counters.add(end - self._synced.at, written.sync_s)
        self._synced.move(end)
        if self._sharing is None:
            self._commitment.dispatch(pending, end)
        else:
            self._commitment.add(pending)
            self._sharing.synced_to(end)

    def _stopped(self, exc: Stopped, pending: Sequence[PendingAppend]) -> None:
        """Acknowledge what was synced nevertheless; remove the rest and stay usable if only space was missing."""
        lost = [p for p in pending if p.log_offset >= exc.base]
        if exc.base > self._synced.at or exc.written.begun:
            self._completed(exc.written, [p for p in pending if p.log_offset < exc.base], exc.base)
        if exc.unsure or exc.errno not in SPACE_ERRORS:
            self.seal(str(exc))
            return
        if self._sharing is not None and self._sharing.writing is not None:
            self.seal(f"{exc}: other boxes may have it")
            return
        self._on_truncated(lost + self._tail.go_back(exc.base))
        self._no_room(str(exc))
        self._fail_above(exc.base, str(exc))

    def _fail_above(self, log_offset: int, reason: str) -> None:
        self._synced.fail(reason, above=log_offset)
        self._commitment.fail(reason, above=log_offset)

    def seal(self, reason: str) -> None:
        """Refuse every append from now on; waiters for a sync get the reason."""
        self.failure = reason
        self._fail_above(self._synced.at, reason)
        if self._turns.cut is not None:
            self._turns.cut.ended.set()  # the thread takes nothing any more

    @property
    def refused(self) -> tuple[int, int] | None:
        """Where the disk did not take a write: log offset, base of its file. None where it took all."""
        return self._writer.refused

    def segment_of(self, log_offset: int) -> Segment | None:
        """Return the segment that holds a log offset, None when there is no such file."""
        at = bisect_right(self.segments, log_offset, key=_base) - 1
        if at < 0 or log_offset >= self.segments[at].end:
            return None
        return self.segments[at]


def _base(segment: Segment) -> int:
    return segment.base
