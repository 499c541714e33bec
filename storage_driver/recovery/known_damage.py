"""Ranges of the log that a reader or the scrub found damaged while the store runs: noted and quarantined once."""

from collections import Counter
from collections.abc import Callable

import trio

from storage_driver.files.disk import Disk
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.quarantine import quarantine_range
from storage_driver.log.scan import Bad, walk
from storage_driver.log.segment import Segment
from storage_driver.record import DispatchEntry, MessageQueue
from storage_driver.recovery.losses import Loss, Losses, counted


class KnownDamage:
    """What is damaged is covered with filler by a recovery that reads it, not here; the losses have it from now on."""

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        losses: Losses,
        *,
        now_ms: Callable[[], int],
        note_trouble: Callable[[str], None],
    ) -> None:
        self.ranges: list[tuple[int, int, str]] = []  # log ranges, why
        self._disk, self._log, self._losses, self._now_ms = disk, log, losses, now_ms
        self._note_trouble = note_trouble
        self._thread = trio.CapacityLimiter(1)

    async def found(self, start: int, end: int, reason: str, queue: MessageQueue | None = None) -> None:
        """Note a damaged range, copy its bytes to quarantine/ and list what it was, once: what of it was not noted yet.

        queue: that of the message, where the range cannot be read.
        """
        for a, b, _ in sorted(self.ranges):
            start = b if a <= start < b else start
        if start >= end:
            return
        self.ranges.append((start, end, reason))
        segment = self._log.segment_of(start)
        if segment is not None:
            with trio.CancelScope(shield=True):  # whoever read it may go meanwhile, and nobody notes it again
                await self._tell(segment, (start, end), reason, queue)

    async def _tell(self, segment: Segment, span: tuple[int, int], reason: str, queue: MessageQueue | None) -> None:
        start, end = span
        try:
            await trio.to_thread.run_sync(quarantine_range, self._disk, segment, start, end, limiter=self._thread)
        except OSError as exc:
            self._note_trouble(f"damaged bytes {start} to {end} of the log were not copied to quarantine/: {exc}")
        try:
            await trio.to_thread.run_sync(self._list, segment, span, reason, queue, limiter=self._thread)
        except OSError as exc:
            self._note_trouble(f"damaged bytes {start} to {end} of the log are not in losses.json: {exc}")

    def _list(self, segment: Segment, span: tuple[int, int], reason: str, queue: MessageQueue | None) -> None:
        try:
            lost = messages_in(segment, *span)
        except OSError:  # a sector that gave wrong bytes before gives none now
            lost = Counter([queue] if queue is not None else [])
        damage = Loss(0, self._now_ms(), [span], [reason], {}, damaged=True)
        self._losses.note_damage(counted(damage, lost) if lost else damage)


def messages_in(segment: Segment, start: int, end: int) -> Counter[MessageQueue]:
    """Return what a damaged range held by queue, as far as heads tell it: one whose body alone is damaged does."""
    found, at = Counter[MessageQueue](), start
    while at < end:
        item = next(walk(segment, at))
        entry = item.lost if isinstance(item, Bad) else item
        if not isinstance(entry, DispatchEntry):
            break
        found[MessageQueue(entry.topic, entry.queue_id)] += 1
        at += entry.size
    return found
