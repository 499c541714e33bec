"""Ext headers of the pop family of 5.x. Source: RocketMQ 5.3 protocol.header."""

from typing import Annotated

from netstack.ext import ExtHeader, Int32
from netstack.lazy import value_class


@value_class
class PopHeader(ExtHeader):
    """200050. `queue_id` -1 is any; `init_mode` 0 begins at the first message, 1 at the end."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_count: Annotated[Int32, "maxMsgNums"]
    invisible_ms: Annotated[int, "invisibleTime"]
    poll_ms: Annotated[int, "pollTime"]
    born_ms: Annotated[int, "bornTime"]
    init_mode: Int32
    expression_type: Annotated[str | None, "expType"] = None
    expression: Annotated[str | None, "exp"] = None
    order: bool = False
    attempt_id: str | None = None


@value_class
class PopReply(ExtHeader):
    """Decoded for every code, so always sent."""

    pop_ms: Annotated[int, "popTime"]
    invisible_ms: Annotated[int, "invisibleTime"]
    revive_queue_id: Annotated[Int32, "reviveQid"]
    rest_count: Annotated[int, "restNum"]
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@value_class
class AckHeader(ExtHeader):
    """200051. `extra_info` is the blank-separated text of POP_CK."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Annotated[int, "offset"]


@value_class
class PeekHeader(ExtHeader):
    """200052."""

    topic: str
    queue_id: Int32
    max_count: Annotated[Int32, "maxMsgNums"]
    consumer_group: str


@value_class
class ChangeInvisibleHeader(ExtHeader):
    """200053."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Annotated[int, "offset"]
    invisible_ms: Annotated[int, "invisibleTime"]


@value_class
class ChangeInvisibleReply(ExtHeader):
    pop_ms: Annotated[int, "popTime"]
    invisible_ms: Annotated[int, "invisibleTime"]
    revive_queue_id: Annotated[Int32, "reviveQid"]


@value_class
class NotificationHeader(ExtHeader):
    """200054."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_ms: Annotated[int, "pollTime"]
    born_ms: Annotated[int, "bornTime"]
    order: bool = False
    attempt_id: str | None = None


@value_class
class NotificationReply(ExtHeader):
    has_message: Annotated[bool, "hasMsg"]
    polling_full: bool = False


@value_class
class PollingHeader(ExtHeader):
    """200055."""

    consumer_group: str
    topic: str
    queue_id: Int32


@value_class
class PollingReply(ExtHeader):
    polling_count: Annotated[Int32, "pollingNum"]
