"""QueryRoute and QueryAssignment: the queues of a topic, at the address that the client used to reach this box.

In a group where each box serves clients, those that were given several addresses are told all of them, in the same
order: so one that has lost its box goes on at the next at once, over the channel that it has.

Source: RocketMQ 5.3 RouteActivity; Apache's names the address of its registration, which behind NAT nobody reaches.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

from appliance.broker.rights import ANY, Perm, ResourceKind, of_topic
from appliance.broker.rights import Need as Grant
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.topics import READ, WRITE, Topic, TopicTable
from appliance.grpc.clients import ClientSession
from appliance.grpc.outcome import Rejection, ok
from appliance.grpc.parts import here
from appliance.grpc.resources import group_of, topic_of
from appliance.grpc.sent_messages import OF_TYPE
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    Permission,
)
from netstack.grpc.v2.service_pb2 import QueryAssignmentResponse, QueryRouteResponse

MOST_ENDPOINTS = 64
MOST_NAMED, MOST_NAMED_BYTES = 8, 512  # addresses that are told again with each queue; a group has four boxes
_ALL_TYPES = tuple(kind for name, kind in OF_TYPE.items() if name != "PRIORITY")  # as Apache's MIXED
_PERMISSIONS = {
    READ | WRITE: Permission.READ_WRITE,
    READ: Permission.READ,
    WRITE: Permission.WRITE,
    0: Permission.NONE,
}


class RouteRules(NamedTuple):
    """The broker's name, what it may do at all (`broker.permission`).

    leader_host: which host is told instead of the one that was reached, "" where that is right. each_serves: whether a
    client may be told all addresses that it was given.
    """

    broker: str
    permission: int = READ | WRITE
    leader_host: Callable[[str], str] = here
    each_serves: Callable[[], bool] = bool  # no


class Routes:
    """Answers where queues are."""

    def __init__(self, rules: RouteRules, topics: TopicTable, groups: GroupTable) -> None:
        self._rules, self._topics, self._groups = rules, topics, groups

    def query_route(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Return the queues of a topic. Raises Rejection."""
        topic = self._topic(session, request, ANY)
        broker = self._broker(call, request.endpoints)
        return QueryRouteResponse(status=ok(), message_queues=self._queues(topic, request.topic, broker))

    def query_assignment(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Return what a push consumer receives from: all queues as one, those of an ordered group one by one."""
        topic, group_name = self._topic(session, request, Perm.SUB), group_of(request.group)
        session.require(Grant(ResourceKind.GROUP, group_name, Perm.SUB))
        permission = self._permission(topic)
        if not permission & READ or topic.read_queues <= 0:
            raise Rejection(Code.FORBIDDEN, "no readable queue")
        group, broker = self._groups.find(group_name), self._broker(call, request.endpoints)
        numbers = range(topic.read_queues) if group is not None and group.consume_orderly else (-1,)
        allowed = _PERMISSIONS[permission]
        made = [MessageQueue(topic=request.topic, id=each, permission=allowed, broker=broker) for each in numbers]
        return QueryAssignmentResponse(status=ok(), assignments=[Assignment(message_queue=each) for each in made])

    def _topic(self, session: ClientSession, request: Any, perm: Perm) -> Topic:
        name = topic_of(request.topic)
        session.require(of_topic(name, perm))
        topic = self._topics.get(name)
        if topic is None:
            text = f"No topic route info in name server for the topic: {name}; create it on the box first"
            raise Rejection(Code.TOPIC_NOT_FOUND, text)
        return topic

    def _permission(self, topic: Topic) -> int:
        perm = topic.perm if self._rules.permission == READ | WRITE else self._rules.permission
        return perm & (READ | WRITE)

    def _queues(self, topic: Topic, resource: Any, broker: Broker) -> list[MessageQueue]:
        """Return the queues as clients see them: those that can only be read, only be written, then both."""
        perm, declared = self._permission(topic), topic.attributes.get("message.type", "MIXED")
        readable = topic.read_queues if perm & READ else 0
        writable = topic.write_queues if perm & WRITE else 0
        both = min(readable, writable)
        counts = [(readable - both, Permission.READ), (writable - both, Permission.WRITE)]
        counts.append((both, Permission.READ_WRITE))
        if not perm:
            counts.append((max(1, topic.queue_count), Permission.NONE))
        types = (OF_TYPE[declared],) if declared in OF_TYPE else _ALL_TYPES
        allowed = [each for count, each in counts for _ in range(count)]
        return [
            MessageQueue(topic=resource, id=number, permission=each, broker=broker, accept_message_types=types)
            for number, each in enumerate(allowed)
        ]

    def _broker(self, call: Call, asked: Endpoints) -> Broker:
        found = reached(call, asked)
        if leader := self._rules.leader_host(call.peer.local[0]):
            found = endpoints(leader, found.addresses[0].port)
        elif are_several(asked) and self._rules.each_serves():
            found = asked
        return Broker(name=self._rules.broker, id=0, endpoints=found)


def are_several(asked: Endpoints) -> bool:
    """Return whether a client was given several addresses, so few and short that it can be told them."""
    several = asked.scheme in (AddressScheme.IPv4, AddressScheme.IPv6) and 1 < len(asked.addresses) <= MOST_NAMED
    return several and asked.ByteSize() <= MOST_NAMED_BYTES


def endpoints(host: str, port: int) -> Endpoints:
    """Return one address as clients take it."""
    try:
        scheme = AddressScheme.IPv4 if ip_address(host).version == 4 else AddressScheme.IPv6
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])


def reached(call: Call, asked: Endpoints) -> Endpoints:
    """Return the address that a client used: the only one it was given, else the one its connection ends at."""
    if len(asked.addresses) == 1 and asked.scheme:
        return asked
    host, port = call.peer.local
    if len(asked.addresses) <= MOST_ENDPOINTS:
        known = [each for each in asked.addresses if each.host == host]
        port = known[0].port if known else port
    return endpoints(host, port)
