"""Administration of groups: their records, and who is connected.

A change is answered once the table is on disk. Source: RocketMQ 4.9.8 AdminBrokerProcessor, ConsumerManageProcessor.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from appliance.broker.admin.query import subscription_body
from appliance.broker.tables.clients import ClientTable, Member
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.retry_policy import RetryPolicy, retry_policy_from_json
from appliance.broker.tables.saving import WholeTable
from appliance.broker.tables.topics import check_topic_name
from appliance.requests import Answer, DeferredReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel
from netstack.wire.bodies_admin import (
    ClientConnection,
    ConsumerConnection,
    GroupForbidden,
    GroupSubscription,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    SubscriptionGroup,
    SubscriptionGroupList,
    SubscriptionGroupTable,
    shown_language,
)
from netstack.wire.bodies_route import DataVersion, TopicList
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import ConsumerGroupHeader
from netstack.wire.headers_admin import (
    DeleteGroupHeader,
    GroupForbiddenHeader,
    GroupHeader,
    ProducerGroupHeader,
    TopicGroupHeader,
)

MOST_RETRY_QUEUES = 1024  # clients share them out at each rebalance
MOST_ATTRIBUTES, MOST_ATTRIBUTE = 32, 256  # of a group; characters of a name and of a value


class GroupAdmin:
    """Handles the administration of groups and their connections."""

    def __init__(self, groups: GroupTable, offsets: OffsetTable, clients: ClientTable, *, address: str) -> None:
        self._groups, self._offsets, self._clients, self._address = groups, offsets, clients, address
        self._whole = WholeTable()

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        c = RequestCode
        return {
            c.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.handle_update,
            c.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.handle_update_list,
            c.DELETE_SUBSCRIPTIONGROUP: self.handle_delete,
            c.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.handle_all,
            c.GET_SUBSCRIPTIONGROUP_CONFIG: self.handle_one,
            c.UPDATE_AND_GET_GROUP_FORBIDDEN: self.handle_forbidden,
            c.GET_CONSUMER_CONNECTION_LIST: self.handle_consumers,
            c.GET_PRODUCER_CONNECTION_LIST: self.handle_producers,
            c.GET_ALL_PRODUCER_INFO: self.handle_all_producers,
            c.QUERY_TOPICS_BY_CONSUMER: self.handle_topics,
            c.QUERY_SUBSCRIPTION_BY_CONSUMER: self.handle_subscription,
        }

    # records

    def handle_update(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        return self._put(request, [SubscriptionGroup.from_bytes(request.body)])

    def handle_update_list(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225) of 5.x."""
        return self._put(request, SubscriptionGroupList.from_bytes(request.body).group_config_list)

    def _put(self, request: RemotingCommand, configs: Iterable[SubscriptionGroup]) -> Answer:
        groups = dict[str, Group]()
        for config in configs:  # one may be in it twice
            group = _group_of(config)
            before = groups.get(group.name) or self._groups.get(group.name)
            groups[group.name] = group._replace(attributes=_changed(before, group.attributes))
        for group in groups.values():
            wrong = check_topic_name(group.name)
            if wrong:
                raise Refused(ResponseCode.SYSTEM_ERROR, wrong.replace("topic", "group"))
            if not 0 <= group.retry_queues <= MOST_RETRY_QUEUES:
                text = f"retryQueueNums is {group.retry_queues}, allowed 0..{MOST_RETRY_QUEUES}"
                raise Refused(ResponseCode.SYSTEM_ERROR, text)
        self._groups.check_room(groups)
        marks = [self._groups.put(group) for group in groups.values()]
        return self._held(request, max(marks)) if marks else Reply(request.reply())

    def handle_delete(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """DELETE_SUBSCRIPTIONGROUP (207): a group that does not exist is deleted already."""
        header = DeleteGroupHeader.from_ext(request.ext)
        mark = self._groups.delete(header.group_name)
        if header.remove_offset or header.clean_offset:
            self._offsets.drop_group(header.group_name)
        return self._held(request, mark)

    def _held(self, request: RemotingCommand, mark: int) -> DeferredReply:
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._groups.when_saved, mark, request.reply(), failed)

    def handle_all(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        return Reply(request.reply(body=self._whole.body(self._groups.version, self._encoded)))

    def _encoded(self) -> bytes:
        version = DataVersion(self._groups.version.counter, self._groups.version.timestamp_ms)
        table = {group.name: _config_of(group) for group in self._groups.all()}
        return SubscriptionGroupTable(table, version).to_bytes()

    def handle_one(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352) of 5.x."""
        name = GroupHeader.from_ext(request.ext).group
        group = self._groups.get(name)
        if group is None:
            remark = f"No group in this broker. group: {name}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return Reply(request.reply(body=_config_of(group).to_bytes()))

    def handle_forbidden(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_AND_GET_GROUP_FORBIDDEN (353) of 5.x: get or set whether a group may read a topic."""
        header = GroupForbiddenHeader.from_ext(request.ext)
        if self._groups.get(header.group) is None:
            remark = f"No group in this broker. group: {header.group}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        mark = 0
        if header.readable is not None:
            wrong = check_topic_name(header.topic)
            if wrong:
                raise Refused(ResponseCode.SYSTEM_ERROR, wrong)
            mark = self._groups.forbid(header.group, header.topic, read=not header.readable)
        readable = not self._groups.forbidden(header.group, header.topic)
        body = GroupForbidden(header.group, header.topic, readable).to_bytes()
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._groups.when_saved, mark, request.reply(body=body), failed)

    # connections

    def handle_consumers(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_CONSUMER_CONNECTION_LIST (203): members and subscriptions of a group, 206 when nobody is there."""
        name = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        group = self._clients.consumers(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        found = ConsumerConnection(
            _connections(group.members.items()),
            {topic: subscription_body(item) for topic, item in group.subscriptions.items()},
            ConsumeType(group.consume_type),
            MessageModel(group.message_model),
            ConsumeFromWhere(group.consume_from),
        )
        return Reply(request.reply(body=found.to_bytes()))

    def handle_producers(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_PRODUCER_CONNECTION_LIST (204)."""
        name = ProducerGroupHeader.from_ext(request.ext).producer_group
        members = self._clients.producers(name)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return Reply(request.reply(body=ProducerConnection(_connections(members.items())).to_bytes()))

    def handle_all_producers(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_ALL_PRODUCER_INFO (328)."""
        table = {
            group: tuple(
                ProducerInfo(m.client_id, connected.remote[0], shown_language(m.language), m.version, m.seen_ms)
                for connected, m in self._clients.producers(group).items()
            )
            for group in self._clients.producer_groups()
        }
        return Reply(request.reply(body=ProducerTable(table).to_bytes()))

    def handle_topics(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_TOPICS_BY_CONSUMER (343) of 5.x: the topics a group has offsets on."""
        topics = tuple(self._offsets.topics_of(GroupHeader.from_ext(request.ext).group))
        return Reply(request.reply(body=TopicList(topics, self._address).to_bytes()))

    def handle_subscription(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345) of 5.x."""
        header = TopicGroupHeader.from_ext(request.ext)
        group = self._clients.consumers(header.group)
        found = group.subscriptions.get(header.topic or "") if group else None
        subscription = subscription_body(found) if found else None
        return Reply(request.reply(body=GroupSubscription(header.group, header.topic or "", subscription).to_bytes()))


def _connections(members: Iterable[tuple[RequestPeer, Member]]) -> tuple[ClientConnection, ...]:
    return tuple(
        ClientConnection(
            member.client_id, f"{peer.remote[0]}:{peer.remote[1]}", shown_language(member.language), member.version
        )
        for peer, member in members
    )


def _config_of(group: Group) -> SubscriptionGroup:
    return SubscriptionGroup(
        group.name,
        group.consume_enable,
        group.consume_from_min_enable,
        group.consume_broadcast_enable,
        group.retry_queues,
        group.retry_max_times,
        group.broker_id,
        group.which_broker_when_slow,
        group.notify_members,
        consume_message_orderly=group.consume_orderly,
        consume_timeout_minute=group.consume_timeout_minutes,
        group_sys_flag=group.sys_flag,
        group_retry_policy=None if group.retry_policy is None else group.retry_policy.to_json(),
        attributes=dict(group.attributes),
    )


def _group_of(config: SubscriptionGroup) -> Group:
    return Group(
        config.group_name,
        consume_enable=config.consume_enable,
        consume_from_min_enable=config.consume_from_min_enable,
        consume_broadcast_enable=config.consume_broadcast_enable,
        retry_queues=config.retry_queue_count,
        retry_max_times=config.retry_max_times,
        broker_id=config.broker_id,
        which_broker_when_slow=config.which_broker_when_consume_slowly,
        notify_members=config.notify_consumer_ids_changed_enable,
        consume_orderly=bool(config.consume_message_orderly),
        sys_flag=config.group_sys_flag or 0,
        consume_timeout_minutes=15 if config.consume_timeout_minute is None else config.consume_timeout_minute,
        attributes=dict(config.attributes or {}),
        retry_policy=_policy_of(config),
    )


def _policy_of(config: SubscriptionGroup) -> RetryPolicy | None:
    try:
        return retry_policy_from_json(config.group_retry_policy)
    except ValueError as exc:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc


def _changed(before: Group | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a group after changes from `+name`, `name` or `-name` to a value. Raises Refused."""
    found = dict(before.attributes) if before is not None else {}
    for name, value in changes.items():
        if name.startswith("-"):
            found.pop(name[1:], None)
        else:
            found[name.removeprefix("+")] = value
    longest = max(map(len, (*found, *found.values())), default=0)
    if len(found) > MOST_ATTRIBUTES or longest > MOST_ATTRIBUTE:
        text = f"a group has at most {MOST_ATTRIBUTES} attributes of {MOST_ATTRIBUTE} characters"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)
    return found
