"""The subscriptions of a group. Source: RocketMQ 4.9.8 FilterAPI, RebalanceImpl."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from netstack.client.messages import ReceivedMessage
from netstack.client.text import check_topic, java_hash
from netstack.wire.bodies import SubscriptionData


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 expression over properties, for brokers that allow it."""

    expression: str


def subscription(topic: str, expression: str | Sql, version: int) -> SubscriptionData:
    """Return what a heartbeat says: tags as `a || b`, `*` for all, or SQL."""
    if isinstance(expression, Sql):
        return SubscriptionData(topic, expression.expression, (), (), version, "SQL92")
    text = expression.strip()
    if text in ("", "*"):
        return SubscriptionData(topic, "*", (), (), version)
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    return SubscriptionData(topic, text, tags, tuple(dict.fromkeys(java_hash(tag) for tag in tags)), version)


def keeps(data: SubscriptionData) -> Callable[[ReceivedMessage], bool] | None:
    """Return the client's own look at tags, since brokers compare hashes only; None when all are wanted."""
    if not data.tags_set or data.expression_type != "TAG":
        return None
    wanted = frozenset(data.tags_set)
    return lambda message: message.tags in wanted


class Subscriptions:
    """One expression per topic. Pulls carry a version that brokers have heard of already."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._table: dict[str, SubscriptionData] = {}
        self._announced: dict[str, int] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    @property
    def topics(self) -> Collection[str]:
        return list(self._table)

    def all(self) -> tuple[SubscriptionData, ...]:
        return tuple(self._table.values())

    def get(self, topic: str) -> SubscriptionData | None:
        return self._table.get(topic)

    def put(self, topic: str, expression: str | Sql) -> None:
        check_topic(topic, to_send=False)
        self._table[topic] = subscription(topic, expression, self._now_ms())

    def restore(self, topic: str, data: SubscriptionData | None) -> None:
        """Undo a put."""
        self.drop(topic)
        if data is not None:
            self._table[topic] = data

    def drop(self, topic: str) -> None:
        self._table.pop(topic, None)

    def touch(self, topic: str) -> None:
        """Give the subscription a new version, because the queues of this member have changed."""
        if topic in self._table:
            self._table[topic] = replace(self._table[topic], sub_version=self._now_ms())

    def announced(self) -> None:
        """Brokers have got a heartbeat with all versions."""
        self._announced = {topic: data.sub_version for topic, data in self._table.items()}

    def pull_version(self, topic: str) -> int:
        return self._announced.get(topic, 0)
