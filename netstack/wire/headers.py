"""Ext headers between clients and the broker, requests and replies. Source: RocketMQ 4.9.8 protocol.header.

5.x fields that a 4.9 broker has no use for (`ns`, `nsd`, `bname`, `oway`, `lo`, …) are left in the ext fields.
"""

from typing import Annotated

from netstack.lazy import value_class
from netstack.wire.ext import ExtHeader, Int32


@value_class
class PullMessageReply(ExtHeader):
    """Mandatory with codes 0, 19, 20 and 21."""

    suggest_broker_id: Annotated[int, "suggestWhichBrokerId"]
    next_begin_offset: int
    min_offset: int
    max_offset: int

    def to_ext(self) -> dict[str, str]:
        return {
            "suggestWhichBrokerId": str(self.suggest_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }


@value_class
class UnregisterClientHeader(ExtHeader):
    """35."""

    client_id: Annotated[str, "clientID"]
    producer_group: str | None = None
    consumer_group: str | None = None


@value_class
class ConsumerGroupHeader(ExtHeader):
    """38, 203 and, to clients, 40."""

    consumer_group: str


@value_class
class QueryConsumerOffsetHeader(ExtHeader):
    """14."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@value_class
class UpdateConsumerOffsetHeader(ExtHeader):
    """15. A negative offset is to be ignored."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: int


@value_class
class SearchOffsetHeader(ExtHeader):
    """29."""

    topic: str
    queue_id: Int32
    time_ms: Annotated[int, "timestamp"]
    boundary_type: str | None = None


@value_class
class QueueHeader(ExtHeader):
    """30, 31, 32."""

    topic: str
    queue_id: Int32
    committed: bool = True


@value_class
class OffsetReply(ExtHeader):
    """To 14, 29, 30, 31."""

    offset: int


@value_class
class StoreTimeReply(ExtHeader):
    """To 32; -1 when the queue holds nothing."""

    time_ms: Annotated[int, "timestamp"]


@value_class
class SendBackHeader(ExtHeader):
    """36. `max_reconsume_times` counts from client version 121 on."""

    log_offset: Annotated[int, "offset"]
    group: str
    delay_level: Int32
    origin_message_id: Annotated[str | None, "originMsgId"] = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@value_class
class EndTransactionHeader(ExtHeader):
    """37. `verdict` is 8 commit, 12 rollback, 0 unknown."""

    producer_group: str
    queue_offset: Annotated[int, "tranStateTableOffset"]
    log_offset: Annotated[int, "commitLogOffset"]
    verdict: Annotated[Int32, "commitOrRollback"]
    from_check: Annotated[bool, "fromTransactionCheck"] = False
    message_id: Annotated[str | None, "msgId"] = None
    transaction_id: str | None = None
    topic: str | None = None


@value_class
class QueryMessageHeader(ExtHeader):
    """12. `unique_key_query` = the key is a UNIQ_KEY."""

    topic: str
    key: str
    max_count: Annotated[Int32, "maxNum"]
    begin_ms: Annotated[int, "beginTimestamp"]
    end_ms: Annotated[int, "endTimestamp"]
    unique_key_query: Annotated[bool, "_UNIQUE_KEY_QUERY"] = False


@value_class
class QueryMessageReply(ExtHeader):
    index_updated_ms: Annotated[int, "indexLastUpdateTimestamp"]
    index_log_offset: Annotated[int, "indexLastUpdatePhyoffset"]


@value_class
class ViewMessageHeader(ExtHeader):
    """33."""

    log_offset: Annotated[int, "offset"]
    topic: str | None = None


@value_class
class CheckTransactionHeader(ExtHeader):
    """39, to a producer."""

    queue_offset: Annotated[int, "tranStateTableOffset"]
    log_offset: Annotated[int, "commitLogOffset"]
    message_id: Annotated[str | None, "msgId"] = None
    transaction_id: str | None = None
    offset_message_id: Annotated[str | None, "offsetMsgId"] = None
    topic: str | None = None


@value_class
class ResetOffsetHeader(ExtHeader):
    """222 from a tool, 220 to a consumer. `time_ms` -1 is the end of the queue."""

    topic: str
    group: str
    time_ms: Annotated[int, "timestamp"]
    is_force: bool = False
    queue_id: Int32 | None = None
    offset: int | None = None


@value_class
class ConsumerStatusHeader(ExtHeader):
    """223 from a tool, 221 to a consumer. `client_id` is named clientAddr on the wire."""

    topic: str
    group: str
    client_id: Annotated[str | None, "clientAddr"] = None


@value_class
class ConsumerRunningInfoHeader(ExtHeader):
    """307, from a tool and relayed to the consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@value_class
class ConsumeDirectlyHeader(ExtHeader):
    """309, from a tool and relayed to the consumer."""

    consumer_group: str
    client_id: str | None = None
    message_id: Annotated[str | None, "msgId"] = None
    broker_name: str | None = None


@value_class
class PushReplyHeader(ExtHeader):
    """326, to the client that waits for a reply. Hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_queue_count: Annotated[Int32, "defaultTopicQueueNums"]
    queue_id: Int32
    sys_flag: Int32
    born_ms: Annotated[int, "bornTimestamp"]
    flag: Int32
    born_host: str
    store_host: str
    stored_ms: Annotated[int, "storeTimestamp"]
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False


@value_class
class RecallHeader(ExtHeader):
    """370 of 5.x."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@value_class
class MessageIdReply(ExtHeader):
    """To 370."""

    message_id: Annotated[str, "msgId"]
