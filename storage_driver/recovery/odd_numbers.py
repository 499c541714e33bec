"""Records whose number does not follow in their queue, held back until the next record of the queue is seen. Sans I/O.

The head of a record has no checksum. One wrong bit of a number would make the queue leap over billions of numbers, or
leave out every record behind it, so a number counts only if what follows it agrees.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final

from storage_driver.errors import MessageIllegal
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import SMALLEST_RECORD, DispatchEntry, MessageQueue, check_queue

MOST_NUMBER: Final = 1 << 48  # of a queue's first record: nothing is known before it
MOST_SKIPPED: Final = 1_000_000  # numbers, of a salvaged log that lost more than it kept; 20 MB of holes


class HeldRecord(NamedTuple):
    """A record with its entry's size and tags code."""

    entry: DispatchEntry
    size: int
    code: int


class OddNumbers:
    """At most one record of each queue is held; `wrong` are those whose number was found to be damaged."""

    def __init__(self) -> None:
        self.wrong: list[DispatchEntry] = []
        self._held: dict[MessageQueue, HeldRecord] = {}

    def hold(self, key: MessageQueue, record: HeldRecord) -> None:
        """Hold a record; the one before it was taken."""
        self._held[key] = record

    def take(self, key: MessageQueue) -> HeldRecord | None:
        """Return the record that is held of a queue, and hold it no longer."""
        return self._held.pop(key, None) if self._held else None

    def queues(self) -> list[MessageQueue]:
        """Return the queues of which a record is held."""
        return list(self._held)


def wrong_numbers(entries: Sequence[DispatchEntry], ends: Mapping[MessageQueue, int]) -> dict[int, int | None]:
    """Return the log offsets of the entries that do not follow in their queues, with the number that each had.

    None where nobody knows it. `ends`: the numbers that the queues expect before the first entry.
    """
    of_queue: dict[MessageQueue, list[DispatchEntry]] = {}
    for entry in entries:
        of_queue.setdefault(MessageQueue(entry.topic, entry.queue_id), []).append(entry)
    wrong: dict[int, int | None] = {}
    for queue, found in of_queue.items():
        expected = ends.get(queue)
        for entry, behind in zip_longest(found, found[1:]):
            following = behind.queue_offset if behind is not None else None
            if is_legal(queue) and _follows(entry, expected, following):
                expected = entry.queue_offset + 1
                continue
            wrong[entry.log_offset] = expected
            expected = None if expected is None else expected + 1
    return wrong


def _follows(entry: DispatchEntry, expected: int | None, following: int | None) -> bool:
    """Tell whether a record is right for a log of which others have the records as well: no queue starts again here."""
    number = entry.queue_offset
    if number == expected:
        return True
    return (expected is None or number > expected) and is_right(entry, expected, following)


def is_legal(queue: MessageQueue) -> bool:
    """Tell whether a queue may have such a name: the topic of a record has no checksum."""
    try:
        check_queue(queue)
    except MessageIllegal:
        return False
    return True


def is_right(entry: DispatchEntry, expected: int | None, following: int | None) -> bool:
    """Tell whether a record's number, which is not the expected one, is what was stored.

    `expected` is None where nothing is known of the queue yet, `following`, the number of its next record, at the end.
    """
    number = entry.queue_offset
    if number < 0 or following == number + 1:
        return number >= 0
    if expected is None:
        return number <= MOST_NUMBER and (not following or following > number)
    if number < expected:  # 0: the topic was deleted and made again
        return number == 0 if following is None else following <= expected
    if following and following <= number:
        return False
    return number - expected <= max(MOST_SKIPPED, entry.log_offset // SMALLEST_RECORD)
