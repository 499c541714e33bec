"""Administration of topics: create, change, delete, list, queue offsets.

A change is answered once the table is on disk. Source: RocketMQ 4.9.8 AdminBrokerProcessor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import trio

from appliance.broker.acknowledging import ACKNOWLEDGE, NO_GROUP
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.admin.topic_attributes import changed, changes_in
from appliance.broker.pop.retry_topics import TopicKind, retry_topic
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.saving import WholeTable
from appliance.broker.tables.topics import MOST_QUEUES, PROBE_TOPIC, SYSTEM_TOPICS, Topic, TopicTable, check_topic_name
from appliance.requests import Answer, AsyncReply, DeferredReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.bodies_admin import GroupList, QueueTimeSpan, TimeSpans, TopicConfigList, TopicOffset, TopicStats
from netstack.wire.bodies_route import DataVersion, TopicConfig, TopicConfigTable, TopicList
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers_admin import CreateTopicHeader, TopicGroupHeader, TopicHeader
from netstack.wire.json_body import MessageQueue as NamedQueue
from storage_driver.log.marks import reached
from storage_driver.record import MessageQueue
from storage_driver.store import MessageStore


@dataclass(frozen=True, slots=True)
class TopicAdminTables:
    """State that the administration of topics reads and changes."""

    topics: TopicTable
    offsets: OffsetTable
    clients: ClientTable
    arrivals: Arrivals
    stats: BrokerCounters


class TopicAdmin:
    """Handles the administration of topics."""

    def __init__(
        self, tables: TopicAdminTables, store: MessageStore, *, broker: str, address: str, now_ms: Callable[[], int]
    ) -> None:
        self._tables, self._topics, self._store = tables, tables.topics, store
        self._broker, self._address, self._now_ms = broker, address, now_ms
        self._whole = WholeTable()

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        c = RequestCode
        return {
            c.UPDATE_AND_CREATE_TOPIC: self.handle_update,
            c.UPDATE_AND_CREATE_TOPIC_LIST: self.handle_update_list,
            c.DELETE_TOPIC_IN_BROKER: self.handle_delete,
            c.GET_ALL_TOPIC_CONFIG: self.handle_all,
            c.GET_TOPIC_CONFIG: self.handle_one,
            c.GET_TOPIC_STATS_INFO: self.handle_stats,
            c.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.handle_system,
            c.QUERY_TOPIC_CONSUME_BY_WHO: self.handle_consumed_by,
            c.QUERY_CONSUME_TIME_SPAN: self.handle_time_span,
            c.CLEAN_UNUSED_TOPIC: self.handle_clean,
        }

    def handle_update(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_AND_CREATE_TOPIC (17): queue counts may go up and down; messages beyond stay where they are."""
        header = CreateTopicHeader.from_ext(request.ext)
        self._check_name(header.topic)
        topic = Topic(
            header.topic,
            header.read_queue_count,
            header.write_queue_count,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag,
            header.order,
            self._attributes(header.topic, changes_in(header.attributes or "")),
        )
        return self._held(request, self._put(topic))

    def handle_update_list(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_AND_CREATE_TOPIC_LIST (18) of 5.x: all or none."""
        configs = TopicConfigList.from_bytes(request.body).topic_config_list
        topics = [_topic_of(config, self._attributes(config.topic_name, config.attributes or {})) for config in configs]
        for topic in topics:
            self._check_name(topic.name)
            _check_counts(topic)
        self._topics.check_room(topic.name for topic in topics)
        marks = [self._put(topic) for topic in topics]
        return self._held(request, max(marks)) if marks else Reply(request.reply())

    def _put(self, topic: Topic) -> int:
        _check_counts(topic)
        mark = self._topics.put(topic)
        self._tables.arrivals.release_topic(topic.name)
        return mark

    def _check_name(self, name: str) -> None:
        wrong = check_topic_name(name)
        if wrong:
            raise Refused(ResponseCode.SYSTEM_ERROR, wrong)
        if self._topics.is_system(name) or name == PROBE_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic.")

    def _attributes(self, name: str, changes: Mapping[str, str]) -> dict[str, str]:
        known = self._topics.get(name)
        found = changed(known.attributes if known else {}, changes)
        if f"+{ACKNOWLEDGE}" in changes and self._store.policies is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"attribute {ACKNOWLEDGE}={found[ACKNOWLEDGE]}: {NO_GROUP}")
        return found

    def handle_delete(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """DELETE_TOPIC_IN_BROKER (215): a topic that does not exist is deleted already."""
        name = TopicHeader.from_ext(request.ext).topic
        self._check_name(name)
        return AsyncReply(partial(self._delete, request, name))

    async def _delete(self, request: RemotingCommand, name: str) -> RemotingCommand:
        names = [name, *self._retries_of(name)]
        mark = max(self._topics.delete(each) for each in names)
        for each in names:
            self._tables.stats.forget_topic(each)
            self._tables.arrivals.release_topic(each)
        failure = await self._saved(mark)
        if failure is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, failure)
        for each in names:
            if await self._drop_queues(each):
                self._tables.offsets.drop_topic(each)
        try:  # an old offset would keep groups from the first messages of a topic of this name
            await self._tables.offsets.flush()
        except OSError as exc:
            text = f"the offsets of topic[{name}] are not deleted on disk: {exc}; delete it again"
            return request.reply(ResponseCode.SYSTEM_ERROR, text)
        return request.reply()

    async def _drop_queues(self, name: str) -> bool:
        """Drop the queues of a deleted topic, unless somebody sent to it meanwhile and was told that it is stored.

        Tell whether they are gone.
        """
        if self._topics.get(name) is None:
            with trio.CancelScope(shield=True):  # the tool may hang up: no half of a topic stays
                return await self._store.delete_topic(name, unless=lambda: self._topics.get(name) is not None)
        return False

    def _retries_of(self, name: str) -> list[str]:
        """Return the topics in which messages of this one come again by POP. Source: RocketMQ 5.5.0 deleteTopic."""
        kinds, groups = (TopicKind.RETRY, TopicKind.RETRY_V2), self._tables.offsets.groups_of(name)
        names = (retry_topic(group, name, kind) for group in groups for kind in kinds)
        return [each for each in names if self._topics.get(each) is not None]

    async def _saved(self, mark: int) -> str | None:
        """Wait until the table is on disk; return why it is not."""
        return await reached(self._topics.when_saved, mark)

    def _held(self, request: RemotingCommand, mark: int) -> DeferredReply:
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._topics.when_saved, mark, request.reply(), failed)

    def handle_all(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_ALL_TOPIC_CONFIG (21)."""
        return Reply(request.reply(body=self._whole.body(self._topics.version, self._encoded)))

    def _encoded(self) -> bytes:
        version = DataVersion(self._topics.version.counter, self._topics.version.timestamp_ms)
        configs = {topic.name: config_of(topic) for topic in self._topics.all() if topic.name != PROBE_TOPIC}
        return TopicConfigTable(configs, version).to_bytes()

    def handle_one(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_TOPIC_CONFIG (351) of 5.x: its tools ask after nearly every other question."""
        topic = self._existing(TopicHeader.from_ext(request.ext).topic, "No topic in this broker. topic: {}")
        return Reply(request.reply(body=config_of(topic).to_bytes()))

    def _existing(self, name: str, refusal: str = "topic[{}] not exist") -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, refusal.format(name))
        return topic

    def handle_stats(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_TOPIC_STATS_INFO (202): first, next and last of each queue."""
        topic = self._existing(TopicHeader.from_ext(request.ext).topic)
        return AsyncReply(partial(self._stats, request, topic))

    async def _stats(self, request: RemotingCommand, topic: Topic) -> RemotingCommand:
        table = {}
        for queue_id in range(topic.queue_count):
            queue = MessageQueue(topic.name, queue_id)
            low, high = self._store.min_offset(queue), self._store.max_offset(queue)
            last_ms = await self._store.stored_ms_at(queue, high - 1) if high > low else None
            table[NamedQueue(topic.name, self._broker, queue_id)] = TopicOffset(low, high, last_ms or 0)
        return request.reply(body=TopicStats(table, self._tables.stats.put_tps(topic.name)).to_bytes())

    def handle_system(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        names = tuple(sorted(self._topics.system_names()))
        return Reply(request.reply(body=TopicList(names, self._address).to_bytes()))

    def handle_consumed_by(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that subscribe to it now, and groups with offsets on it."""
        topic = TopicHeader.from_ext(request.ext).topic
        clients = self._tables.clients
        online = [
            name
            for name in clients.consumer_groups()
            if (group := clients.consumers(name)) and topic in group.subscriptions
        ]
        names = dict.fromkeys((*online, *self._tables.offsets.groups_of(topic)))
        return Reply(request.reply(body=GroupList(tuple(names)).to_bytes()))

    def handle_time_span(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_CONSUME_TIME_SPAN (303): first and last message of each queue in time, and where a group stands."""
        header = TopicGroupHeader.from_ext(request.ext)
        return AsyncReply(partial(self._time_spans, request, self._existing(header.topic or ""), header.group))

    async def _time_spans(self, request: RemotingCommand, topic: Topic, group: str) -> RemotingCommand:
        spans = [await self._time_span(topic.name, queue_id, group) for queue_id in range(topic.write_queues)]
        return request.reply(body=TimeSpans(tuple(spans)).to_bytes())

    async def _time_span(self, topic: str, queue_id: int, group: str) -> QueueTimeSpan:
        queue, at = MessageQueue(topic, queue_id), self._store.stored_ms_at
        low, high = self._store.min_offset(queue), self._store.max_offset(queue)
        first_ms, last_ms = await at(queue, low), await at(queue, high - 1)
        offset = self._tables.offsets.get(group, topic, queue_id)
        consumed_ms = await at(queue, offset - 1) if offset > 0 else first_ms
        next_ms = await at(queue, max(offset, low)) if offset < high else None
        delay_ms = 0 if next_ms is None else self._now_ms() - next_ms
        named = NamedQueue(topic, self._broker, queue_id)
        return QueueTimeSpan(named, first_ms or 0, last_ms or 0, consumed_ms or 0, delay_ms)

    def handle_clean(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """CLEAN_UNUSED_TOPIC (316): drop the queues of topics that have no record."""
        return AsyncReply(partial(self._clean, request))

    async def _clean(self, request: RemotingCommand) -> RemotingCommand:
        for name in self._store.topics():
            if name not in SYSTEM_TOPICS and not self._topics.is_system(name):
                await self._drop_queues(name)
        return request.reply()


def config_of(topic: Topic) -> TopicConfig:
    """Return a topic as tools read it."""
    return TopicConfig(
        topic.name,
        topic.read_queues,
        topic.write_queues,
        topic.perm,
        topic.filter_type,
        topic.sys_flag,
        topic.order,
        dict(topic.attributes),
    )


def _topic_of(config: TopicConfig, attributes: Mapping[str, str]) -> Topic:
    topic = Topic(
        config.topic_name,
        config.read_queue_count,
        config.write_queue_count,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
    )
    return topic._replace(order=config.order, attributes=attributes)


def _check_counts(topic: Topic) -> None:
    for name, count in (("readQueueNums", topic.read_queues), ("writeQueueNums", topic.write_queues)):
        if not 0 <= count <= MOST_QUEUES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name} is {count}, allowed 0..{MOST_QUEUES}")
