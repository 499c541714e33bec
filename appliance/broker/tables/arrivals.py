"""Parked pulls by queue, woken by an arrival that matches.

A parked pull is a waiting task. An arrival that does not match shortens the wait, so that the consumer's offset moves
past what it does not want. There are ten thousand of them: each frame and scope that one need not hold is 3 MB.
"""

from collections.abc import Callable, Container, Sequence
from typing import Final, Protocol, TypeVar

import trio

from appliance.broker.filter.subscriptions import AcceptsTags
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.dispatch import Arrival
from storage_driver.record import MessageQueue

Key = TypeVar("Key")
ALWAYS_ALLOWED: Final = 16  # parked pulls of one connection while there is room at all
UNMATCHED_S: Final = 5.0  # RocketMQ's PullRequestHoldService looks at parked pulls that often


class Awaited(Protocol):
    """A queue, the offset that is waited for, and what is accepted there."""

    @property
    def queue(self) -> MessageQueue: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def accepts(self) -> AcceptsTags | None: ...


class QueuePosition(NamedTuple):
    """Nothing more than what is awaited."""

    queue: MessageQueue
    queue_offset: int
    accepts: AcceptsTags | None = None


class Waiter:
    """One parked pull; whoever wakes it cancels its scope, which is there while it waits."""

    __slots__ = ("missed", "places", "scope")

    def __init__(self, places: Sequence[Awaited]) -> None:
        self.places = places
        self.missed = False  # something arrived that did not match
        self.scope: trio.CancelScope | None = None

    def wake(self) -> None:
        """End the wait now."""
        if self.scope is not None:
            self.scope.cancel()

    def arrived(self, arrival: Arrival) -> None:
        """Wake up when the arrival matches, else wait only a little longer."""
        for place in self.places:
            if place.queue == arrival.queue and arrival.queue_offset >= place.queue_offset:
                if place.accepts is None or place.accepts(arrival.tags_code):
                    self.wake()
                else:
                    self._hurry()

    def _hurry(self) -> None:
        if not self.missed:
            self.missed = True
            if self.scope is not None:
                self.scope.deadline = min(self.scope.deadline, trio.current_time() + UNMATCHED_S)


def _give_up(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


class Arrivals:
    """queue -> parked pulls. `arrived` is what the store calls for each new message."""

    def __init__(self, most_parked: int, max_offset: Callable[[MessageQueue], int]) -> None:
        self.most_parked, self._max_offset = most_parked, max_offset
        self.parked = 0
        self._parked_by: dict[object, int] = {}  # connection -> its parked pulls
        self._waiters: dict[MessageQueue, set[Waiter]] = {}
        self.watched: Container[MessageQueue] = self._waiters  # queues in which somebody waits now
        self._by_group: dict[str, set[Waiter]] = {}

    def may_park(self, owner: object) -> bool:
        """Return whether a connection may park one more pull: as many as are left for others, or a few in any case."""
        free, own = self.most_parked - self.parked, self._parked_by.get(owner, 0)
        return free > 0 and own < max(free, ALWAYS_ALLOWED)

    def enter(self, owner: object) -> None:
        """Count a parked pull of a connection, as soon as it is decided that it waits; `leave` when it is answered."""
        self.parked += 1
        self._parked_by[owner] = self._parked_by.get(owner, 0) + 1

    def leave(self, owner: object) -> None:
        self.parked -= 1
        left = self._parked_by[owner] - 1
        if left:
            self._parked_by[owner] = left
        else:
            del self._parked_by[owner]

    def arrived(self, arrival: Arrival) -> None:
        """Wake who waits for this message."""
        waiters = self._waiters.get(arrival.queue)
        if waiters:
            for waiter in waiters:
                waiter.arrived(arrival)

    def watch(self, queue: MessageQueue, waiter: Waiter) -> None:
        """Tell a waiter of each arrival in a queue, until `unwatch`."""
        _add(self._waiters, queue, waiter)

    def unwatch(self, queue: MessageQueue, waiter: Waiter) -> None:
        _discard(self._waiters, queue, waiter)

    def release(self, group: str) -> None:
        """Wake all pulls of a group: what it subscribes to has changed."""
        for waiter in self._by_group.get(group, ()):
            waiter.wake()

    def release_topic(self, topic: str) -> None:
        """Wake all pulls on a topic: it was changed or deleted."""
        for queue, waiters in self._waiters.items():
            if queue.topic == topic:
                for waiter in waiters:
                    waiter.wake()

    async def wait_match(self, places: Sequence[Awaited], *, group: str, timeout_s: float) -> None:
        """Return once a message at or after the offset of one of several places has come that is accepted there.

        Or after the timeout. Something already there ends the wait at once: it may have come since the caller looked.
        """
        waiter = Waiter(places)
        for place in places:
            _add(self._waiters, place.queue, waiter)
        _add(self._by_group, group, waiter)
        try:
            if not any(self._max_offset(place.queue) > place.queue_offset for place in places):
                with trio.CancelScope(deadline=trio.current_time() + timeout_s) as waiter.scope:
                    await trio.lowlevel.wait_task_rescheduled(_give_up)
        finally:
            _discard(self._by_group, group, waiter)
            for place in places:
                _discard(self._waiters, place.queue, waiter)


def _add(table: dict[Key, set[Waiter]], key: Key, waiter: Waiter) -> None:
    waiters = table.get(key)
    if waiters is None:
        table[key] = {waiter}
    else:
        waiters.add(waiter)


def _discard(table: dict[Key, set[Waiter]], key: Key, waiter: Waiter) -> None:
    waiters = table[key]
    waiters.discard(waiter)
    if not waiters:
        del table[key]
