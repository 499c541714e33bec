"""What a whole workload promised, in a form that a recovered disk is compared with at one go.

The comparison may say "all as promised" or "look closer", never more: harness.check then goes through every message.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES
from storage_driver.record import MessageQueue, java_hash

TAGS_CODE = java_hash("a")  # of every message
RawEntries = dict[MessageQueue, tuple[int, bytes]]  # queue -> its first entry's number, all entries


@dataclass(slots=True)
class Life:
    """Messages of a queue numbered without a gap: from its beginning, or from the deletion of its topic on."""

    first: int
    entries: bytearray = field(default_factory=bytearray)

    def matches(self, first: int, raw: bytes) -> bool:
        """Tell whether these entries are some of this life's, each under its number."""
        at = (first - self.first) * ENTRY_BYTES
        return at >= 0 and self.entries[at : at + len(raw)] == raw


@dataclass(slots=True)
class QueuePromises:
    """Acknowledged messages of one queue in the order of the log."""

    lives: list[Life] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    log_offsets: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    life_of: list[int] = field(default_factory=list)

    def add(self, step: int, number: int, log_offset: int, size: int) -> None:
        """Note the next acknowledged message."""
        life = self.lives[-1] if self.lives else None
        if life is None or number != life.first + len(life.entries) // ENTRY_BYTES:
            life = Life(number)
            self.lives.append(life)
        life.entries += ENTRY.pack(log_offset, size, TAGS_CODE)
        self.steps.append(step)
        self.log_offsets.append(log_offset)
        self.numbers.append(number)
        self.life_of.append(len(self.lives) - 1)

    def kept(self, first: int, raw: bytes, cut: int, floor: int) -> bool:
        """Tell whether entries found are this queue's and leave out none that was acknowledged before the cut."""
        low, high = bisect_left(self.log_offsets, floor), bisect_right(self.steps, cut)
        if low < high:
            life = self.life_of[high - 1]
            end = first + len(raw) // ENTRY_BYTES
            there = self.life_of[low] == life and self.numbers[low] >= first and self.numbers[high - 1] < end
            return there and self.lives[life].matches(first, raw)
        return not raw or any(life.matches(first, raw) for life in self.lives)


class Promises:
    """All that one workload was promised, when every message of it was acknowledged in the end."""

    def __init__(
        self, acknowledged: list[tuple[int, int, int, bytes, MessageQueue | None]], segment_bytes: int
    ) -> None:
        """Take step, number, log offset, bytes and queue (None: it gets no entry) of each message, as they came."""
        self._segments: dict[int, tuple[int, bytearray]] = {}  # base -> first log offset, bytes from there on
        self._queues: dict[MessageQueue, QueuePromises] = {}
        self._steps: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.whole = all(a[2] < b[2] and a[0] <= b[0] for a, b in pairwise(acknowledged))
        for step, number, log_offset, raw, queue in acknowledged:
            first, content = self._segments.setdefault(
                log_offset - log_offset % segment_bytes, (log_offset, bytearray())
            )
            self.whole = self.whole and first + len(content) == log_offset
            content += raw
            self._steps.append(step)
            self._starts.append(log_offset)
            self._ends.append(log_offset + len(raw))
            if queue is not None:
                self._queues.setdefault(queue, QueuePromises()).add(step, number, log_offset, len(raw))

    def kept(
        self, segments: dict[int, bytes], end: int, found: RawEntries, *, cut: int, floor: int, deleted: dict[str, int]
    ) -> bool:
        """Tell whether log and queues are exactly what was sent, and hold all that was acknowledged before the cut."""
        if not self.whole or not self._log_kept(segments, end, cut, floor):
            return False
        for queue in self._queues.keys() | found.keys():
            promised, (first, raw) = self._queues.get(queue), found.get(queue, (0, b""))
            if promised is None or not promised.kept(first, raw, cut, max(floor, deleted.get(queue.topic, 0))):
                return False
            if raw:
                log_offset, size, _ = ENTRY.unpack(raw[-ENTRY_BYTES:])
                if log_offset + size > end:
                    return False
        return True

    def _log_kept(self, segments: dict[int, bytes], end: int, cut: int, floor: int) -> bool:
        low, high = bisect_left(self._starts, floor), bisect_right(self._steps, cut)
        if low < high and (not segments or self._starts[low] < min(segments) or self._ends[high - 1] > end):
            return False
        for base, content in segments.items():
            first, sent = self._segments.get(base, (base, bytearray()))
            count = max(0, min(len(sent), end - first))
            if content[first - base : first - base + count] != sent[:count]:
                return False
        return True
