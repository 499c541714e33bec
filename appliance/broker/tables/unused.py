"""Deletes automatically created topics and groups that are unused; see `creations`."""

import logging
from collections.abc import Iterator

import trio

from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.creations import GROUP, TOPIC, Creations, Uses
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import RETRY_PREFIX, TopicTable
from storage_driver.interfaces import Queues
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

log = logging.getLogger("appliance.broker")
EVERY_S = 60.0


class UnusedTables(NamedTuple):
    """Where topics and groups are, and what tells that they are used."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable


class Unused:
    """Looks once a minute."""

    def __init__(self, tables: UnusedTables, store: Queues, creations: Creations) -> None:
        self._tables, self._store, self._creations = tables, store, creations

    async def run(self) -> None:
        """Delete what is unused, until cancelled."""
        while True:
            await trio.sleep(EVERY_S)
            try:
                self.delete_now()
            except OSError as exc:  # whether a topic has messages cannot be read
                log.error("event=unused_not_looked_at reason=%r", str(exc))

    def delete_now(self) -> list[str]:
        """Delete what is unused now; return the names."""
        if not len(self._creations):
            return []
        tables, subscribed = self._tables, self._subscribed()
        made = self._creations
        consumed = {each for row in tables.offsets.table() for each in _names_of(row) if each in made}
        uses = {
            TOPIC: Uses(
                lambda name: (TOPIC, name) in consumed,
                lambda name: name in subscribed or self._has_messages(name),
                tables.topics.delete,
            ),
            GROUP: Uses(
                lambda name: (GROUP, name) in consumed,
                lambda name: tables.clients.consumers(name) is not None,
                self._delete_group,
            ),
        }
        deleted = self._creations.expire(uses)
        if deleted:
            log.info("event=unused_deleted count=%d names=%r", len(deleted), ", ".join(deleted[:10]))
        return deleted

    def _subscribed(self) -> set[str]:
        clients = self._tables.clients
        groups = filter(None, map(clients.consumers, clients.consumer_groups()))
        return {topic for group in groups for topic in group.subscriptions}

    def _has_messages(self, topic: str) -> bool:
        """Tell whether there is a message that has not expired."""
        queues = (MessageQueue(topic, queue_id) for queue_id in self._store.queues(topic))
        return any(self._store.min_offset(queue) < self._store.max_offset(queue) for queue in queues)

    def _delete_group(self, name: str) -> None:
        self._tables.groups.delete(name)
        if not self._has_messages(f"{RETRY_PREFIX}{name}"):
            self._tables.topics.delete(f"{RETRY_PREFIX}{name}")


def _names_of(row: str) -> Iterator[tuple[str, str]]:
    """Yield topic and group of a row of offsets: looked at once, not for each name that may be unused."""
    topic, _, group = row.partition("@")
    yield TOPIC, topic
    yield GROUP, group
