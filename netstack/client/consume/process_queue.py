"""The messages of one queue between pull and acknowledgement. Source: RocketMQ 4.9.8 ProcessQueue.

The committed offset is the lowest unfinished message, even if later ones are finished.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from netstack.client.messages import ReceivedMessage


class ProcessQueue:
    def __init__(self) -> None:
        self.size_bytes = 0
        self.highest = -1  # largest offset ever put
        self._waiting: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._taken: OrderedDict[int, ReceivedMessage] = OrderedDict()

    @property
    def count(self) -> int:
        return len(self._waiting) + len(self._taken)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def taken(self) -> Sequence[int]:
        return list(self._taken)

    @property
    def lowest(self) -> int | None:
        """The smallest unfinished offset, None when all is done."""
        if self._taken:
            return next(iter(self._taken))
        return next(iter(self._waiting)) if self._waiting else None

    @property
    def span(self) -> int:
        if not self._waiting:
            return 0
        return next(reversed(self._waiting)) - next(iter(self._waiting))

    def put(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Add what is not there yet and return it."""
        added, waiting = [], self._waiting
        unordered = False
        for message in messages:
            at = message.queue_offset
            if at in waiting or at in self._taken:
                continue
            unordered |= at < self.highest
            waiting[at] = message
            added.append(message)
            self.size_bytes += len(message.stored_body)
            if at > self.highest:
                self.highest = at
        if unordered:
            self._waiting = OrderedDict(sorted(waiting.items()))
        return added

    def remove(self, offsets: Iterable[int]) -> int:
        """Finish messages; return the offset to commit, -1 when nothing was cached before."""
        waiting = self._waiting
        if not waiting:
            return -1
        for at in offsets:
            message = waiting.pop(at, None)
            if message is not None:
                self.size_bytes -= len(message.stored_body)
        return next(iter(waiting)) if waiting else self.highest + 1

    def first(self, number: int) -> list[ReceivedMessage]:
        """Return the oldest messages, which stay where they are."""
        return [message for message, _ in zip(self._waiting.values(), range(number), strict=False)]

    def take(self, number: int) -> list[ReceivedMessage]:
        """Return the oldest messages for ordered consumption and remember them as taken."""
        found: list[ReceivedMessage] = []
        while self._waiting and len(found) < number:
            at, message = self._waiting.popitem(last=False)
            self._taken[at] = message
            found.append(message)
        return found

    def commit(self) -> int:
        """Finish what was taken; return the offset after it, -1 when nothing was."""
        if not self._taken:
            return -1
        last = max(self._taken)
        self.size_bytes -= sum(len(message.stored_body) for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def rollback(self) -> None:
        """Put what was taken back, to be taken again."""
        self.take_back(list(self._taken.values()))

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in reversed(messages):
            if self._taken.pop(message.queue_offset, None) is not None:
                self._waiting[message.queue_offset] = message
                self._waiting.move_to_end(message.queue_offset, last=False)

    def clear(self) -> None:
        self._waiting.clear()
        self._taken.clear()
        self.size_bytes = 0
