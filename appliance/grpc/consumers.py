"""What a consumer may do, checked in Apache's order, and what its settings say. Source: RocketMQ 5.3 ClientActivity,
ReceiveMessageActivity, GrpcClientSettingsManager; 5.5.0 PopMessageProcessor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.broker.delay.levels import parse_levels
from appliance.broker.filter.kept_filters import Filtered, filtered
from appliance.broker.filter.subscriptions import (
    SQL92,
    TAG,
    Subscription,
    SubscriptionError,
    parse_subscription,
    record_predicate,
    tags_predicate,
)
from appliance.broker.rights import Need, Perm, ResourceKind, of_topic
from appliance.broker.tables.clients import ClientTable, Joining
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.retry_policy import RetryPolicy
from appliance.broker.tables.topics import Topic, TopicTable
from appliance.grpc.clients import ClientSession
from appliance.grpc.outcome import Rejection
from appliance.grpc.resources import group_of, topic_of
from netstack.grpc.v2.definition_pb2 import ClientType, Code, FilterType, Settings
from netstack.grpc.v2.definition_pb2 import RetryPolicy as Backoff

RECEIVE_BATCH, LONG_POLL_S = 32, 20
_TYPES = {ClientType.PUSH_CONSUMER: "CONSUME_PASSIVELY", ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY"}


class ConsumerRules(NamedTuple):
    """What consumers need of the configuration."""

    delay_levels: str
    readable: bool = True
    property_filter: bool = True


class Consumers:
    """Checks consumers and makes them known to the broker."""

    def __init__(
        self,
        rules: ConsumerRules,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        pace: CompilePace,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._rules, self._topics, self._groups, self._clients, self._now_ms = rules, topics, groups, clients, now_ms
        self._retries_ms, self._pace = parse_levels(rules.delay_levels), pace

    def join(self, session: ClientSession, settings: Settings) -> None:
        """Make a consumer known with its subscriptions. Raises Rejection, Refused."""
        group = group_of(settings.subscription.group)
        session.require(Need(ResourceKind.GROUP, group, Perm.SUB))
        entries = settings.subscription.subscriptions
        wanted = tuple(found for each in entries if (found := self._subscription(session, each)) is not None)
        self._groups.find(group, session.remote[0])
        joining = Joining(group, _TYPES[settings.client_type], "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted)
        member = session.member(self._now_ms())
        self._clients.consumer_joined(session, member, joining)

    def _subscription(self, session: ClientSession, entry: Any) -> Subscription | None:
        """Return what a consumer subscribes to, None where its SQL is refused. Raises Rejection.

        Then its receives from that topic are, as by Apache's proxy: clients whose settings are refused do not start,
        and Python's waits for ever.
        """
        topic = topic_of(entry.topic)
        session.require(of_topic(topic, Perm.SUB))
        try:
            return self._parsed(session, topic, entry.expression)
        except Rejection:
            if entry.expression.type == FilterType.SQL:
                return None
            raise

    def complete(self, settings: Settings) -> None:
        """Add to a consumer's settings what the box has to say."""
        group = self._groups.find(settings.subscription.group.name) or Group("")
        subscription, policy = settings.subscription, settings.backoff_policy
        subscription.fifo = group.consume_orderly
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = LONG_POLL_S
        policy.max_attempts = max_attempts(group)
        self._pause(policy, group.retry_policy)

    def _pause(self, policy: Backoff, asked: RetryPolicy | None) -> None:
        if asked is not None and not asked.pauses_ms:
            policy.exponential_backoff.initial.FromMilliseconds(asked.first_ms)
            policy.exponential_backoff.max.FromMilliseconds(asked.longest_ms)
            policy.exponential_backoff.multiplier = asked.times
            return
        del policy.customized_backoff.next[:]
        policy.customized_backoff.SetInParent()
        for delay_ms in self._retries_ms if asked is None else asked.pauses_ms:
            policy.customized_backoff.next.add().FromMilliseconds(delay_ms)

    def receiver(self, session: ClientSession, group_name: str, topic_name: str) -> tuple[Topic, Group]:
        """Return topic and group of one who may receive. Raises Rejection, Refused."""
        session.require(of_topic(topic_name, Perm.SUB))
        session.require(Need(ResourceKind.GROUP, group_name, Perm.SUB))
        topic = self._topics.get(topic_name)
        if topic is None:
            raise Rejection(Code.TOPIC_NOT_FOUND, f"topic[{topic_name}] not exist, apply first please!")
        if not (self._rules.readable and topic.readable):
            raise Rejection(Code.FORBIDDEN, f"the topic[{topic_name}] peeking message is forbidden")
        group = self._groups.find(group_name, session.remote[0])
        if group is None:
            raise Rejection(Code.CONSUMER_GROUP_NOT_FOUND, f"subscription group [{group_name}] does not exist")
        if not group.consume_enable or self._groups.forbidden(group_name, topic_name):
            raise Rejection(Code.FORBIDDEN, f"the consumer group[{group_name}] is forbidden for topic[{topic_name}]")
        return topic, group

    def filter(self, session: ClientSession, topic: str, expression: Any) -> Filtered:
        """Return the filter of a receive. Raises Rejection, Refused."""
        found = self._parsed(session, topic, expression)
        return filtered(found, (tags_predicate(found), record_predicate(found)), inline=True)

    def _parsed(self, session: ClientSession, topic: str, expression: Any) -> Subscription:
        kind = SQL92 if expression.type == FilterType.SQL else TAG
        self._pace.check(expression.expression, kind, session.remote[0])
        try:
            found = parse_subscription(topic, expression.expression, kind)
        except SubscriptionError as exc:
            raise Rejection(Code.ILLEGAL_FILTER_EXPRESSION, str(exc)) from exc
        if kind == SQL92 and not self._rules.property_filter:
            text = "broker.property_filter is off: only tags filter here"
            raise Rejection(Code.ILLEGAL_FILTER_EXPRESSION, text)
        return found


def max_attempts(group: Group) -> int:
    """Return how often a message is delivered to a group at most."""
    return max(group.retry_max_times, 0) + 1
