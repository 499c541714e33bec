"""Records that the disk does not give back at all: EIO, not wrong bytes. One bad sector must not stop a queue for ever.

A disk that is gone fails every read, so nothing is given up at once: the record has to fail again after a while in
which the log was synced, and once more after the medium gave back another block of the disk that it is on: a sync may
have been another disk's. Then it counts as damaged, as one with a wrong checksum does: consumers skip it, it is told.
Bad sectors come in crowds: what fails soon after that waits no more.
"""

import trio

from storage_driver import failed_reads
from storage_driver.errors import UnreadableRecord
from storage_driver.failed_reads import FailedReads
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.log.commit_log import CommitLog
from storage_driver.record import MessageQueue
from storage_driver.recovery.known_damage import KnownDamage

PATIENCE_S = failed_reads.PATIENCE_S
FRESH_S = 5.0  # of a sync; an idle store proves its disk every four seconds


class BadSectors:
    """Decides for one store; `given_up` are the log offsets of the records that are skipped."""

    def __init__(self, log: CommitLog, disk: ZeroingDisk, damage: KnownDamage) -> None:
        self.given_up: set[int] = set()
        self.damage = damage
        self._log, self._disk = log, disk
        self._failed = FailedReads()
        self._one_thread = trio.CapacityLimiter(1)

    async def gives_up(self, failed: UnreadableRecord, queue: MessageQueue) -> bool:
        """Note a failed read; return whether the record is skipped from now on, as the disk works otherwise.

        Raises OSError.
        """
        at, now = failed.log_offset, trio.current_time()
        if at not in self.given_up and not (self._is_sure(at, now) and await self._is_bad(at, failed.size)):
            return False
        self._failed.note_given_up(now)
        self.given_up.add(at)
        await self.damage.found(at, at + failed.size, f"the disk does not give it back: {failed.strerror}", queue)
        return True

    async def _is_bad(self, at: int, size: int) -> bool:
        return await trio.to_thread.run_sync(self.is_unreadable, at, at + size, limiter=self._one_thread)

    def is_unreadable(self, start: int, end: int) -> bool:
        """Tell whether a range of the log cannot be read although its disk gives back other blocks. Blocks.

        Raises OSError.
        """
        segment = self._log.segment_of(start)
        if segment is None:
            return False
        return self._disk.is_unreadable(segment.file, start - segment.base, min(end, segment.end) - start)

    def _is_sure(self, at: int, now: float) -> bool:
        proven_at, first = self._log.proven_at, self._failed.take(at, now)
        if proven_at is not None and self._log.failure is None:
            if self._failed.is_crowd(now) and now - proven_at < FRESH_S:
                return True
            if now - first >= PATIENCE_S and proven_at > first:
                return True
        self._failed.keep(at, first, now)
        return False
