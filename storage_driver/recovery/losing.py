"""Losses that one recovery finds: listed before they are covered, counted at the end."""

from collections import Counter
from collections.abc import Iterable

from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.record import DispatchEntry, MessageQueue
from storage_driver.recovery.losses import MOST_RANGES, MOST_REASONS, Loss, Losses, counted, merged
from storage_driver.recovery.lost_numbers import LostNumbers
from storage_driver.recovery.odd_numbers import is_legal
from storage_driver.recovery.witnesses import Witnesses


class Losing:
    """The loss of one recovery, None of most."""

    def __init__(self, losses: Losses, witnesses: Witnesses, numbers: LostNumbers, now_ms: int) -> None:
        self.witnesses, self.numbers = witnesses, numbers
        self._losses, self._now_ms = losses, now_ms
        self._loss: Loss | None = None

    def note(self, start: int, end: int, why: str, *, sure: bool = False) -> None:
        """A range of the log is lost; it counts only if something proves it was durable, or if `sure`.

        Call this before the range is covered: after a power cut nothing else tells of it. Raises OSError.
        """
        end = end if sure else min(end, self.witnesses.reach)
        if start >= end or any(low <= start and end <= high for low, high in self.numbers.ranges):
            return  # none, or it was noted
        ranges = merged([*self.numbers.ranges, (start, end)])
        self.numbers.ranges[:] = ranges
        before = self._loss.reasons if self._loss is not None else []
        reasons = before if why in before else [*before, why][:MOST_REASONS]
        number = self._loss.number if self._loss is not None else self._losses.next_number(ranges)
        self._loss = Loss(number, self._now_ms, ranges, reasons, self.witnesses.beyond(ranges[0][0]))
        self._losses.note(self._loss)

    def count_all(self, queues: Iterable[ConsumeQueue], below: int = 1 << 63) -> None:
        """Count the lost messages below a log offset that the queues have: no record tells of them. Raises OSError."""
        for queue in queues:
            self.numbers.whole(queue, below)

    def misnumbered(self, entries: Iterable[DispatchEntry]) -> list[str]:
        """List records that their queues do not give out, their numbers being damaged; return why. Raises OSError."""
        known = [span for loss in self._losses.found for span in loss.ranges]
        fresh = [each for each in entries if not any(low <= each.log_offset < high for low, high in known)]
        fresh = fresh[:MOST_RANGES]
        ranges = merged((each.log_offset, each.log_offset + each.size) for each in fresh)
        reasons = [_why(each) for each in fresh]
        if fresh:
            damage = Loss(0, self._now_ms, ranges, reasons[:MOST_REASONS], {}, damaged=True)
            self._losses.note_damage(counted(damage, Counter(MessageQueue(*each[2:4]) for each in fresh)))
        return reasons

    def unreadable(self, start: int, end: int, why: str, lost: DispatchEntry | None) -> None:
        """List a range that the disk does not give back where nothing proves that it was durable: it may have been.

        Call this before the range is covered, after `note`. Raises OSError.
        """
        if not any(low <= start < high for low, high in self.numbers.ranges):
            damage = Loss(0, self._now_ms, [(start, end)], [why], {}, damaged=True)
            queues = Counter([MessageQueue(lost.topic, lost.queue_id)] if lost is not None else [])
            self._losses.note_damage(counted(damage, queues) if queues else damage)

    def finish(self) -> Loss | None:
        """Return the loss with what was counted, None when nothing is lost. Raises OSError."""
        if self._loss is not None:
            self._loss = counted(self._loss, self.numbers.counts)
            self._losses.note(self._loss)
        return self._loss


def _why(entry: DispatchEntry) -> str:
    if not is_legal(MessageQueue(entry.topic, entry.queue_id)):
        return f"topic {entry.topic!r}, queue {entry.queue_id} of the record at {entry.log_offset} cannot be its queue"
    return f"number {entry.queue_offset} at {entry.log_offset} does not follow in its queue"
