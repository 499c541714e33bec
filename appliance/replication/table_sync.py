"""A slave's topics, groups, consumer offsets, delay levels and timers, taken from its master every ten seconds.

Topics and groups become those of the master, offsets are added to what is there. What says that messages are done with
(offsets, delay levels, timers) counts once this log has what the master's had then: a slave that becomes the broker
must not take for delivered what it never got. Source: RocketMQ 4.9.7 SlaveSynchronize.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import trio

from appliance.broker.delay.timer_index import IndexState
from appliance.broker.tables.groups import FIRST_GROUPS, Group, group_from_json
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.saving import TableFile, rows_of
from appliance.broker.tables.topics import MOST_QUEUES, PROBE_TOPIC, Topic, check_topic_name, topic_from_json
from appliance.replication.following import LOST, first_text
from netstack.errors import Refused
from netstack.wire.codes import RequestCode
from netstack.wire.replication import TimerCheckpoint

log = logging.getLogger("appliance.replication")
EVERY_S = 10.0
TOPICS, GROUPS = "topicConfigTable", "subscriptionGroupTable"
AT_ONCE = 500  # rows, then others have their turn
NUMBERS = range(-(1 << 63), 1 << 63)


class TableSource(Protocol):
    """Gives a master's tables. Raises what LOST holds."""

    async def table(self, code: int, name: str) -> Mapping[str, Any]: ...
    async def timers(self) -> TimerCheckpoint | None: ...
    async def reached(self) -> bool:
        """Return whether this log has, after a while, all that the master's has now."""


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
    timers: TableFile


class TableSync:
    """Keeps tables like those of a master; `failure` is why the last round took not all of them."""

    def __init__(self, source: TableSource, tables: CopiedTables, *, every_s: float = EVERY_S) -> None:
        self._source, self._tables, self._every_s = source, tables, every_s
        self.failure, self.rounds = "", 0
        self._delays: Mapping[str, Any] = {}
        self._timers: TimerCheckpoint | None = None

    async def run(self) -> None:
        """Take the tables until cancelled."""
        while True:
            await self.take()
            await trio.sleep(self._every_s)

    async def take(self) -> None:
        """Take all tables once; those that cannot be had stay as they are."""
        failure = ""
        for take in (self._take_topics, self._take_groups, self._take_progress):
            try:
                await take()
            except* (*LOST, Refused) as exc:
                failure = failure or first_text(exc)
        if failure and failure != self.failure:
            log.warning("event=tables_not_copied reason=%r", failure)
        self.failure = failure
        self.rounds += 1

    async def _take_progress(self) -> None:
        """Take what is done with, if this log gets as far as the master's was."""
        offsets = await self._source.table(RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable")
        delays = await self._source.table(RequestCode.GET_ALL_DELAY_OFFSET, "offsetTable")
        timers = await self._source.timers()
        if not await self._source.reached():
            return  # those of the last time stay; they are lower
        await self._take_offsets(offsets)
        if delays != self._delays:
            rows = rows_of(delays, _number, "delay levels of the master")
            await self._tables.delays.write({"offsetTable": rows})
            self._delays = delays
        if timers is not None and timers != self._timers:
            state = IndexState(0, timers.indexed_to, timers.delivered_ms)
            await self._tables.timers.write(state.to_json())
            self._timers = timers

    async def _take_topics(self) -> None:
        topics, table = self._tables.topics, await self._source.table(RequestCode.GET_ALL_TOPIC_CONFIG, TOPICS)
        found = {name: _sane(topic) for name, topic in rows_of(table, topic_from_json, "topics of the master").items()}
        for name in set(topics.names()) - found.keys():
            if not topics.is_system(name) and name != PROBE_TOPIC:
                topics.delete(name)
        for name, topic in found.items():
            if check_topic_name(name) is None and name == topic.name and topics.get(name) != topic:
                topics.put(topic)

    async def _take_groups(self) -> None:
        table = await self._source.table(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GROUPS)
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


def _numbers(row: Mapping[str, Any]) -> dict[int, int]:
    return {_number(queue_id): _number(queue_offset) for queue_id, queue_offset in row.items()}


def _number(value: Any) -> int:
    number = int(value)
    if number not in NUMBERS:
        raise ValueError("it is beyond 64 bits")
    return number


def _sane(topic: Topic) -> Topic:
    """Return a topic whose numbers may be looped over, whatever the master says."""
    read, write = (min(max(count, 0), MOST_QUEUES) for count in (topic.read_queues, topic.write_queues))
    return topic._replace(read_queues=read, write_queues=write)
