"""Ranges of the log that a reader or the scrub found damaged while the store runs: noted and quarantined once."""

from collections.abc import Callable

import trio

from storage_driver.files.disk import Disk
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.quarantine import quarantine_range


class KnownDamage:
    """What is damaged is covered with filler by the next recovery or by fsck, not here."""

    def __init__(self, disk: Disk, log: CommitLog, note_trouble: Callable[[str], None]) -> None:
        self.ranges: list[tuple[int, int, str]] = []  # log ranges, why
        self._disk, self._log, self._note_trouble = disk, log, note_trouble
        self._thread = trio.CapacityLimiter(1)

    async def found(self, start: int, end: int, reason: str) -> None:
        """Note a damaged range and copy its bytes to quarantine/, once."""
        if any(a <= start < b for a, b, _ in self.ranges):
            return
        self.ranges.append((start, end, reason))
        segment = self._log.segment_of(start)
        if segment is not None:
            try:
                await trio.to_thread.run_sync(quarantine_range, self._disk, segment, start, end, limiter=self._thread)
            except OSError as exc:
                self._note_trouble(f"damaged bytes {start} to {end} of the log were not copied to quarantine/: {exc}")
