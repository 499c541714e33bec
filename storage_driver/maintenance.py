"""Every ten seconds: clock, space, deletion, page cache, a part of the scrub."""

import os
from collections.abc import Awaitable, Callable, Sequence

import trio

from storage_driver.appending import Appender
from storage_driver.config import StoreConfig
from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk
from storage_driver.files.state_file import StateFile
from storage_driver.flusher import Flusher
from storage_driver.log.clock import ClockEpochs
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.segment import Segment
from storage_driver.lookup import Lookup
from storage_driver.record import MessageQueue
from storage_driver.recovery.known_damage import KnownDamage
from storage_driver.recovery.scrub import Scrub
from storage_driver.retention.deletion import Deletion
from storage_driver.retention.rules import choose
from storage_driver.retention.segment_ages import SegmentAges
from storage_driver.retention.space import SpaceWatch

EVERY_S = 10.0
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
        self.space = SpaceWatch(config, disk, appender, log.next_segment_bytes)
        self.deleted_segments = 0
        self.trusted: Sequence[MessageQueue] = ()  # queues whose files nobody has looked at since the start
        self.scrub = Scrub(log, flusher, damage, bytes_per_s=config.scrub_mib_per_h * (1 << 20) / 3600)
        self._rules, self._log, self._flusher = config.retention, log, flusher
        self._deletion, self._may_go = deletion, may_go
        self._now_ms, self._trusted, self._note_trouble = now_ms, clock_trusted, note_trouble
        self._ages = SegmentAges(config.retention, log, lookup, clock)
        self._ticked_at = 0.0
        self._rounds = 0
        self._one_thread = trio.CapacityLimiter(1)
        self._file, self._scrubbed = files("clock"), files("scrub")

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
        deleted = self.deleted_segments
        await self._do("clock", self._tick())
        await self._do("space", self.check_space())
        await self._do("retention", self._retain())
        if self.deleted_segments > deleted:
            await self._do("space", self.check_space())  # a disk that was full takes messages again at once
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
        self._ages.stepped(self.clock.tick(self._now_ms(), elapsed_ms, self._log.end, trusted=self._trusted()))
        if self.clock.changed or self._rounds % 60 == 59:
            self.clock.changed = False  # an epoch may begin while the list is being written
            try:
                await self._file.write(self.clock.to_json())
            except OSError:
                self.clock.changed = True  # the next round tries again
                raise

    async def check_space(self) -> None:
        """Measure the file system and set or clear the full mark of appends. Raises OSError."""
        await self.space.look()

    async def _retain(self) -> None:
        candidates = await self._ages.deletable(self._now_ms())
        log_bytes = sum(segment.size for segment in self._log.segments)
        for base in choose(
            candidates,
            self.space.usage,
            self._rules,
            log_bytes=log_bytes,
            age_counts=self._trusted() and not self._ages.rest,
            may_go=self._may_go,
        ):
            self.deleted_segments += await self._deletion.drop_first(base)


def _forget_cold(segments: list[Segment]) -> None:
    """Let the page cache drop what is complete; on a small box the tail needs it more."""
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 4 << 30:
        for segment in segments:
            segment.file.advise(0, 0, os.POSIX_FADV_DONTNEED)
