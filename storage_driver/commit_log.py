"""The append-only log: group commit by one task and one thread, the durable position, who waits for it.

Every byte below `durable` survives a power cut. Appends never block; what arrives during a sync shares the next one.
"""

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio
from outcome import Outcome  # trio's own

from storage_driver.dispatch import Pending, PendingRun
from storage_driver.errors import Busy, LogFailed
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK
from storage_driver.segment import Segment, SegmentWriter, Stopped, Write, Written
from storage_driver.sync_thread import open_sync_thread

Wake = Callable[[str | None], None]
Undurable = Pending | PendingRun
SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
BUSY_AFTER_S = 1.0
BUSY_CHECK_EVERY = 16  # the clock costs 0.3 µs


class SyncCounters:
    """Counts of the writer; buckets are powers of two of microseconds, bucket i holds syncs under 2**i µs."""

    def __init__(self) -> None:
        self.syncs = self.messages = self.bytes = 0
        self.slowest_s = self.sync_s = 0.0
        self.histogram = [0] * 26

    def add(self, messages: int, count: int, sync_s: float) -> None:
        """Count one sync."""
        self.syncs += 1
        self.messages += messages
        self.bytes += count
        self.sync_s += sync_s
        self.slowest_s = max(self.slowest_s, sync_s)
        self.histogram[min(25, int(sync_s * 1e6).bit_length())] += 1


