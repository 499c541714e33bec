"""Records that the disk does not give back at all: EIO, not wrong bytes. One bad sector must not stop a queue for ever.

A disk that is gone fails every read, so nothing is given up at once: the record has to fail again after a while in
which the log was synced. Then it counts as damaged, as one with a wrong checksum does: consumers skip it, it is told.
Bad sectors come in crowds: what fails soon after that needs a fresh sync alone.
"""

from typing import Final

import trio

from storage_driver.errors import UnreadableRecord
from storage_driver.log.commit_log import CommitLog
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue
from storage_driver.recovery.known_damage import KnownDamage

PATIENCE_S = 10.0  # from the first failed read of a record to the one that counts; consumers ask every few seconds
FORGOTTEN_S = 120.0  # without another one the first failed read says nothing
FRESH_S = 5.0  # of a sync; an idle store proves its disk every four seconds
MOST_KNOWN: Final = 1000  # records that failed and are not given up


class FailedReads(NamedTuple):
    """When reads of a record failed first and last, trio's time."""

    first: float
    last: float


class BadSectors:
    """Decides for one store; `given_up` are the log offsets of the records that are skipped."""

    def __init__(self, log: CommitLog, damage: KnownDamage) -> None:
        self.given_up: set[int] = set()
        self._log, self._damage = log, damage
        self._failed: dict[int, FailedReads] = {}
        self._gave_up_at = -FORGOTTEN_S

    async def gives_up(self, failed: UnreadableRecord, queue: MessageQueue) -> bool:
        """Note a failed read; return whether the record is skipped from now on, as the disk works otherwise."""
        at, now = failed.log_offset, trio.current_time()
        if at not in self.given_up and not self._is_sure(at, now):
            return False
        self._gave_up_at = now
        self.given_up.add(at)
        await self._damage.found(at, at + failed.size, f"the disk does not give it back: {failed.strerror}", queue)
        return True

    def _is_sure(self, at: int, now: float) -> bool:
        proven_at, known = self._log.proven_at, self._failed.pop(at, None)
        if known is None or now - known.last > FORGOTTEN_S:
            known = FailedReads(now, now)
        if proven_at is not None and self._log.failure is None:
            if now - self._gave_up_at < FORGOTTEN_S and now - proven_at < FRESH_S:
                return True
            if now - known.first >= PATIENCE_S and proven_at > known.first:
                return True
        self._failed[at] = known._replace(last=now)
        if len(self._failed) > MOST_KNOWN:
            del self._failed[next(iter(self._failed))]
        return False
