"""What all requests of POP are checked for, in Apache's order. Source: RocketMQ 5.5.0 PopMessageProcessor."""

from typing import Protocol

from appliance.broker.filter.kept_filters import Filtered, filtered
from appliance.broker.filter.subscriptions import (
    SubscriptionError,
    parse_subscription,
    record_predicate,
    tags_predicate,
)
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.topics import FAQ, Topic, TopicTable
from appliance.requests import RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

NO_FILTER = Filtered(("", ""), 0, (None, None))


class PopRules(NamedTuple):
    """Configuration of POP; `address` is what refusals call the broker, `broker` its name in handles."""

    address: str
    broker: str
    readable: bool = True
    property_filter: bool = True


class Asked(Protocol):
    """What every request of POP names."""

    @property
    def consumer_group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...


class PopChecks:
    """Checks of one broker."""

    def __init__(self, rules: PopRules, topics: TopicTable, groups: GroupTable, pace: CompilePace) -> None:
        self.rules, self._topics, self._groups, self._pace = rules, topics, groups, pace

    def readable(self, what: str) -> None:
        """Raise Refused when the broker answers no readers."""
        if not self.rules.readable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{self.rules.address}] {what} message is forbidden")

    def receiver(self, asked: Asked, peer: RequestPeer) -> Topic:
        """Return the topic of one who may receive from it. Raises Refused."""
        topic = self._topic(asked)
        if not topic.readable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] peeking message is forbidden")
        if asked.queue_id >= topic.read_queues:
            raise Refused(ResponseCode.INVALID_PARAMETER, _illegal_queue(asked, topic, peer))
        name = asked.consumer_group
        group = self._groups.find(name, peer.remote[0])
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist, {FAQ}"
            )
        if not group.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        if self._groups.forbidden(name, topic.name):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the consumer group[{name}] is forbidden for topic[{topic.name}]"
            )
        return topic

    def acknowledger(self, asked: Asked, peer: RequestPeer) -> Topic:
        """Return the topic of one who names a queue of it. Raises Refused."""
        self.readable("pop")
        topic = self._topic(asked)
        if not 0 <= asked.queue_id < topic.read_queues:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(asked, topic, peer))
        return topic

    def filter(self, topic: str, text: str | None, kind: str | None, address: str) -> Filtered:
        """Return the filter of a request from an address; none accepts everything. Raises Refused."""
        if not text:
            return NO_FILTER
        self._pace.check(text, kind, address)
        try:
            subscription = parse_subscription(topic, text, kind)
            if not subscription.by_tags and not self.rules.property_filter:
                text = f"The broker does not support consumer to filter message by {subscription.kind}"
                raise Refused(ResponseCode.SYSTEM_ERROR, text)
            accepts = tags_predicate(subscription), record_predicate(subscription)
            return filtered(subscription, accepts, inline=True)
        except SubscriptionError as exc:
            text = f"parse the consumer's subscription failed: {exc}"
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text) from exc

    def _topic(self, asked: Asked) -> Topic:
        topic = self._topics.get(asked.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist, apply first please! {FAQ}")
        return topic


def _illegal_queue(asked: Asked, topic: Topic, peer: RequestPeer) -> str:
    return (
        f"queueId[{asked.queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums:[{topic.read_queues}] "
        f"consumer:[{peer.remote[0]}:{peer.remote[1]}]"
    )
