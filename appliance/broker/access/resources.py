"""Which topics and groups a request needs, and what it wants to do with them.

Source: RocketMQ 4.9.8 PlainAccessValidator.parse, but batches (320) and replies (324, 325) are checked as single sends
are, the group of a retry topic is taken from the topic's name, and offsets, locks and assignments are the group's.
Transactions and replies are checked by their handlers, which alone know whose they are.
"""

from collections.abc import Callable

from appliance.broker.access.request_table import ROWS, Needs
from appliance.broker.consume.heartbeat import read_lock
from appliance.broker.pop.retry_topics import first_topic
from appliance.broker.rights import ANY, REPLY_TOPIC, Need, Perm, ResourceKind, of_topic
from netstack.wire.bodies import HeartbeatData, QueryAssignment
from netstack.wire.bodies_pop import ACKS_FROM_PEER, BatchAcks
from netstack.wire.command import RemotingCommand


def needs(request: RemotingCommand) -> list[Need]:
    """Return what an account must be granted for a request; nothing for those whose signature is enough."""
    row = ROWS.get(request.code)
    return _READERS[row.needs](request) if row else []


def _sends(request: RemotingCommand) -> list[Need]:
    """The topic is looked for as the handler does, whatever the code: the short name counts when both are there."""
    if request.send is not None:
        return [of_topic(request.send.topic, Perm.PUB)]
    ext = request.ext
    return [of_topic(ext["b"] if "b" in ext else ext.get("topic", ""), Perm.PUB)]


def _replies(request: RemotingCommand) -> list[Need]:
    """A reply is stored too: in a reply topic by whoever has a key, elsewhere by those who may send there."""
    return [need for need in _sends(request) if not need.name.endswith(REPLY_TOPIC)]


def _recalls(request: RemotingCommand) -> list[Need]:
    return [of_topic(request.ext.get("topic", ""), Perm.PUB)]


def _subscribes(topic: str = "", group: str = "") -> Callable[[RemotingCommand], list[Need]]:
    def read(request: RemotingCommand) -> list[Need]:
        found = [of_topic(request.ext.get(topic, ""), Perm.SUB)] if topic else []
        if group:
            found.append(Need(ResourceKind.GROUP, request.ext.get(group, ""), Perm.SUB))
        return found

    return read


def _heartbeat(request: RemotingCommand) -> list[Need]:
    found = []
    for consumer in HeartbeatData.from_bytes(request.body).consumer_data_set:
        found.append(Need(ResourceKind.GROUP, consumer.group_name, Perm.SUB))
        found += [of_topic(subscription.topic, Perm.SUB) for subscription in consumer.subscription_data_set]
    return found


def _unregister(request: RemotingCommand) -> list[Need]:
    group = request.ext.get("consumerGroup")
    return [Need(ResourceKind.GROUP, group, Perm.SUB)] if group else []


def _locks(request: RemotingCommand) -> list[Need]:
    asked = read_lock(request.body)
    topics = dict.fromkeys(queue.topic for queue in asked.queues)
    return [Need(ResourceKind.GROUP, asked.group, Perm.SUB), *(of_topic(topic, Perm.SUB) for topic in topics)]


def _assignment(request: RemotingCommand) -> list[Need]:
    asked = QueryAssignment.from_bytes(request.body)
    return [of_topic(asked.topic, Perm.SUB), Need(ResourceKind.GROUP, asked.consumer_group, Perm.SUB)]


def _pops(request: RemotingCommand) -> list[Need]:
    return _of_pop(request.ext.get("consumerGroup", ""), request.ext.get("topic", ""))


def _pop_batch(request: RemotingCommand) -> list[Need]:
    """Each topic and group once: a hostile body may name thousands."""
    read = BatchAcks.from_bytes
    acks = dict.fromkeys((ack.consumer_group, ack.topic) for ack in read(request.body, ACKS_FROM_PEER).acks)
    return [need for group, topic in acks for need in _of_pop(group, topic)]


def _of_pop(group: str, topic: str) -> list[Need]:
    """A retry topic of POP names group and topic, and is neither."""
    return [of_topic(first_topic(group, topic), Perm.SUB), Need(ResourceKind.GROUP, group, Perm.SUB)]


def _looks(request: RemotingCommand) -> list[Need]:
    """Where a queue begins and ends may be known to those who send to it and to those who read it."""
    return [of_topic(request.ext.get("topic", ""), ANY)]


def _any_topic(request: RemotingCommand) -> list[Need]:
    """A message by its id may be in any topic, so the account must be let into those that are not listed."""
    return [Need(ResourceKind.TOPIC, "*", Perm.SUB)]


_READERS: dict[Needs, Callable[[RemotingCommand], list[Need]]] = {
    Needs.SIGNATURE: lambda request: [],
    Needs.SEND: _sends,
    Needs.REPLY: _replies,
    Needs.RECALL: _recalls,
    Needs.PULL: _subscribes("topic", "consumerGroup"),
    Needs.GROUP_OF_RETRY: _subscribes(group="group"),
    Needs.GROUP: _subscribes(group="consumerGroup"),
    Needs.TOPIC: _subscribes("topic"),
    Needs.ANY_TOPIC: _any_topic,
    Needs.HEARTBEAT: _heartbeat,
    Needs.LEAVE: _unregister,
    Needs.LOCK: _locks,
    Needs.ASSIGNMENT: _assignment,
    Needs.EDGES: _looks,
    Needs.POP: _pops,
    Needs.POP_BATCH: _pop_batch,
}
