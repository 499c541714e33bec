"""The box's own broker as its NameServer sees it: the broker's topic table, asked at every question."""

from collections.abc import Callable

from appliance.broker.tables.topics import READ, RETRY_PREFIX, WRITE, Topic, TopicTable

from .route_table import BrokerQueues, OwnBroker, TopicTableVersion


def own_broker(
    topics: TopicTable,
    permission: int = READ | WRITE,
    *,
    addresses: Callable[[str], dict[int, str]] | None = None,
) -> OwnBroker:
    """Return the own broker; one that may not both be read and written lends its permission to all its topics.

    addresses: where others have the same log; gives address by broker id, from the own one as a client reaches it.
    """
    name = topics.rules.broker

    def row_of(topic: Topic) -> BrokerQueues:
        perm = topic.perm if permission == READ | WRITE else permission
        return BrokerQueues(name, topic.read_queues, topic.write_queues, perm, topic.sys_flag)

    def row(topic_name: str) -> BrokerQueues | None:
        topic = topics.get(topic_name)
        if topic is None and topic_name.startswith(RETRY_PREFIX):
            # A 5.x consumer asks before its first heartbeat, which makes the topic, and again only 30 s later.
            topic = Topic(topic_name, 1, 1, READ | WRITE)
        return None if topic is None else row_of(topic)

    def rows() -> list[tuple[str, BrokerQueues]]:
        return [(topic.name, row_of(topic)) for topic in topics.all()]

    def version() -> TopicTableVersion:
        return TopicTableVersion(topics.version.counter, topics.version.timestamp_ms)

    return OwnBroker(name, topics.rules.cluster, row, rows, version, *((addresses,) if addresses else ()))
