"""Every ten seconds: clock, space, deletion, page cache, a part of the scrub."""

import os
from collections.abc import Awaitable, Callable, Sequence

import trio

from storage_driver.appending import Appender
from storage_driver.config import StoreConfig
from storage_driver.deletion import Deletion
from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk
from storage_driver.files.reserve import Reserve
from storage_driver.files.state_file import StateFile
from storage_driver.flusher import Flusher
from storage_driver.log.clock import ClockEpochs
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.known_damage import KnownDamage
from storage_driver.log.segment import Segment
from storage_driver.lookup import Lookup
from storage_driver.reader import HEAD_BYTES
from storage_driver.record import BLANK, MAGIC_V1, MAGIC_V2, MessageQueue, stored_ms_of
from storage_driver.recovery.scrub import Scrub
from storage_driver.retention import DeletableSegment, DiskState, Forecast, choose, full_reason

EVERY_S = 10.0
REST_AFTER_STEP_S = 600.0  # age rests so long after the clock stepped forward by more than an hour
AT_ONCE = 50  # queue files looked at in one go
SCRUB_SAVED_EVERY = 360  # rounds: an hour
COLD_EVERY = 6  # rounds between two hints to the page cache


class Maintenance:
    """Keeps one store within its limits; owns the clock epochs."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log: CommitLog,
        flusher: Flusher,
        *,
        files: Callable[[str], StateFile],
        appender: Appender,
        lookup: Lookup,
        deletion: Deletion,
        clock: ClockEpochs,
        damage: KnownDamage,
        now_ms: Callable[[], int],
        clock_trusted: Callable[[], bool],
        may_go: Callable[[int, int], bool],
        note_trouble: Callable[[str], None],
    ) -> None:
        """files: gives the state file of a name. may_go: tells whether segment [base, end) may be deleted."""
        self.clock = clock
        self.usage = DiskState(0, 1 << 60, 1 << 60)
        self.full_in_h: float | None = None
        self.deleted_segments = 0
        self.trusted: Sequence[MessageQueue] = ()  # queues whose files nobody has looked at since the start
        self.scrub = Scrub(log, flusher, damage, bytes_per_s=config.scrub_mib_per_h * (1 << 20) / 3600)
        self._config, self._log, self._flusher, self._appender = config, log, flusher, appender
        self._lookup, self._deletion, self._may_go = lookup, deletion, may_go
        self._now_ms, self._trusted, self._note_trouble = now_ms, clock_trusted, note_trouble
        self._forecast = Forecast()
        self._age_rests_until = 0.0
        self._ticked_at = 0.0
        self._newest_ms: dict[int, int] = {}  # base -> store time of the first record behind the segment
        self._keep_ms: dict[int, int] = {}  # base -> how long the segment is kept, where topics differ in that
        self._rounds = 0
        self._one_thread = trio.CapacityLimiter(1)
        self._file, self._scrubbed = files("clock"), files("scrub")
        self._reserve = Reserve(disk, config.root, config.reserve_bytes)

    def begin(self) -> None:
        """Load the clock epochs and begin this opening's. Blocks. Raises OSError.

        While the log is empty no message has an age that the list could tell: the first round saves it.
        """
        try:
            self.clock.load(self._file.load())
        except StateDamaged:
            pass  # derived: a new list begins
        self._resume_scrub()
        self.clock.begin(self._log.end, self._now_ms(), trusted=self._trusted())
        if self._log.end:
            self._file.save(self.clock.to_json())
            self.clock.changed = False

    def _resume_scrub(self) -> None:
        """Continue where the scrub was: a box that restarts often would never see the end of a large log."""
        try:
            stored = self._scrubbed.load()
        except StateDamaged:
            return
        at = stored.get("segment") if isinstance(stored, dict) else None
        if at in [segment.base for segment in self._log.segments]:  # where a record begins for sure
            self.scrub.at = at

    def latest_ms(self) -> int:
        """Return the latest time of day that a clock as good as the present one has shown: earlier is set back."""
        return self.clock.latest_ms(trusted=self._trusted())

    async def run(self) -> None:
        """Do a round every ten seconds until cancelled."""
        self._ticked_at = trio.current_time()
        while True:
            await self.round()
            await self.verify_trusted()
            await trio.sleep(EVERY_S)

    async def verify_trusted(self) -> None:
        """Check the files of the queues that the start took from their table; repair a wrong one from the log."""
        keys, self.trusted, wrong = self.trusted, [], 0
        try:
            for start in range(0, len(keys), AT_ONCE):
                wrong += await self._flusher.wrong_ends(keys[start : start + AT_ONCE])
                await trio.sleep(0.02)  # senders and readers come first
            if wrong:
                self._note_trouble(f"{wrong} queues had lost entries in their files: repaired from the log")
                await self.scrub.whole()
        except OSError as exc:
            self._note_trouble(f"check of queue files: {exc}")

    async def round(self) -> None:
        """Do all of it once; a step that fails does not stop the others."""
        self._rounds += 1
        await self._do("clock", self._tick())
        await self._do("space", self.check_space())
        await self._do("retention", self._retain())
        await self._do("scrub", self.scrub.round(EVERY_S))
        if self._rounds % SCRUB_SAVED_EVERY == 0:
            await self._do("scrub's place", self._scrubbed.write({"segment": self.scrub.segment_base}))
        if self._rounds % COLD_EVERY == 0:
            await trio.to_thread.run_sync(_forget_cold, self._log.segments[:-1], limiter=self._one_thread)

    async def _do(self, name: str, step: Awaitable[None]) -> None:
        try:
            await step
        except OSError as exc:
            self._note_trouble(f"{name}: {exc}")

    async def _tick(self) -> None:
        now = trio.current_time()
        elapsed_ms, self._ticked_at = int((now - self._ticked_at) * 1000), now
        step = self.clock.tick(self._now_ms(), elapsed_ms, self._log.end, trusted=self._trusted())
        if step > 3_600_000:
            self._age_rests_until = now + REST_AFTER_STEP_S
        if self.clock.changed or self._rounds % 60 == 59:
            self.clock.changed = False  # an epoch may begin while the list is being written
            try:
                await self._file.write(self.clock.to_json())
            except OSError:
                self.clock.changed = True  # the next round tries again
                raise

    async def check_space(self) -> None:
        """Measure the file system and set or clear the full mark of appends. Raises OSError."""
        usage = await trio.to_thread.run_sync(self._reserve.look, limiter=self._one_thread)
        self.usage = DiskState(usage.percent, usage.available, usage.used + usage.available)
        self._forecast.add(trio.current_time(), usage.available)
        self.full_in_h = self._forecast.full_in_h(self.usage, self._config.retention)
        was_full = self._appender.full is not None
        full = full_reason(self.usage, self._config.retention, self._log.segment_bytes, was_full=was_full)
        self._appender.set_full(full)

    async def _retain(self) -> None:
        segments = list(self._log.segments)
        candidates = [await self._candidate(segments, at) for at in range(len(segments) - 1)]
        age_counts = self._trusted() and trio.current_time() >= self._age_rests_until
        log_bytes = sum(s.size for s in segments)
        for base in choose(
            candidates,
            self.usage,
            self._config.retention,
            log_bytes=log_bytes,
            age_counts=age_counts,
            may_go=self._may_go,
        ):
            self.deleted_segments += await self._deletion.drop_first(base)

    async def _candidate(self, segments: Sequence[Segment], at: int) -> DeletableSegment:
        segment, rules = segments[at], self._config.retention
        age_ms = self.clock.age_ms(segment.end - 1, await self._ended_ms(segments, at))
        keep_ms = None
        if rules.classes and age_ms >= min(rules.keep_ms, *(each.keep_ms for each in rules.classes)):
            keep_ms = self._keep_ms.get(segment.base)
            if keep_ms is None:
                keep_ms = self._keep_ms[segment.base] = await self._lookup.longest_kept(segment.base, segment.end)
                self._keep_ms = {base: ms for base, ms in self._keep_ms.items() if base >= self._log.first}
        return DeletableSegment(segment.base, segment.end, segment.size, age_ms, keep_ms)

    async def _ended_ms(self, segments: Sequence[Segment], at: int) -> int:
        """The store time of the first record behind a segment: all of the segment is at least as old.

        A segment that was lost and covered has no record, so the one behind it is asked; without any it is young.
        """
        base = segments[at].base
        known = self._newest_ms.get(base)
        if known is None:
            known = self._now_ms()
            for behind in segments[at + 1 :]:
                head = await trio.to_thread.run_sync(behind.file.read, HEAD_BYTES, 0, limiter=self._one_thread)
                if len(head) == HEAD_BYTES and BLANK.unpack_from(head)[1] in (MAGIC_V1, MAGIC_V2):
                    known = stored_ms_of(head)
                    break
            self._newest_ms = {
                known_base: ms for known_base, ms in self._newest_ms.items() if known_base > self._log.first
            }
            self._newest_ms[base] = known
        return known


def _forget_cold(segments: list[Segment]) -> None:
    """Let the page cache drop what is complete; on a small box the tail needs it more."""
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 4 << 30:
        for segment in segments:
            segment.file.advise(0, 0, os.POSIX_FADV_DONTNEED)
