"""A slave's topics, groups, consumer offsets and delay levels, taken from its master every ten seconds.

Topics and groups become those of the master, offsets are added to what is there. Source: RocketMQ 4.9.7
SlaveSynchronize.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import trio

from appliance.broker.tables.groups import FIRST_GROUPS, Group, group_from_json
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.saving import TableFile, rows_of
from appliance.broker.tables.topics import MOST_QUEUES, PROBE_TOPIC, Topic, check_topic_name, topic_from_json
from appliance.replication.following import LOST, first_text
from netstack.errors import Refused
from netstack.wire.codes import RequestCode

log = logging.getLogger("appliance.replication")
EVERY_S = 10.0
AT_ONCE = 500  # rows, then others have their turn


class TableSource(Protocol):
    """Gives a master's tables. Raises what LOST holds."""

    async def table(self, code: int, name: str) -> Mapping[str, Any]: ...


class Topics(Protocol):
    """The slave's own topics. `put` raises Refused at the limit."""

    def get(self, name: str) -> Topic | None: ...
    def names(self) -> list[str]: ...
    def put(self, topic: Topic) -> int: ...
    def delete(self, name: str) -> int: ...
    def is_system(self, name: str) -> bool: ...


class Groups(Protocol):
    """The slave's own groups. `put` raises Refused at the limit."""

    def get(self, name: str) -> Group | None: ...
    def all(self) -> list[Group]: ...
    def put(self, group: Group) -> int: ...
    def delete(self, name: str) -> int: ...


class CopiedTables(NamedTuple):
    """What is kept like the master's; the delay levels' file is read at the start of a box that delivers them."""

    topics: Topics
    groups: Groups
    offsets: OffsetTable
    delays: TableFile


class TableSync:
    """Keeps tables like those of a master; `failure` is why the last round took not all of them."""

    def __init__(self, source: TableSource, tables: CopiedTables, *, every_s: float = EVERY_S) -> None:
        self._source, self._tables, self._every_s = source, tables, every_s
        self.failure, self.rounds = "", 0
        self._delays: Mapping[str, Any] = {}

    async def run(self) -> None:
        """Take the tables until cancelled."""
        while True:
            await self.take()
            await trio.sleep(self._every_s)

    async def take(self) -> None:
        """Take all tables once; those that cannot be had stay as they are."""
        failure = ""
        parts = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable", self._take_topics),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable", self._take_offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, "offsetTable", self._take_delays),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", self._take_groups),
        )
        for code, name, take in parts:
            try:
                await take(await self._source.table(code, name))
            except* (*LOST, Refused) as exc:
                failure = failure or f"request code {code}: {first_text(exc)}"
        if failure and failure != self.failure:
            log.warning("event=tables_not_copied reason=%r", failure)
        self.failure = failure
        self.rounds += 1

    async def _take_topics(self, table: Mapping[str, Any]) -> None:
        topics = self._tables.topics
        found = {name: _sane(topic) for name, topic in rows_of(table, topic_from_json, "topics of the master").items()}
        for name in set(topics.names()) - found.keys():
            if not topics.is_system(name) and name != PROBE_TOPIC:
                topics.delete(name)
        for name, topic in found.items():
            if check_topic_name(name) is None and name == topic.name and topics.get(name) != topic:
                topics.put(topic)

    async def _take_groups(self, table: Mapping[str, Any]) -> None:
        groups = self._tables.groups
        found = rows_of(table, group_from_json, "groups of the master")
        for group in groups.all():
            if group.name not in found and group.name not in FIRST_GROUPS:
                groups.delete(group.name)
        for name, group in found.items():
            if name == group.name and groups.get(name) != group:
                groups.put(group)

    async def _take_offsets(self, table: Mapping[str, Any]) -> None:
        offsets, count = self._tables.offsets, 0
        for name, queues in rows_of(table, _numbers, "offsets of the master").items():
            topic, _, group = name.partition("@")
            for queue_id, queue_offset in queues.items():
                if offsets.get(group, topic, queue_id) != queue_offset:
                    offsets.move(group, topic, queue_id, queue_offset)
                count += 1
                if not count % AT_ONCE:
                    await trio.lowlevel.checkpoint()

    async def _take_delays(self, table: Mapping[str, Any]) -> None:
        if table != self._delays:
            await self._tables.delays.write({"offsetTable": dict(table)})
            self._delays = table


def _numbers(row: Mapping[str, Any]) -> dict[int, int]:
    return {int(queue_id): int(queue_offset) for queue_id, queue_offset in row.items()}


def _sane(topic: Topic) -> Topic:
    """Return a topic whose numbers may be looped over, whatever the master says."""
    read, write = (min(max(count, 0), MOST_QUEUES) for count in (topic.read_queues, topic.write_queues))
    return topic._replace(read_queues=read, write_queues=write)
