"""Which queues each topic has: kept beside the table of queues, which is by topic and queue."""

from collections.abc import Callable
from itertools import islice

from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.record import MessageQueue


class TopicQueues:
    """Follows the table when asked: new queues stand at its end, and after a deletion it is read anew.

    So a question costs what the topic has, not what all topics have.
    """

    def __init__(self, queues: dict[MessageQueue, ConsumeQueue], deletions: Callable[[], int]) -> None:
        """deletions: how many topics were deleted so far."""
        self._queues, self._deletions = queues, deletions
        self._ids: dict[str, list[int]] = {}
        self._read = self._deleted = 0  # queues, deletions

    def of(self, topic: str) -> list[int]:
        """Return the ids of a topic's queues."""
        self._follow()
        return sorted(self._ids.get(topic, ()))

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""
        self._follow()
        return sorted(self._ids)

    def _follow(self) -> None:
        if (deleted := self._deletions()) != self._deleted:
            self._deleted, self._read = deleted, 0
            self._ids.clear()
        for key in islice(reversed(self._queues), len(self._queues) - self._read):
            self._ids.setdefault(key.topic, []).append(key.queue_id)
        self._read = len(self._queues)
