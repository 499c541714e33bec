"""Locks for ordered consumption, for clients that ask for them.

In memory only: after a restart all queues are free, but in a group of boxes, where the next leader knows the owners. A
lock nobody renews for a minute is free again.
"""

from collections.abc import Callable, Iterable

from appliance.broker.tables.saving import SharedSave, TableFile, load_table
from storage_driver.record import MessageQueue

SAVE_S = 1.0
EXPIRY_S = 60.0
MOST_LOCKS = 100_000  # above: nothing new is granted until old locks expire; a client asks again


class QueueLocks:
    """(group, queue) -> owner and time of its last request. Source: RocketMQ 4.9.8 RebalanceLockManager."""

    def __init__(self, now_s: Callable[[], float], *, expiry_s: float = EXPIRY_S) -> None:
        self._now_s, self._expiry_s = now_s, expiry_s
        self._owners: dict[tuple[str, MessageQueue], tuple[str, float]] = {}
        self.changes = 0  # of owners; a lock that is renewed is none

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock the queues that are free, expired or the client's own; return them."""
        now_s, granted = self._now_s(), []
        for queue in queues:
            owner, renewed_s = self._owners.get((group, queue), (client_id, now_s))
            if (group, queue) not in self._owners and len(self._owners) >= MOST_LOCKS:
                continue  # what the client has already is renewed all the same
            if owner == client_id or now_s - renewed_s > self._expiry_s:
                self.changes += self.owner(group, queue) != client_id
                self._owners[group, queue] = (client_id, now_s)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the client's queues; those of others stay locked."""
        for queue in queues:
            if self.owner(group, queue) == client_id:
                del self._owners[group, queue]
                self.changes += 1

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return who holds a queue, expired or not."""
        held = self._owners.get((group, queue))
        return held[0] if held else None

    def owners(self) -> dict[str, dict[str, str]]:
        """Return group → topic@queue → client, as a file holds them."""
        found: dict[str, dict[str, str]] = {}
        for (group, queue), (client_id, _) in self._owners.items():
            found.setdefault(group, {})[f"{queue.topic}@{queue.queue_id}"] = client_id
        return found

    def drop_expired(self) -> None:
        """Forget locks nobody renews, so that the table does not grow."""
        oldest_s = self._now_s() - self._expiry_s
        before = len(self._owners)
        self._owners = {key: held for key, held in self._owners.items() if held[1] >= oldest_s}
        self.changes += before - len(self._owners)

    def __len__(self) -> int:
        return len(self._owners)


class SavedLocks:
    """Keeps the owners in a file, for a box that goes on with them: a lock counts from the moment it is loaded."""

    def __init__(self, locks: QueueLocks, file: TableFile) -> None:
        self._locks, self._file = locks, file
        content = load_table(file, "queue locks").get("owners")
        for group, rows in (content if isinstance(content, dict) else {}).items():
            for name, client_id in rows.items() if isinstance(rows, dict) else ():
                topic, _, number = name.rpartition("@")
                if number.isdecimal():
                    locks.lock(group, str(client_id), [MessageQueue(topic, int(number))])
        self._save = SharedSave("queue_locks", lambda: locks.changes, self._write)

    async def _write(self) -> None:
        await self._file.write({"owners": self._locks.owners()})

    @property
    def is_saved(self) -> bool:
        """Whether the file has all owners."""
        return self._save.is_done

    async def flush(self) -> None:
        """Save what is not in the file yet; who comes meanwhile shares the next save or its failure. Raises OSError."""
        await self._save.flush()

    async def run(self) -> None:
        """Save changed owners every second until cancelled."""
        await self._save.run(SAVE_S)
