"""Bodies between clients and the broker. Source: RocketMQ 4.9.8 protocol.heartbeat and protocol.body."""

from dataclasses import field
from enum import StrEnum
from typing import Annotated, Any

from netstack.lazy import value_class
from netstack.wire.json_body import NO_QUEUE, Body, encode
from netstack.wire.json_body import MessageQueue as MessageQueue


class ConsumeType(StrEnum):  # the order of members is their ordinal, here and below
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@value_class
class SubscriptionData(Body):
    """`code_set` holds the Java hash codes of the tags; no tags means all messages."""

    topic: str = ""
    sub_string: str = ""
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@value_class
class ConsumerData(Body):
    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@value_class
class ProducerData(Body):
    group_name: str = ""


@value_class
class HeartbeatData(Body):
    """34."""

    client_id: Annotated[str, "clientID"] = ""
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int | None = None  # 5.x
    without_sub: bool | None = None  # 5.x


@value_class
class ConsumerIdList(Body):
    """To 38."""

    consumer_id_list: tuple[str, ...] = ()


@value_class
class LockRequest(Body):
    """41 and 42."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool | None = None  # 5.x


@value_class
class LockReply(Body):
    """To 41."""

    locked: Annotated[tuple[MessageQueue, ...], "lockOKMQSet"] = ()


@value_class
class QueryAssignment(Body):
    """400. Source: RocketMQ 5.3 QueryAssignmentRequestBody."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


@value_class
class QueueAssignment(Body):
    """One queue of a member, and how it asks for messages: PULL or POP."""

    message_queue: MessageQueue = NO_QUEUE
    mode: str = "PULL"


@value_class
class QueueAssignments(Body):
    """To 400; None: nothing is known, the member keeps what it has."""

    message_queue_assignments: tuple[QueueAssignment, ...] | None = None


@value_class
class CheckClient(Body):
    """46."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None


@value_class
class ResetOffset(Body):
    """220 and the answer to 222."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    def to_bytes_for_cpp(self) -> bytes:
        """Return the form that C++ consumers read: an array of queues, each with its offset."""
        rows = [
            {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
            for queue, offset in self.offset_table.items()
        ]
        return encode({"offsetTable": rows})


@value_class
class ConsumerStatus(Body):
    """From the client to 221: its queues; to the tool for 223: all clients' queues."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


@value_class
class ConsumeDirectlyResult(Body):
    """From the client to 309."""

    consume_result: ConsumeResult | None = None
    order: bool = False
    auto_commit: bool = True
    spent_ms: Annotated[int, "spentTimeMills"] = 0
    remark: str | None = None


@value_class
class ProcessQueueInfo(Body):
    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_mib: Annotated[int, "cachedMsgSizeInMiB"] = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_ms: Annotated[int, "lastLockTimestamp"] = 0
    dropped: Annotated[bool, "droped"] = False
    last_pull_ms: Annotated[int, "lastPullTimestamp"] = 0
    last_consume_ms: Annotated[int, "lastConsumeTimestamp"] = 0


@value_class
class ConsumeStatus(Body):
    pull_rt: Annotated[float, "pullRT"] = 0.0
    pull_tps: Annotated[float, "pullTPS"] = 0.0
    consume_rt: Annotated[float, "consumeRT"] = 0.0
    consume_ok_tps: Annotated[float, "consumeOKTPS"] = 0.0
    consume_failed_tps: Annotated[float, "consumeFailedTPS"] = 0.0
    consume_failed_msgs: int = 0


@value_class
class ConsumerRunningInfo(Body):
    """From the client to 307. The broker passes the bytes on as they are; this is for tools and our own client."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, Any] | None = None  # 5.x
