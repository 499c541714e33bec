"""One queue of one group as POP sees it: what was never taken, what is in flight, what comes again. Sans I/O.

Below `floor` all is done: that is the group's consumer offset. From `next` on nothing was ever taken. What is between
them and not in flight is done, or no filter wanted it.
"""

from collections.abc import Sequence

from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

STEPS = 256


class PopKey(NamedTuple):
    """A group and a queue."""

    group: str
    queue: MessageQueue


class CopyPlace(NamedTuple):
    """Where a message is stored again: in queue 0 of a topic, not before this queue offset."""

    topic: str
    start: int


class Take:
    """Messages of one queue that were given out together, until a time: `due_ms` of the wall, `due_s` of trio's clock.

    `pop_ms` names the take in the handles of its messages. A renewal makes a new take with the same name.
    """

    __slots__ = ("address", "deliveries", "due_ms", "due_s", "offsets", "order", "owner", "pop_ms", "queue", "whole")

    def __init__(
        self, queue: "PopQueue", offsets: Sequence[int], pop_ms: int, due: tuple[int, float], owner: str = ""
    ) -> None:
        self.queue, self.offsets, self.pop_ms, self.owner = queue, offsets, pop_ms, owner
        self.due_ms, self.due_s = due
        self.address = ""  # that it is counted for
        self.order = False  # taken in order: what is not acknowledged comes again in its place
        self.deliveries = 0  # before this one, of an ordered take
        self.whole = False  # the order is that of the whole queue; not known after a restart

    def __lt__(self, other: "Take") -> bool:
        return self.due_s < other.due_s


class PopQueue:
    """The state of one group on one queue; `number` is its name in the journal."""

    __slots__ = (
        *("again", "attempt_id", "behind", "busy", "copying", "floor", "in_flight", "key", "next", "number"),
        "opened_by",
    )

    def __init__(self, key: PopKey, number: int, start: int, opened_by: str = "") -> None:
        """opened_by: the address that the queue is counted for."""
        self.key, self.number, self.opened_by = key, number, opened_by
        self.floor = self.next = start
        self.in_flight: dict[int, Take | None] = {}  # offset -> take; None: its time is over and it has no new one yet
        self.again: dict[int, int] = {}  # offsets that come again in their place -> deliveries so far
        self.behind: dict[int, int] = {}  # acknowledged behind one that was not, since the newest take -> deliveries
        self.copying: dict[int, CopyPlace] = {}  # expired offsets that are being stored again
        self.busy = False  # a receiver is reading
        self.attempt_id = ""  # of the newest ordered take

    def take(self, take: Take, following: int) -> None:
        """Messages were given out; `following` is the first offset that is not looked at yet."""
        for offset in take.offsets:
            self.in_flight[offset] = take
            if self.again:
                self.again.pop(offset, None)
        self.next = max(self.next, following)
        if self.floor not in self.in_flight:
            self._rise()

    def pass_over(self, following: int) -> None:
        """What is below an offset and not in flight is of no interest to the group."""
        self.next = max(self.next, following)
        self._rise()

    def renew(self, take: Take) -> None:
        """Messages in flight get another time."""
        for offset in take.offsets:
            self.in_flight[offset] = take

    def find(self, offset: int, pop_ms: int) -> Take | None:
        """Return the take of a message in flight, None for a handle that is no longer valid."""
        take = self.in_flight.get(offset)
        return take if take is not None and take.pop_ms == pop_ms else None

    def done(self, offset: int) -> None:
        """A message needs nothing more: acknowledged, or stored again elsewhere."""
        if offset in self.in_flight:
            del self.in_flight[offset]
            self.again.pop(offset, None)
            self.copying.pop(offset, None)
            if offset == self.floor:
                self._rise()

    def done_in_order(self, offset: int, deliveries: int) -> None:
        """A message of a whole ordered take was acknowledged, after so many deliveries before it."""
        self.done(offset)
        if self.floor < offset:
            self.behind[offset] = deliveries + 1

    def repeat_behind(self) -> None:
        """What was acknowledged in order behind a message that comes again comes again, too: the order is kept."""
        first, behind = min(self.again, default=self.next), self.behind
        self.behind = {}
        for offset, deliveries in behind.items():
            if offset > first:
                self.in_flight[offset] = None
                self.again[offset] = deliveries

    def expire(self, take: Take) -> list[int]:
        """The time of a take is over: return the offsets that were not acknowledged and not renewed."""
        left = [offset for offset in take.offsets if self.in_flight.get(offset) is take]
        for offset in left:
            self.in_flight[offset] = None
        return left

    def bring_again(self, offset: int, deliveries: int) -> None:
        """An expired message is given out again from its place."""
        self.again[offset] = deliveries

    def reset(self, start: int) -> list[int]:
        """The group begins at an offset now; return what was in flight and is forgotten."""
        dropped = list(self.in_flight)
        self.in_flight, self.again, self.behind, self.copying, self.attempt_id = {}, {}, {}, {}, ""
        self.floor = self.next = start
        return dropped

    def move_floor(self, floor: int) -> list[int]:
        """Others of the group consumed what is below an offset; return what was in flight there and is forgotten."""
        dropped = [offset for offset in self.in_flight if offset < floor]
        for offset in dropped:
            del self.in_flight[offset]
            self.again.pop(offset, None)
            self.copying.pop(offset, None)
        self.next = max(self.next, floor)
        self.floor = max(self.floor, floor)
        self._rise()
        return dropped

    @property
    def is_idle(self) -> bool:
        """Whether its group's consumer offset says all that is known here."""
        under_way = self.busy or self.in_flight or self.again or self.behind or self.copying
        return self.floor == self.next and not under_way

    @property
    def blocked(self) -> bool:
        """Whether an ordered receiver has to wait: something is in flight, or about to come again."""
        return len(self.in_flight) > len(self.again)

    def _rise(self) -> None:
        floor, in_flight = self.floor, self.in_flight
        if not in_flight:
            self.floor = max(floor, self.next)
            return
        while floor < self.next and floor not in in_flight:
            floor += 1
            if floor - self.floor > STEPS:  # a filter left much out
                floor = min(in_flight)
        self.floor = floor
