"""Locks for ordered consumption, for clients that ask for them.

In memory only: after a restart all queues are free. A lock nobody renews for a minute is free again.
"""

from collections.abc import Callable, Iterable

from storage_driver.record import MessageQueue

EXPIRY_S = 60.0
MOST_LOCKS = 100_000  # above: nothing new is granted until old locks expire; a client asks again


class QueueLocks:
    """(group, queue) -> owner and time of its last request. Source: RocketMQ 4.9.8 RebalanceLockManager."""

    def __init__(self, now_s: Callable[[], float], *, expiry_s: float = EXPIRY_S) -> None:
        self._now_s, self._expiry_s = now_s, expiry_s
        self._owners: dict[tuple[str, MessageQueue], tuple[str, float]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock the queues that are free, expired or the client's own; return them."""
        now_s, granted = self._now_s(), []
        for queue in queues:
            owner, renewed_s = self._owners.get((group, queue), (client_id, now_s))
            if (group, queue) not in self._owners and len(self._owners) >= MOST_LOCKS:
                continue  # what the client has already is renewed all the same
            if owner == client_id or now_s - renewed_s > self._expiry_s:
                self._owners[group, queue] = (client_id, now_s)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the client's queues; those of others stay locked."""
        for queue in queues:
            if self.owner(group, queue) == client_id:
                del self._owners[group, queue]

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return who holds a queue, expired or not."""
        held = self._owners.get((group, queue))
        return held[0] if held else None

    def drop_expired(self) -> None:
        """Forget locks nobody renews, so that the table does not grow."""
        oldest_s = self._now_s() - self._expiry_s
        self._owners = {key: held for key, held in self._owners.items() if held[1] >= oldest_s}

    def __len__(self) -> int:
        return len(self._owners)
