"""One queue that this consumer holds: its messages in flight, its pull position, its lock."""

from collections.abc import Callable

import trio

from netstack.client.consume.consumer_options import MIB, ConsumerOptions
from netstack.client.consume.process_queue import ProcessQueue
from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import ProcessQueueInfo
from netstack.wire.json_body import MessageQueue

LOCK_S = 30.0  # how long a broker's lock counts without renewal


class QueueLock:
    """A broker's lock of one queue, for an ordered listener; renewed while the queue is held."""

    def __init__(self) -> None:
        self.taken_at: float | None = None
        self.fresh = False  # the next pull begins where the broker's offset is

    @property
    def held(self) -> bool:
        return self.taken_at is not None and trio.current_time() - self.taken_at < LOCK_S

    def take(self) -> None:
        """The broker gave or renewed the lock; one that had ended is fresh."""
        self.fresh |= not self.held
        self.taken_at = trio.current_time()

    def lose(self) -> None:
        """The broker gave it to another."""
        self.taken_at = None


class HeldQueue:
    """`dropped` is final: later events of this queue are ignored."""

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue, self.next_offset = queue, next_offset
        self.messages = ProcessQueue()
        self.dropped = False
        self.paused = False
        self.scope = trio.CancelScope()  # around the pull task
        self.pulled_at = self.consumed_at = trio.current_time()
        self.suggested_id = 0
        self.lock = QueueLock()
        self.busy = False  # an ordered listener runs
        self._waiters = trio.lowlevel.ParkingLot()

    def drop(self) -> None:
        self.dropped = True
        self.scope.cancel()
        self.change()

    def change(self) -> None:
        """Wake whoever waits for room, messages, the end of a listener or a lock."""
        if self._waiters:
            self._waiters.unpark_all()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is checked after every change."""
        while not condition():
            await self._waiters.park()

    def has_room(self, options: ConsumerOptions, share: int = 1) -> bool:
        """True when another pull may be made; `share` queues divide what the topic may have."""
        messages, size = options.queue_messages, options.queue_mib
        if options.topic_messages > 0:
            messages = max(1, options.topic_messages // share)
        if options.topic_mib > 0:
            size = max(1, options.topic_mib // share)
        cached = self.messages
        if cached.count > messages or cached.size_bytes // MIB > size:
            return False
        return options.orderly or cached.span <= options.max_span

    def finish(self, message: ReceivedMessage) -> int:
        """Forget a message that is done; return the offset to commit, -1 for none."""
        committed = self.messages.remove((message.queue_offset,))
        self.consumed_at = trio.current_time()
        if self._waiters:
            self._waiters.unpark_all()
        return committed

    def status(self, commit_offset: int, wall_offset_s: float) -> ProcessQueueInfo:
        """Return what tools show of this queue; `wall_offset_s` turns trio's clock into epoch seconds."""
        cached = self.messages
        taken = cached.taken
        lowest = cached.lowest
        return ProcessQueueInfo(
            commit_offset,
            lowest if lowest is not None else 0,
            cached.highest if cached.count else 0,
            cached.waiting_count,
            cached.size_bytes // MIB,
            min(taken, default=0),
            max(taken, default=0),
            len(taken),
            self.lock.held,
            0,
            0 if self.lock.taken_at is None else int((self.lock.taken_at + wall_offset_s) * 1000),
            self.dropped,
            int((self.pulled_at + wall_offset_s) * 1000),
            int((self.consumed_at + wall_offset_s) * 1000),
        )