class CommitLog:
    """The log of one store. `dispatch` gets each record once it is durable, `rewound` those that never will be."""

    def __init__(
        self,
        segments: Sequence[Segment],
        end: int,
        writer: SegmentWriter,
        *,
        segment_bytes: int,
        dispatch: Callable[[Sequence[Undurable]], int],
        rewound: Callable[[Sequence[Undurable], str], None],
        flush_budget_s: float = 0.0,
    ) -> None:
        self.segments = list(segments)
        self.segment_bytes = segment_bytes
        self.end = self.durable = end
        self.taken_back = 0  # how often appended records were given up for lack of space, their offsets given out anew
        self.failure: str | None = None  # sticky: a failed sync is never retried
        self.counters = SyncCounters()
        self.proven_at: float | None = None  # trio time of the last completed sync
        self._writer, self._dispatch, self._rewound, self._budget_s = writer, dispatch, rewound, flush_budget_s
        self._limit = segments[-1].end if segments else end - end % segment_bytes + segment_bytes
        self._pieces: list[bytes] = []
        self._writes = [Write(end, self._pieces)]
        self._pending: list[Undurable] = []
        self._oldest_at: float | None = None  # since when the oldest record that is not durable waits
        self._waiting: deque[tuple[int, Wake]] = deque()  # offsets never fall, so one sync frees a prefix
        self._work = trio.Event()
        self._rested = not flush_budget_s  # the budget, if there is one, has passed for the next batch
        self._batches: deque[tuple[list[Undurable], int, float]] = deque()  # taken: records, end, when; at most two
        self._nudge: Callable[[], None] = lambda: None  # has the thread begin, when it rests
        self._spare_thread = trio.CapacityLimiter(1)

    @property
    def first(self) -> int:
        """The lowest log offset on disk."""
        return self.segments[0].base if self.segments else self.durable

    @property
    def waiting_s(self) -> float:
        """How long the oldest record that is not durable has waited, 0 when there is none."""
        return 0.0 if self._oldest_at is None else trio.current_time() - self._oldest_at

    def reserve(self, size: int) -> int:
        """Return the log offset where `size` bytes will lie, ending the segment if need be. Raises LogFailed, Busy."""
        if self.failure is not None:
            raise LogFailed(self.failure)
        if self._oldest_at is not None and not len(self._pending) % BUSY_CHECK_EVERY and self.waiting_s > BUSY_AFTER_S:
            raise Busy(int(self.waiting_s * 1000))
        if self.end + size + BLANK_BYTES > self._limit:
            self._roll()
        return self.end

    def _roll(self) -> None:
        self._pieces.append(BLANK.pack(self._limit - self.end, MAGIC_BLANK))
        self.end, self._limit = self._limit, self._limit + self.segment_bytes
        self._pieces = []
        self._writes.append(Write(self.end, self._pieces))

    def append(self, data: bytes, pending: Undurable) -> int:
        """Queue a record or a batch at `end` (after `reserve`), return the log offset just past it. Not durable yet."""
        if not self._pending:
            self._work.set()
            if self._oldest_at is None:
                self._oldest_at = trio.current_time()
        self._pieces.append(data)
        self._pending.append(pending)
        self.end += len(data)
        return self.end

    def when_durable(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are on stable storage, wake(reason) if they will not be."""
        if log_offset <= self.durable:
            wake(None)
            return
        if self.failure is not None:
            wake(self.failure)
            return
        if self._waiting and (last := self._waiting[-1][0]) > log_offset:
            log_offset = last  # a late asker waits for the group before it
        self._waiting.append((log_offset, wake))
        self._nudge()

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
        async with open_sync_thread(self._take, self._written) as thread:
            self._nudge = thread.nudge
            while self.failure is None:
                if not self._pending:
                    self._work = trio.Event()
                    await self._work.wait()
                if self._budget_s:
                    await trio.sleep(self._budget_s)
                    self._rested = True
                await thread.do_all()

    def _take(self) -> Callable[[], Written] | None:
        """Return the call that writes and syncs what waits."""
        if not self._pending or self.failure is not None or not self._rested:
            return None
        self._rested = not self._budget_s
        self._batches.append((self._pending, self.end, trio.current_time()))
        writes, self._pieces, self._pending = self._writes, [], []
        self._writes = [Write(self.end, self._pieces)]
        return partial(self._writer.write_and_sync, writes)

    def _written(self, ended: Outcome[Written]) -> None:
        """Let the batch be seen that the thread wrote. Raises what its disk never does."""
        pending, end, began = self._batches.popleft()
        try:
            written = ended.unwrap()
        except Stopped as exc:
            self._stopped(exc, pending)
        else:
            self._oldest_at = began if self._batches or self._pending else None
            self._completed(written, pending, end)

    def _completed(self, written: Written, pending: Sequence[Undurable], end: int) -> None:
        self.segments += written.begun
        self.proven_at = trio.current_time()
        count = self._dispatch(pending)  # before `durable` moves: what is acknowledged can be pulled
        self.counters.add(count, end - self.durable, written.sync_s)
        self.durable = end
        waiting = self._waiting
        while waiting and waiting[0][0] <= end:
            waiting.popleft()[1](None)

    def _stopped(self, exc: Stopped, pending: list[Undurable]) -> None:
        """Acknowledge what was synced all the same; take back the rest and stay usable if only room was missing."""
        dropped = [p for p in pending if p.log_offset >= exc.base] + self._pending
        if exc.base > self.durable or exc.written.begun:
            self._completed(exc.written, [p for p in pending if p.log_offset < exc.base], exc.base)
        if exc.unsure or exc.errno not in SPACE_ERRORS:
            self.seal(str(exc))
            return
        self.end, self._limit = exc.base, exc.base - exc.base % self.segment_bytes + self.segment_bytes
        self._pieces, self._pending, self._oldest_at = [], [], None
        self._writes = [Write(self.end, self._pieces)]
        self.taken_back += 1
        self._rewound(dropped, str(exc))
        self._wake_all(str(exc))

    def seal(self, reason: str) -> None:
        """Refuse every append from now on; what waits for a sync is told."""
        self.failure = reason
        self._wake_all(reason)

    def _wake_all(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, wake in waiting:
            wake(reason)

    def segment_of(self, log_offset: int) -> Segment | None:
        """Return the segment that holds a log offset, None when there is no such file."""
        at = bisect_right(self.segments, log_offset, key=_base) - 1
        if at < 0 or log_offset >= self.segments[at].end:
            return None
        return self.segments[at]


def _base(segment: Segment) -> int:
    return segment.base
