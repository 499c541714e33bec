"""How old the segments of a log are, and how long the topics in them are kept."""

from collections.abc import Sequence

import trio

from storage_driver.log.clock import ClockEpochs
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import Segment
from storage_driver.lookup import Lookup
from storage_driver.reader import HEAD_BYTES
from storage_driver.record import BLANK, MAGIC_V1, MAGIC_V2, stored_ms_of
from storage_driver.retention.rules import DeletableSegment, RetentionRules

REST_AFTER_STEP_S = 600.0  # age rests so long after the clock stepped forward by more than an hour
STEP_MS = 3_600_000


class SegmentAges:
    """Reads one record for each segment and remembers it."""

    def __init__(self, rules: RetentionRules, log: CommitLog, lookup: Lookup, clock: ClockEpochs) -> None:
        self._rules, self._log, self._lookup, self._clock = rules, log, lookup, clock
        self._newest_ms: dict[int, int] = {}  # base -> store time of the first record behind the segment
        self._keep_ms: dict[int, int] = {}  # base -> how long the segment is kept, where topics differ in that
        self.rest_until = 0.0  # trio time
        self._one_thread = trio.CapacityLimiter(1)

    def stepped(self, step_ms: int) -> None:
        """Let no age count for a while after a large step of the clock."""
        if step_ms > STEP_MS:
            self.rest_until = trio.current_time() + REST_AFTER_STEP_S

    @property
    def rest(self) -> bool:
        """Whether no age counts because of a step of the clock."""
        return trio.current_time() < self.rest_until

    async def deletable(self, now_ms: int) -> list[DeletableSegment]:
        """Return all segments but the one being written, oldest first. Raises OSError."""
        segments = list(self._log.segments)
        return [await self._deletable(segments, at, now_ms) for at in range(len(segments) - 1)]

    async def _deletable(self, segments: Sequence[Segment], at: int, now_ms: int) -> DeletableSegment:
        segment, rules = segments[at], self._rules
        age_ms = self._clock.age_ms(segment.end - 1, await self._ended_ms(segments, at, now_ms))
        keep_ms = None
        if rules.classes and age_ms >= min(rules.keep_ms, *(each.keep_ms for each in rules.classes)):
            keep_ms = self._keep_ms.get(segment.base)
            if keep_ms is None:
                keep_ms = self._keep_ms[segment.base] = await self._lookup.longest_kept(segment.base, segment.end)
                self._keep_ms = {base: ms for base, ms in self._keep_ms.items() if base >= self._log.first}
        return DeletableSegment(segment.base, segment.end, segment.size, age_ms, keep_ms)

    async def _ended_ms(self, segments: Sequence[Segment], at: int, now_ms: int) -> int:
        """The store time of the first record behind a segment: all of the segment is at least as old.

        A segment that was lost and covered has no record, so the one behind it is asked; without any it is young.
        """
        base = segments[at].base
        known = self._newest_ms.get(base)
        if known is None:
            known = now_ms
            for behind in segments[at + 1 :]:
                try:
                    head = await trio.to_thread.run_sync(behind.file.read, HEAD_BYTES, 0, limiter=self._one_thread)
                except OSError:  # a bad sector: the others must go in time all the same
                    continue
                if len(head) == HEAD_BYTES and BLANK.unpack_from(head)[1] in (MAGIC_V1, MAGIC_V2):
                    known = stored_ms_of(head)
                    break
            self._newest_ms = {
                known_base: ms for known_base, ms in self._newest_ms.items() if known_base > self._log.first
            }
            self._newest_ms[base] = known
        return known
