"""Which topics and groups a request needs, and what it wants to do with them.

Source: RocketMQ 4.9.8 PlainAccessValidator.parse, but batches (320) and replies (324, 325) are checked as single sends
are, and the group of a retry topic is taken from the topic's name.
"""

from collections.abc import Callable
from enum import Enum, IntFlag

from netstack.bodies import HeartbeatData
from netstack.codes import RequestCode
from netstack.command import RemotingCommand
from storage_driver.named_tuple import NamedTuple

RETRY, REPLY_TOPIC = "%RETRY%", "_REPLY_TOPIC"


class Perm(IntFlag):
    """What an account may do with a topic or a group; nothing is DENY."""

    PUB = 4
    SUB = 8


class Kind(Enum):
    TOPIC = "topic"
    GROUP = "group"


class Need(NamedTuple):
    """One permission a request takes."""

    kind: Kind
    name: str
    perm: Perm


def needs(request: RemotingCommand) -> list[Need]:
    """Return what an account must be granted for a request; nothing for those whose signature is enough."""
    read = _READERS.get(request.code)
    return read(request) if read else []


def of_topic(name: str, perm: Perm) -> Need:
    """Return the need of a topic; a retry topic belongs to its group, whatever is done with it."""
    if name.startswith(RETRY):
        return Need(Kind.GROUP, name[len(RETRY) :], Perm.SUB)
    return Need(Kind.TOPIC, name, perm)


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
            found.append(Need(Kind.GROUP, request.ext.get(group, ""), Perm.SUB))
        return found

    return read


def _heartbeat(request: RemotingCommand) -> list[Need]:
    found = []
    for consumer in HeartbeatData.from_bytes(request.body).consumer_data_set:
        found.append(Need(Kind.GROUP, consumer.group_name, Perm.SUB))
        found += [of_topic(subscription.topic, Perm.SUB) for subscription in consumer.subscription_data_set]
    return found


def _unregister(request: RemotingCommand) -> list[Need]:
    group = request.ext.get("consumerGroup")
    return [Need(Kind.GROUP, group, Perm.SUB)] if group else []


def _any_topic(request: RemotingCommand) -> list[Need]:
    """A message by its id may lie in any topic, so the account must be let into those that are not listed."""
    return [Need(Kind.TOPIC, "*", Perm.SUB)]


_C = RequestCode
_READERS: dict[int, Callable[[RemotingCommand], list[Need]]] = {
    _C.SEND_MESSAGE: _sends,
    _C.SEND_MESSAGE_V2: _sends,
    _C.SEND_BATCH_MESSAGE: _sends,
    _C.SEND_REPLY_MESSAGE: _replies,
    _C.SEND_REPLY_MESSAGE_V2: _replies,
    _C.RECALL_MESSAGE: _recalls,
    _C.PULL_MESSAGE: _subscribes("topic", "consumerGroup"),
    _C.LITE_PULL_MESSAGE: _subscribes("topic", "consumerGroup"),
    _C.CONSUMER_SEND_MSG_BACK: _subscribes(group="group"),
    _C.QUERY_MESSAGE: _subscribes("topic"),
    _C.VIEW_MESSAGE_BY_ID: _any_topic,
    _C.HEART_BEAT: _heartbeat,
    _C.UNREGISTER_CLIENT: _unregister,
    _C.GET_CONSUMER_LIST_BY_GROUP: _subscribes(group="consumerGroup"),
    _C.UPDATE_CONSUMER_OFFSET: _subscribes("topic", "consumerGroup"),
}
