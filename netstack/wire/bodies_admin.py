"""Bodies of administration. Source: RocketMQ 4.9.8 protocol.body and protocol.admin."""

from dataclasses import field
from typing import Annotated, Any

from netstack.lazy import value_class
from netstack.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from netstack.wire.bodies_route import DataVersion, TopicConfig
from netstack.wire.command import LANGUAGES
from netstack.wire.json_body import NO_QUEUE, Body, MessageQueue


@value_class
class SubscriptionGroup(Body):
    """200 and to 352."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: Annotated[int, "retryQueueNums"] = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None  # 5.x, and all below
    consume_timeout_minute: int | None = None
    group_sys_flag: int | None = None
    group_retry_policy: dict[str, Any] | None = None
    subscription_data_set: tuple[dict[str, Any], ...] | None = None
    attributes: dict[str, str] | None = None


@value_class
class SubscriptionGroupTable(Body):
    """To 201."""

    subscription_group_table: dict[str, SubscriptionGroup] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] | None = None  # 5.x


@value_class
class SubscriptionGroupList(Body):
    """225 of 5.x."""

    group_config_list: tuple[SubscriptionGroup, ...] = ()


@value_class
class TopicConfigList(Body):
    """18 of 5.x."""

    topic_config_list: tuple[TopicConfig, ...] = ()


@value_class
class DelayOffsets(Body):
    """To 45, by delay level."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


@value_class
class OffsetWrapper(Body):
    broker_offset: int = 0
    consumer_offset: int = 0
    last_ms: Annotated[int, "lastTimestamp"] = 0
    pull_offset: int | None = None  # 5.x


@value_class
class ConsumeStats(Body):
    """To 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@value_class
class AllConsumeStats(Body):
    """To 317: a list of one-entry maps, group to its statistics per topic."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str = ""
    total_diff: int = 0


@value_class
class TopicOffset(Body):
    min_offset: int = 0
    max_offset: int = 0
    last_update_ms: Annotated[int, "lastUpdateTimestamp"] = 0


@value_class
class TopicStats(Body):
    """To 202."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None  # 5.x


@value_class
class ClientConnection(Body):
    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


@value_class
class ConsumerConnection(Body):
    """To 203."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@value_class
class ProducerConnection(Body):
    """To 204."""

    connection_set: tuple[ClientConnection, ...] = ()


def shown_language(name: str) -> str:
    """Return the name as tools of 4.9 know it: what came later is OTHER, or they fail to read the list."""
    return name if name in LANGUAGES[:13] else "OTHER"


@value_class
class ProducerInfo(Body):
    client_id: str = ""
    remote_ip: Annotated[str, "remoteIP"] = ""
    language: str = "JAVA"
    version: int = 0
    last_update_ms: Annotated[int, "lastUpdateTimestamp"] = 0


@value_class
class ProducerTable(Body):
    """To 328, by group."""

    producers: Annotated[dict[str, tuple[ProducerInfo, ...]], "data"] = field(default_factory=dict)


@value_class
class GroupList(Body):
    """To 300."""

    group_list: tuple[str, ...] = ()


@value_class
class QueueTimeSpan(Body):
    message_queue: MessageQueue = NO_QUEUE
    min_ms: Annotated[int, "minTimeStamp"] = 0
    max_ms: Annotated[int, "maxTimeStamp"] = 0
    consume_ms: Annotated[int, "consumeTimeStamp"] = 0
    delay_ms: Annotated[int, "delayTime"] = 0


@value_class
class TimeSpans(Body):
    """To 303."""

    spans: Annotated[tuple[QueueTimeSpan, ...], "consumeTimeSpanSet"] = ()


@value_class
class CorrectionOffsets(Body):
    """To 308, by queue id."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@value_class
class StatsSpan(Body):
    total: Annotated[int, "sum"] = 0
    tps: float = 0.0
    per_call: Annotated[float, "avgpt"] = 0.0


@value_class
class BrokerStats(Body):
    """To 315."""

    minute: Annotated[StatsSpan, "statsMinute"] = StatsSpan()
    hour: Annotated[StatsSpan, "statsHour"] = StatsSpan()
    day: Annotated[StatsSpan, "statsDay"] = StatsSpan()


@value_class
class QueueEntry(Body):
    log_offset: Annotated[int, "physicOffset"] = 0
    size: Annotated[int, "physicSize"] = 0
    tags_code: int = 0
    passes: Annotated[bool, "eval"] = False
    extend_data_json: str | None = None
    bit_map: str | None = None
    msg: str | None = None


@value_class
class ConsumeQueuePage(Body):
    """To 321."""

    entries: Annotated[tuple[QueueEntry, ...], "queueData"] = ()
    min_queue_offset: Annotated[int, "minQueueIndex"] = 0
    max_queue_offset: Annotated[int, "maxQueueIndex"] = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


@value_class
class GroupSubscription(Body):
    """To 345 of 5.x."""

    group: str = ""
    topic: str = ""
    subscription_data: SubscriptionData | None = None


@value_class
class GroupForbidden(Body):
    """To 353 of 5.x."""

    group: str = ""
    topic: str = ""
    readable: bool = True
