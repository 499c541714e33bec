"""How far consumer groups are behind, and for how long."""

from typing import Protocol

from appliance.broker.broker_tables import BrokerTables
from appliance.broker.tables.offsets import NOT_STORED
from storage_driver.interfaces import Reading
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

MOST_LOOKS = 200  # at messages that are not known yet, in one round
MOST_AGES = 4096


class LagSource(Protocol):
    """Where groups stand, and what there is to read."""

    @property
    def store(self) -> Reading: ...
    @property
    def tables(self) -> BrokerTables: ...


class Lag(NamedTuple):
    """How far a group is behind on one topic, and where it stands in the queues in which it is."""

    messages: int
    at: list[tuple[MessageQueue, int]]


class Ages:
    """When the messages that consumers stand at were stored: read once each, as a stuck one stays the same."""

    def __init__(self, store: Reading) -> None:
        self._store = store
        self._known: dict[tuple[MessageQueue, int], int] = {}
        self.looks = 0

    async def oldest_ms(self, places: list[tuple[MessageQueue, int]]) -> int | None:
        """Return when the oldest of these messages was stored, None when that is not known."""
        found = []
        for place in places:
            if place not in self._known and self.looks < MOST_LOOKS:
                self.looks += 1
                stored_ms = await self._store.stored_ms_at(*place)
                if stored_ms is not None:
                    self._remember(place, stored_ms)
            if place in self._known:
                found.append(self._known[place])
        return min(found, default=None)

    def _remember(self, place: tuple[MessageQueue, int], stored_ms: int) -> None:
        if len(self._known) >= MOST_AGES:
            self._known.clear()
        self._known[place] = stored_ms


def lag_of(seen: LagSource, group: str, topic: str) -> Lag:
    """Return what a group has not acknowledged of a topic; queues without an offset of the group do not count."""
    stored = seen.tables.offsets.of(topic, group)
    total, places = 0, []
    for queue_id, offset in stored.items():
        queue = MessageQueue(topic, queue_id)
        first = max(offset, seen.store.min_offset(queue))
        behind = seen.store.max_offset(queue) - first
        if offset != NOT_STORED and behind > 0:
            total += behind
            places.append((queue, first))
    return Lag(total, places)
