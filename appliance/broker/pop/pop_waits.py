"""Receivers that wait for messages of a group on a topic, in the order in which they came.

One message wakes one receiver: the first whose queues and filter it fits. Who is woken looks again, and what is left
then wakes the next one, so that a thousand waiting receivers cost no more than one.
"""

from collections.abc import Callable, Sequence

import trio

from appliance.broker.filter.subscriptions import AcceptsTags
from appliance.broker.tables.arrivals import Arrivals, Waiter
from appliance.broker.tables.shares import Shares
from storage_driver.queues.dispatch import Arrival
from storage_driver.record import MessageQueue

MOST_WAITING = 1024  # receivers of one group on one topic, RocketMQ's popPollingSize
MOST_QUEUES, ALWAYS_QUEUES = 200_000, 20_000  # of all receivers, some 150 bytes each; what an address may have of them


class PopReceiver:
    """One receiver that waits for a message in one of several queues.

    `is_worth_it(queue, arrived)`: whether to look at a queue finds something, if a message just arrived there.
    `accepts` counts in queues of the topic `filtered`; `address`: who has a share of what all may wait for.
    """

    __slots__ = ("_accepts", "_filtered", "_is_worth_it", "address", "event", "queues")

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        is_worth_it: Callable[[MessageQueue, bool], bool],
        filtered: str = "",
        accepts: AcceptsTags | None = None,
        address: str = "",
    ) -> None:
        self.queues, self.event, self.address = frozenset(queues), trio.Event(), address
        self._is_worth_it, self._filtered, self._accepts = is_worth_it, filtered, accepts

    def wants(self, queue: MessageQueue, tags_code: int | None) -> bool:
        """Return whether to look at a queue is worth it, now that a message with these tags arrived, if one did."""
        if queue not in self.queues or not self._is_worth_it(queue, tags_code is not None):
            return False
        return tags_code is None or self._accepts is None or queue.topic != self._filtered or self._accepts(tags_code)


class GroupWaits(Waiter):
    """The receivers of one group on one topic, which the arrivals know as one waiter."""

    __slots__ = ("entered", "receivers", "watched")

    def __init__(self) -> None:
        super().__init__(())
        self.entered = 0  # receivers that have not left, also those that are woken
        self.receivers: dict[PopReceiver, None] = {}  # in order
        self.watched: dict[MessageQueue, int] = {}  # queue -> how many receivers

    def arrived(self, arrival: Arrival) -> None:
        """Wake the first receiver that this message fits."""
        self.wake_one(arrival.queue, arrival.tags_code)

    def wake_one(self, queue: MessageQueue, tags_code: int | None = None) -> None:
        """Wake the first receiver that wants to look at a queue."""
        for receiver in self.receivers:
            if receiver.wants(queue, tags_code):
                del self.receivers[receiver]
                receiver.event.set()
                return

    def wake(self) -> None:
        """Wake all: the topic or the group has changed."""
        receivers, self.receivers = self.receivers, {}
        for receiver in receivers:
            receiver.event.set()


class PopWaits:
    """(group, topic) -> who waits."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._waits: dict[tuple[str, str], GroupWaits] = {}
        self._queues, self._shares = 0, Shares(ALWAYS_QUEUES)

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not self._waits

    def count(self, group: str, topic: str, queue: MessageQueue | None = None) -> int:
        """Return how many receivers wait for a group on a topic, or for one queue of it."""
        waits = self._waits.get((group, topic))
        if waits is None:
            return 0
        return len(waits.receivers) if queue is None else waits.watched.get(queue, 0)

    def total(self) -> int:
        """Return how many receivers wait."""
        return sum(len(waits.receivers) for waits in self._waits.values())

    def wake_one(self, group: str, topic: str, queue: MessageQueue) -> None:
        """There is, or may be, something for the group in a queue."""
        waits = self._waits.get((group, topic))
        if waits is not None:
            waits.wake_one(queue)

    def anybody(self, group: str, topic: str) -> bool:
        return (group, topic) in self._waits

    def has_room(self, receiver: PopReceiver) -> bool:
        """Tell whether a receiver may wait for so many queues."""
        return len(receiver.queues) <= self._shares.room(receiver.address, MOST_QUEUES - self._queues)

    def _count(self, receiver: PopReceiver, sign: int) -> None:
        self._queues += sign * len(receiver.queues)
        self._shares.change(receiver.address, sign * len(receiver.queues))

    def enter(self, group: str, topic: str, receiver: PopReceiver) -> None:
        """Let a receiver wait from now on; `leave` follows."""
        self._count(receiver, 1)
        waits = self._waits.get((group, topic))
        if waits is None:
            waits = self._waits[group, topic] = GroupWaits()
        waits.entered += 1
        waits.receivers[receiver] = None
        for queue in receiver.queues:
            count = waits.watched.get(queue, 0)
            if not count:
                self._arrivals.watch(queue, waits)
            waits.watched[queue] = count + 1

    def leave(self, group: str, topic: str, receiver: PopReceiver) -> None:
        """The receiver was woken, or waits no longer."""
        self._count(receiver, -1)
        waits = self._waits[group, topic]
        waits.receivers.pop(receiver, None)
        for queue in receiver.queues:
            waits.watched[queue] -= 1
            if not waits.watched[queue]:
                del waits.watched[queue]
                self._arrivals.unwatch(queue, waits)
        waits.entered -= 1
        if not waits.entered:
            del self._waits[group, topic]
