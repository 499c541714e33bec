"""Records that the disk does not give back at all: EIO, not wrong bytes. One bad sector must not stop a queue for ever.

A disk that is gone fails every read, so nothing is given up at once: the record has to fail again after a while in
which the log was synced. Then it counts as damaged, as one with a wrong checksum does: consumers skip it, it is told.
Bad sectors come in crowds: what fails soon after that needs a fresh sync alone.
"""

import trio

from storage_driver import failed_reads
from storage_driver.errors import UnreadableRecord
from storage_driver.failed_reads import FailedReads
from storage_driver.log.commit_log import CommitLog
from storage_driver.record import MessageQueue
from storage_driver.recovery.known_damage import KnownDamage

PATIENCE_S = failed_reads.PATIENCE_S
FRESH_S = 5.0  # of a sync; an idle store proves its disk every four seconds


class BadSectors:
    """Decides for one store; `given_up` are the log offsets of the records that are skipped."""

    def __init__(self, log: CommitLog, damage: KnownDamage) -> None:
        self.given_up: set[int] = set()
        self._log, self._damage = log, damage
        self._failed = FailedReads()

    async def gives_up(self, failed: UnreadableRecord, queue: MessageQueue) -> bool:
        """Note a failed read; return whether the record is skipped from now on, as the disk works otherwise."""
        at, now = failed.log_offset, trio.current_time()
        if at not in self.given_up and not self._is_sure(at, now):
            return False
        self._failed.note_given_up(now)
        self.given_up.add(at)
        await self._damage.found(at, at + failed.size, f"the disk does not give it back: {failed.strerror}", queue)
        return True

    def _is_sure(self, at: int, now: float) -> bool:
        proven_at, first = self._log.proven_at, self._failed.take(at, now)
        if proven_at is not None and self._log.failure is None:
            if self._failed.is_crowd(now) and now - proven_at < FRESH_S:
                return True
            if now - first >= PATIENCE_S and proven_at > first:
                return True
        self._failed.keep(at, first, now)
        return False
