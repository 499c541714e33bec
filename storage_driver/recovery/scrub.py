"""Reads the log over and over, slowly, and checks every body: damage is noticed before somebody needs the message.

What is damaged goes to `known_damage`.
"""

import trio

from storage_driver.flusher import Flusher
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.scan import Bad, Blank, damage_end, is_filler, walk
from storage_driver.log.segment import Segment
from storage_driver.queues.dispatch import is_queued
from storage_driver.record import DispatchEntry
from storage_driver.recovery.known_damage import KnownDamage

PIECE_BYTES = 1 << 20
RECORDS_AT_ONCE = 200
ROUND_S = 6 * 86_400.0  # a pass takes no longer, however large the log: with the rests a week at most
REST_S = 3600.0  # from one pass to the next: a log of a few MiB is not read again and again


class Scrub:
    """Where the scrub is, and what it has found."""

    def __init__(self, log: CommitLog, flusher: Flusher, damage: KnownDamage, *, bytes_per_s: float) -> None:
        self.at = 0
        self.passes = 0
        self.checked_bytes = 0
        self._log, self._flusher, self._damage = log, flusher, damage
        self._bytes_per_s, self._credit = bytes_per_s, 0.0
        self._thread = trio.CapacityLimiter(1)
        self._rests_s = 0.0

    @property
    def pace(self) -> float:
        """Return the bytes a second: as configured, or more where that would not get through the log in a round."""
        return max(self._bytes_per_s, (self._log.synced - self._log.first) / ROUND_S)

    @property
    def segment_base(self) -> int:
        """Return where the segment begins that is being read."""
        return max((s.base for s in self._log.segments if s.base <= self.at), default=self._log.first)

    @property
    def left_s(self) -> float:
        """Return until when this pass has seen everything that is stored now; 0 while it rests after one."""
        if self._rests_s > 0:
            return 0.0
        return max(0, self._log.synced - max(self.at, self._log.first)) / max(1.0, self.pace)

    async def round(self, elapsed_s: float) -> None:
        """Check as much as the time since the last round allows. Raises OSError."""
        self._rests_s -= elapsed_s
        if self._rests_s > 0:
            return
        self._credit = min(self._credit + elapsed_s * self.pace, 64 * PIECE_BYTES)
        passes = self.passes
        while self._credit > 0:
            before = self.at
            await self._piece()
            if self.passes != passes:
                self._rests_s, self._credit = REST_S, 0.0
                return
            if self.at == before:
                self._credit = 0.0
                return
            self._credit -= abs(self.at - before)
            await trio.sleep(0.002)  # readers and the writer come first

    async def whole(self) -> None:
        """Check all of the log now. Raises OSError."""
        self.at, passes = self._log.first, self.passes
        while self.passes == passes and self.at < self._log.synced:
            await self._piece()

    async def _piece(self) -> None:
        log = self._log
        end = log.synced
        if self.at >= end:
            self.passes += self.at > log.first
            self.at = log.first
            if self.at >= end:
                return
        self.at = max(self.at, log.first)
        segment = log.segment_of(self.at)
        if segment is None:
            return
        start = self.at
        entries: list[DispatchEntry] = []
        try:
            to, bad = await trio.to_thread.run_sync(check_piece, segment, start, end, entries, limiter=self._thread)
        except OSError:
            self.at = segment.end  # a bad sector must not end the check of all behind it
            raise
        self.at = to  # a round and `whole` may run at a time: a damaged range ends where this piece does
        await self._flusher.heal(entries)
        self.checked_bytes += to - start
        if bad is not None:
            await self._damage.found(bad.log_offset, to, bad.reason)


def check_piece(segment: Segment, at: int, end: int, entries: list[DispatchEntry]) -> tuple[int, Bad | None]:
    """Check some records from a boundary on, add them to entries; return the next boundary and damage before it."""
    start, records = at, 0
    for item in walk(segment, at):
        if isinstance(item, Blank):
            return segment.end, None
        if isinstance(item, Bad):
            if item.log_offset >= end:
                return end, None
            return min(damage_end(segment, item), end), item
        at, records = item.log_offset + item.size, records + 1
        if is_queued(item.sys_flag) and not is_filler(item):
            entries.append(item)
        if at >= end or at - start >= PIECE_BYTES or records >= RECORDS_AT_ONCE:
            break
    return at, None
