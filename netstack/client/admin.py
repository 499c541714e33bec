"""Administration of any RocketMQ 4.9 or 5.x cluster: topics, groups, progress, offsets, messages.

Answers of several brokers are joined; a broker that does not answer is an error, never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from netstack.client.consume.queue_reader import QueueReader
from netstack.client.errors import BadAnswer, BrokerRefused, ClientError, NoRoute, reading
from netstack.client.instance import Instance
from netstack.client.messages import MessageQueue, ReceivedMessage
from netstack.client.records import decode_records
from netstack.wire.bodies_admin import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerTable,
    SubscriptionGroup,
    SubscriptionGroupTable,
    TopicOffset,
    TopicStats,
)
from netstack.wire.bodies_route import ClusterInfo, KvTable, RouteData, TopicConfig, TopicConfigTable, TopicList
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import FIRST_5X_VERSION, VERSION, ExtFields, RemotingCommand
from netstack.wire.headers import (
    ConsumerGroupHeader,
    OffsetReply,
    QueryMessageHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from netstack.wire.headers_admin import (
    ConsumeStatsHeader,
    CreateTopicHeader,
    DeleteGroupHeader,
    TopicHeader,
)
from netstack.wire.headers_namesrv import DeleteTopicInNamesrvHeader

ASK_S = 10.0
MASTER = "0"
END_OF_QUEUE = -1
RETRY, DEAD = "%RETRY%", "%DLQ%"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broker:
    """One master of the cluster."""

    name: str
    cluster: str
    address: str


class Admin:
    """Queries and changes over an open `Instance`. Every method raises ClientError with server, code and text."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def brokers(self) -> list[Broker]:
        """Return the masters, by name."""
        answer = await self._instance.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = _read(ClusterInfo.from_server, answer, self._instance.name_server).broker_addr_table
        found = [
            Broker(name, row.cluster, row.broker_addrs[0])
            for name, row in sorted(table.items())
            if 0 in row.broker_addrs
        ]
        if not found:
            raise ClientError("the NameServer knows no broker with a master; is the broker registered there?")
        return found

    # --- topics

    async def topic_names(self) -> list[str]:
        """Return what the NameServer knows, retry and dead letter topics included."""
        answer = await self._instance.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(_read(TopicList.from_server, answer, self._instance.name_server).topic_list)

    async def topics(self) -> dict[str, dict[str, TopicConfig]]:
        """Return topic -> broker -> its configuration."""
        found: dict[str, dict[str, TopicConfig]] = {}
        for broker in await self.brokers():
            answer = await self._ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
            for name, config in _read(TopicConfigTable.from_server, answer, broker.address).topic_config_table.items():
                found.setdefault(name, {})[broker.name] = config
        return found

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return queue -> first and last offset and time of the newest message. Raises NoRoute."""
        found: dict[MessageQueue, TopicOffset] = {}
        for broker in await self._brokers_of(topic):
            answer = await self._ask(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic))
            found |= _read(TopicStats.from_server, answer, broker.address).offset_table
        return found

    async def put_topic(
        self, topic: str, *, queues: int = 8, perm: int = 6, order: bool = False, attributes: str = ""
    ) -> None:
        """Create a topic, or change it, on every master; `attributes` are changes, `+key=value,-key`."""
        await self.put_topic_config(TopicConfig(topic, queues, queues, perm, order=order), attributes)

    async def put_topic_config(self, config: TopicConfig, attributes: str = "", *, at: str | None = None) -> None:
        """As `put_topic`, with all settings; of attributes only the changes count; `at`: on one broker alone."""
        header = CreateTopicHeader(
            config.topic_name,
            "TBW102",
            config.read_queue_count,
            config.write_queue_count,
            config.perm,
            config.topic_filter_type,
            config.topic_sys_flag,
            config.order,
            attributes or None,
        )
        for broker in await self.brokers():
            if at is None or broker.name == at:
                await self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages, on every master and in the NameServers."""
        for broker in await self.brokers():
            await self._ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))
        header = DeleteTopicInNamesrvHeader(topic)
        for address in self._instance.name_servers:
            _good(await self._instance.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header), address)

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets on a topic."""
        found: set[str] = set()
        for broker in await self._brokers_of(topic):
            answer = await self._ask(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic))
            found.update(_read(GroupList.from_server, answer, broker.address).group_list)
        return sorted(found)

    # --- groups

    async def groups(self) -> dict[str, dict[str, SubscriptionGroup]]:
        """Return group -> broker -> its settings."""
        found: dict[str, dict[str, SubscriptionGroup]] = {}
        for broker in await self.brokers():
            answer = await self._ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            table = _read(SubscriptionGroupTable.from_server, answer, broker.address).subscription_group_table
            for name, group in table.items():
                found.setdefault(name, {})[broker.name] = group
        return found

    async def put_group(self, group: SubscriptionGroup, *, at: str | None = None) -> None:
        """Create a consumer group, or change it, on every master; `at`: on one broker alone.

        Its attributes stay: a request says their changes, and brokers of 5.x refuse what is none.
        """
        body = replace(group, attributes=None).to_bytes()
        for broker in await self.brokers():
            if at is None or broker.name == at:
                await self._ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    async def delete_group(self, group: str) -> None:
        """Delete a group with its offsets, and its retry and dead letter topics, on every master."""
        for broker in await self.brokers():
            header = DeleteGroupHeader(group, remove_offset=True, clean_offset=True)
            await self._ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            for topic in (RETRY + group, DEAD + group):
                await self._ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))

    async def progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
        """Return queue -> its end and the group's offset; without a topic for all topics with offsets of the group."""
        found: dict[MessageQueue, OffsetWrapper] = {}
        for broker in await self.brokers():
            answer = await self._ask(broker, RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(group, topic))
            found |= _read(ConsumeStats.from_server, answer, broker.address).offset_table
        return found

    async def members(self, group: str) -> ConsumerConnection | None:
        """Return members and subscriptions of a group; None when no member is connected."""
        joined: ConsumerConnection | None = None
        for broker in await self.brokers():
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            answer = await self._instance.ask(broker.address, code, ConsumerGroupHeader(group), timeout_s=ASK_S)
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            seen = _read(ConsumerConnection.from_server, answer, broker.address)
            known = {each.client_id for each in joined.connection_set} if joined else set()
            more = tuple(each for each in seen.connection_set if each.client_id not in known)
            joined = seen if joined is None else _with_members(joined, more)
        return joined

    async def producers(self) -> ProducerTable:
        """Return the producers by group; brokers before 5.x cannot be asked and give none."""
        found: dict[str, dict[str, object]] = {}
        tables: dict[str, tuple[object, ...]] = {}
        for broker in await self.brokers():
            answer = await self._instance.ask(broker.address, RequestCode.GET_ALL_PRODUCER_INFO, timeout_s=ASK_S)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                continue
            for group, rows in _read(ProducerTable.from_server, answer, broker.address).producers.items():
                found.setdefault(group, {}).update({row.client_id: row for row in rows})
        tables = {group: tuple(rows.values()) for group, rows in found.items()}
        return ProducerTable(tables)  # type: ignore[arg-type]

    # --- offsets

    async def reset(self, group: str, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        """Set a group to a time, END_OF_QUEUE for the end; connected consumers continue there. Return new offsets.

        Asked as by a tool of 5.x: a time after the last message is the end. A box gives tools of 4.9 the nearest one.
        """
        found: dict[MessageQueue, int] = {}
        for broker in await self._brokers_of(topic):
            header = ResetOffsetHeader(topic, group, time_ms, is_force=True)
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await self._instance.ask(broker.address, code, header, timeout_s=ASK_S, version=FIRST_5X_VERSION)
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                _good(answer, broker.address)
            offsets = await self._offsets_at(broker, topic, time_ms)
            if answer.code != ResponseCode.SUCCESS:  # nobody is connected, or the group has no offsets yet
                await self.store_offsets(group, offsets)
            found |= offsets
        return found

    async def store_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets; a connected consumer overwrites them with its own."""
        addresses = {broker.name: broker for broker in await self.brokers()}
        for queue, queue_offset in offsets.items():
            header = UpdateConsumerOffsetHeader(group, queue.topic, queue.queue_id, queue_offset)
            await self._ask(addresses[queue.broker_name], RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def offsets_at(self, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        """Return the first offset of each queue not before a time; END_OF_QUEUE: its end."""
        found: dict[MessageQueue, int] = {}
        for broker in await self._brokers_of(topic):
            found |= await self._offsets_at(broker, topic, time_ms)
        return found

    async def _offsets_at(self, broker: Broker, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        route = await self._instance.route(topic)
        found = {}
        for queue in [each for each in route.subscribe if each.broker_name == broker.name]:
            if time_ms == END_OF_QUEUE:
                asked: ExtFields = QueueHeader(topic, queue.queue_id)
                answer = await self._ask(broker, RequestCode.GET_MAX_OFFSET, asked)
            else:
                asked = SearchOffsetHeader(topic, queue.queue_id, time_ms)
                search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
                answer = await self._ask(broker, search, asked, version=FIRST_5X_VERSION)
            with reading(broker.address, "administration"):
                found[queue] = OffsetReply.from_ext(answer.ext).offset
        return found

    # --- messages

    async def find(
        self, topic: str, key: str, *, unique: bool = False, most: int = 64, since_ms: int = 0, until_ms: int = 0
    ) -> list[ReceivedMessage]:
        """Return the messages with a key, or with a message id when unique; oldest first."""
        header = QueryMessageHeader(topic, key, most, since_ms, until_ms or (1 << 62), unique)
        found: list[ReceivedMessage] = []
        for broker in await self._brokers_of(topic):
            answer = await self._instance.ask(broker.address, RequestCode.QUERY_MESSAGE, header, timeout_s=ASK_S)
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                found += _records(answer, broker)
        # the index holds hashes: what else has this one is left out
        found = [each for each in found if each.topic == topic and _has(each, key, unique)]
        return sorted(found, key=lambda each: (each.stored_ms, each.log_offset))

    async def since(self, topic: str, since_ms: int, until_ms: int = 0, most: int = 64) -> list[ReceivedMessage]:
        """Return the first messages stored since a time, over all queues; until_ms 0 means no end."""
        starts = await self.offsets_at(topic, since_ms)
        found: list[ReceivedMessage] = []
        reader = QueueReader(self._instance)
        for queue, start in starts.items():
            at, end = start, (await reader.ends(queue))[1]
            while at < end and at < start + most:
                pulled = await reader.pull(queue, at)
                found += pulled.messages
                at = max(pulled.next_offset, at + 1)
        found = [each for each in found if each.stored_ms >= since_ms and (not until_ms or each.stored_ms <= until_ms)]
        return sorted(found, key=lambda each: (each.stored_ms, each.log_offset))[:most]

    async def at_log_offset(self, broker: Broker, log_offset: int) -> ReceivedMessage:
        """Return the message at a log offset of a broker. Raises BrokerRefused."""
        answer = await self._ask(broker, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(log_offset))
        found = _records(answer, broker)
        if not found:
            raise BadAnswer(broker.address, "question for a message", "there is none in it")
        return found[0]

    # --- brokers

    async def runtime(self, broker: Broker) -> dict[str, str]:
        """Return a broker's numbers by Apache's names."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(_read(KvTable.from_server, answer, broker.address).table)

    async def route(self, topic: str) -> RouteData:
        """Return the route of a topic as clients get it. Raises NoRoute."""
        return await self._instance.fetch_route_data(topic)

    async def _brokers_of(self, topic: str) -> list[Broker]:
        route = await self._instance.fetch_route_data(topic)
        found = [
            Broker(row.broker_name, row.cluster, row.broker_addrs[0]) for row in route.broker_datas if row.broker_addrs
        ]
        if not found:
            raise NoRoute(topic)
        return found

    async def _ask(
        self,
        broker: Broker,
        code: int,
        header: ExtFields | None = None,
        body: bytes = b"",
        *,
        version: int = VERSION,
    ) -> RemotingCommand:
        return await self._instance.ask_ok(broker.address, code, header, body, timeout_s=ASK_S, version=version)


def _good(answer: RemotingCommand, place: str) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerRefused(place, answer.code, answer.remark, "administration")
    return answer


def _with_members(joined: ConsumerConnection, more: Iterable[object]) -> ConsumerConnection:
    return ConsumerConnection(
        (*joined.connection_set, *more),  # type: ignore[arg-type]
        joined.subscription_table,
        joined.consume_type,
        joined.message_model,
        joined.consume_from_where,
    )


def _read(parse: Callable[[bytes], T], answer: RemotingCommand, server: str) -> T:
    """Return what an answer says. Raises BrokerRefused, BadAnswer."""
    with reading(server, "administration"):
        return parse(_good(answer, server).body)


def _records(answer: RemotingCommand, broker: Broker) -> list[ReceivedMessage]:
    return _read(lambda body: list(decode_records(body, broker.name)), answer, broker.address)


def _has(message: ReceivedMessage, key: str, unique: bool) -> bool:
    return message.message_id == key if unique else key in message.keys.split()
