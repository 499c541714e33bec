"""`rocketbox/losses.json`: lost durable messages, until an operator acknowledges them.

Recoveries find what is gone; a running box finds what its disk gives back damaged.

Recovery writes the list before it covers a lost range, and how many messages it was once they are counted, so that a
power cut on the way forgets nothing. Who acknowledges writes `losses-seen.json` alone: a box may run meanwhile.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_driver.files.disk import Disk
from storage_driver.files.state_file import NOT_SAVED, StateFile
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

MOST_LOSSES, MOST_QUEUES, MOST_RANGES, MOST_REASONS = 64, 1000, 1000, 8


class Loss(NamedTuple):
    """The loss that one recovery found, or the damage that a running box did until it was acknowledged."""

    number: int  # rises from 1
    found_ms: int
    ranges: list[tuple[int, int]]  # of the log, ascending
    reasons: list[str]
    witnesses: dict[str, int]  # who says up to which log offset it was durable
    messages: int | None = None  # None: a power cut came before they were counted
    queues: Sequence[tuple[str, int, int]] = ()  # topic, queue, messages; those that lost most first
    more: int = 0  # queues left out
    damaged: bool = False  # a reader or the scrub found it: the bytes are there, and not what was stored

    @property
    def bytes(self) -> int:
        """Length of all ranges."""
        return sum(end - start for start, end in self.ranges)

    @property
    def end(self) -> int:
        """The log reached at least to here."""
        return max(max(self.witnesses.values(), default=0), self.ranges[-1][1])

    def to_json(self) -> dict[str, Any]:
        """Return the form in the file, in verdicts and of --json."""
        return {**self._asdict(), "bytes": self.bytes}

    def sentence(self) -> str:
        """Return one line: what is lost and what proves it."""
        count = "messages, how many was not counted," if self.messages is None else f"at least {self.messages} messages"
        count = "at least 1 message" if self.messages == 1 else count
        named = ", ".join(f"{topic}/{queue_id}: {lost}" for topic, queue_id, lost in self.queues[:3])
        rest = len(self.queues) - 3 + self.more
        named += f" and {rest} more queues" if rest > 0 else ""
        start, end = self.ranges[0][0], self.ranges[-1][1]
        where = f"log offsets {start} to {end}, {self.bytes} bytes"
        what = f"{count} cannot be read on this box" if self.damaged else f"lost {count}"
        return f"{what}{f' ({named})' if named else ''}, {where}: {'; '.join(self.reasons)}"


class Losses:
    """The losses of one store, oldest first."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self.found: list[Loss] = []
        self._file = StateFile(disk, root / "rocketbox" / "losses.json")
        self._seen = StateFile(disk, root / "rocketbox" / "losses-seen.json")

    def load(self) -> None:
        """Read the list; a damaged one counts as empty, as other tables do it is told. Blocks. Raises OSError."""
        try:
            self.found = [_loss(item) for item in (self._file.load() or {"losses": []})["losses"]]
        except NOT_SAVED:
            self.found = []

    @property
    def known_to(self) -> int:
        """What is below and is missing was told before."""
        return max((loss.end for loss in self.found if not loss.damaged), default=0)

    def note(self, loss: Loss) -> None:
        """Add a loss, or replace what is known of it. Blocks. Raises OSError."""
        kept = [other for other in self.found if other.number != loss.number and not _is_told_by(other, loss)]
        self.found = sorted([*kept, loss], key=lambda each: each.number)[-MOST_LOSSES:]
        self._file.save({"layout": 1, "losses": [loss.to_json() for loss in self.found]})

    def note_damage(self, damage: Loss) -> None:
        """Add what a running box found damaged, to what it found before and nobody has acknowledged.

        What is in the list already is not added again. Its number is given here. Blocks. Raises OSError.
        """
        start = damage.ranges[0][0]
        if any(low <= start < high for loss in self.found for low, high in loss.ranges):
            return
        for before in self.unacknowledged():
            if before.damaged:
                self.note(joined(before, damage))
                return
        self.note(damage._replace(number=self.next_number(())))

    def next_number(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the number for lost ranges: that of one which was found before and not counted, or a new one."""
        spans = list(ranges)
        for loss in self.found:
            if (
                loss.messages is None
                and not loss.damaged
                and any(a < d and c < b for a, b in spans for c, d in loss.ranges)
            ):
                return loss.number
        return max((loss.number for loss in self.found), default=0) + 1

    def unacknowledged(self) -> list[Loss]:
        """Return the losses that are not acknowledged. Blocks for one small file, if there are any."""
        if not self.found:
            return []
        seen = self._seen_to()
        return [loss for loss in self.found if loss.number > seen]

    def _seen_to(self) -> int:
        try:
            return int((self._seen.load() or {"to": 0})["to"])
        except (OSError, *NOT_SAVED):
            return 0

    def messages(self) -> int:
        """Return the number of lost messages that are not acknowledged; a loss that was not counted is at least one.

        Damaged ones do not count: the damaged ranges have a metric of their own.
        """
        return sum(1 if loss.messages is None else loss.messages for loss in self.unacknowledged() if not loss.damaged)

    def acknowledge(self, now_ms: int) -> list[Loss]:
        """Acknowledge every loss; return those that were new. Blocks. Raises OSError."""
        fresh = self.unacknowledged()
        if fresh:
            self._seen.save({"layout": 1, "to": max(loss.number for loss in fresh), "acknowledged_ms": now_ms})
        return fresh


def _loss(item: Mapping[str, Any]) -> Loss:
    messages, ranges = item["messages"], sorted((int(start), int(end)) for start, end in item["ranges"])
    if not ranges:
        raise ValueError("a loss without a range")
    return Loss(
        int(item["number"]),
        int(item["found_ms"]),
        ranges,
        [str(reason) for reason in item["reasons"]],
        {str(name): int(log_offset) for name, log_offset in item["witnesses"].items()},
        None if messages is None else int(messages),
        [(str(topic), int(queue_id), int(count)) for topic, queue_id, count in item["queues"]],
        int(item["more"]),
        item.get("damaged") is True,
    )


def _is_told_by(damage: Loss, loss: Loss) -> bool:
    """Return whether a recovery has found, and covered, all of a damage that was known before."""
    spans = loss.ranges
    return (
        damage.damaged and not loss.damaged and all(any(a <= c and d <= b for a, b in spans) for c, d in damage.ranges)
    )


def joined(before: Loss, damage: Loss) -> Loss:
    """Return two damages as one, under the number of the first; above MOST_RANGES the last range is a wide one."""
    ranges = merged([*before.ranges, *damage.ranges])
    if len(ranges) > MOST_RANGES:
        ranges = [*ranges[: MOST_RANGES - 1], (ranges[MOST_RANGES - 1][0], ranges[-1][1])]
    lost = Counter[MessageQueue]()
    for topic, queue_id, count in [*before.queues, *damage.queues]:
        lost[MessageQueue(topic, queue_id)] += count
    known = before.messages is not None and damage.messages is not None
    reasons = list(dict.fromkeys([*before.reasons, *damage.reasons]))[:MOST_REASONS]
    both = counted(before._replace(ranges=ranges, reasons=reasons), lost)
    return both._replace(messages=(before.messages or 0) + (damage.messages or 0) if known else None)


def counted(loss: Loss, lost: Mapping[MessageQueue, int]) -> Loss:
    """Return a loss with its number of messages per queue."""
    rows = sorted(((_shown(topic), queue_id, count) for (topic, queue_id), count in lost.items()), key=_most_first)
    more = max(0, len(rows) - MOST_QUEUES)
    return loss._replace(messages=sum(lost.values()), queues=rows[:MOST_QUEUES], more=more)


def _shown(topic: str) -> str:
    """Return a name that every file and terminal takes: a damaged one may have halves of surrogate pairs."""
    return topic.encode("utf-8", "replace").decode()


def _most_first(row: tuple[str, int, int]) -> tuple[int, str, int]:
    return -row[2], row[0], row[1]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, those that touch as one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        elif start < end:
            out.append((start, end))
    return out


def day(at_ms: int) -> str:
    """Return when a loss was found, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))
