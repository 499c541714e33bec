"""Locks for ordered consumption, for clients that ask for them.

In memory only: after a restart all queues are free, but in a group of boxes, where the next leader knows the owners. A
lock nobody renews for a minute is free again.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import trio

from appliance.broker.tables.saving import RowSave, SharedSave, TableFile, load_table
from appliance.broker.tables.shares import Shares
from storage_driver.record import MessageQueue

SAVE_S = 1.0
EXPIRY_S = 60.0
SECTION = "locks"  # of the file: [group, topic, queue] -> client
MOST_LOCKS = 100_000  # above: nothing new is granted until old locks expire; a client asks again
ALWAYS_ALLOWED = 1000  # locks of one address while there is room at all


LockKey = tuple[str, MessageQueue]


class QueueLocks:
    """(group, queue) -> owner and time of its last request. Source: RocketMQ 4.9.8 RebalanceLockManager."""

    def __init__(self, now_s: Callable[[], float], *, expiry_s: float = EXPIRY_S) -> None:
        self._now_s, self._expiry_s = now_s, expiry_s
        self._owners: dict[LockKey, tuple[str, float, str]] = {}  # with the address that counts it
        self._held = Shares(ALWAYS_ALLOWED)
        self.watch: Callable[[LockKey], None] | None = None  # is told which lock changed its owner; renewing is none

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], address: str = "") -> list[MessageQueue]:
        """Lock the queues that are free, expired or the client's own; return them.

        `address`: who asks, by whose locks a new one is bounded; empty: this machine.
        """
        now_s, granted = self._now_s(), []
        for queue in queues:
            key = (group, queue)
            owner, renewed_s, counted = self._owners.get(key, (client_id, now_s, address))
            if key not in self._owners and not self._held.room(address, MOST_LOCKS - len(self._owners)):
                continue  # what the client has already is renewed all the same
            if owner == client_id or now_s - renewed_s > self._expiry_s:
                if self.owner(group, queue) != client_id:
                    self._drop(key)
                    self._held.change(address, 1)
                    counted = address
                    self._note(key)
                self._owners[key] = (client_id, now_s, counted)
                granted.append(queue)
        return granted

    def _drop(self, key: LockKey) -> None:
        dropped = self._owners.pop(key, None)
        if dropped is not None:
            self._held.change(dropped[2], -1)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the client's queues; those of others stay locked."""
        for queue in queues:
            if self.owner(group, queue) == client_id:
                self._drop((group, queue))
                self._note((group, queue))

    def _note(self, key: LockKey) -> None:
        if self.watch is not None:
            self.watch(key)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return who holds a queue, expired or not."""
        held = self._owners.get((group, queue))
        return held[0] if held else None

    def owners(self) -> list[tuple[LockKey, str]]:
        """Return all locks with who holds them."""
        return [(key, held[0]) for key, held in self._owners.items()]

    def drop_expired(self) -> None:
        """Forget locks nobody renews, so that the table does not grow."""
        oldest_s = self._now_s() - self._expiry_s
        expired = [key for key, held in self._owners.items() if held[1] < oldest_s]
        for key in expired:
            self._drop(key)
            self._note(key)

    def __len__(self) -> int:
        return len(self._owners)


class SavedLocks:
    """Keeps the owners in a file, for a box that goes on with them: a lock counts from the moment it is loaded."""

    def __init__(self, locks: QueueLocks, file: TableFile) -> None:
        self._locks = locks
        content = load_table(file, "queue locks").get(SECTION)
        for name, client_id in (content if isinstance(content, dict) else {}).items():
            if (key := _key_of(name)) is not None:
                locks.lock(key[0], str(client_id), [key[1]])
        self._unsaved: RowSave[LockKey] = RowSave(file, SECTION, row=self._row, whole=self._encoded)
        self._save = SharedSave("queue_locks", self._unsaved.write)
        locks.watch = self._note

    def _note(self, key: LockKey) -> None:
        self._unsaved.note(key)
        self._save.changed()

    def _row(self, key: LockKey) -> tuple[str, object]:
        return _row_of(key), self._locks.owner(*key)

    async def _encoded(self) -> bytes:
        return await trio.to_thread.run_sync(_encoded, self._locks.owners())

    def has_saved(self, group: str, queues: Iterable[MessageQueue]) -> bool:
        """Whether the file has the owners of all these queues."""
        return self._save.is_done or not any(self._unsaved.has((group, queue)) for queue in queues)

    @property
    def is_saved(self) -> bool:
        """Whether the file has all owners."""
        return self._save.is_done

    async def flush(self) -> None:
        """Save what is not in the file yet; who comes meanwhile shares the next save or its failure. Raises OSError."""
        await self._save.flush()

    async def run(self) -> None:
        """Save changed owners within a second until cancelled."""
        await self._save.run(SAVE_S)


def _row_of(key: LockKey) -> str:
    group, queue = key
    return json.dumps([group, queue.topic, queue.queue_id])


def _key_of(row: str) -> LockKey | None:
    try:
        group, topic, number = json.loads(row)
        return str(group), MessageQueue(str(topic), int(number))
    except (ValueError, TypeError):
        return None


def _encoded(owners: Sequence[tuple[LockKey, str]]) -> bytes:
    return json.dumps({SECTION: {_row_of(key): client_id for key, client_id in owners}}).encode()
