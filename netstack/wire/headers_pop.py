"""Ext headers of POP requests. Source: RocketMQ 5.5.0 remoting.protocol.header.

`liteTopic` and `suspend` of 5.5 are left in the ext fields: lite topics are not there, and every renewal counts alike.
"""

from typing import Annotated

from netstack.lazy import value_class
from netstack.wire.ext import ExtHeader, Int32


@value_class
class PopMessageHeader(ExtHeader):
    """200050. `queue_id` -1: all queues; times in ms; `init_mode` 0 from the start, 1 from the end of a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_count: Annotated[Int32, "maxMsgNums"]
    invisible_ms: Annotated[int, "invisibleTime"]
    poll_ms: Annotated[int, "pollTime"]
    born_ms: Annotated[int, "bornTime"] = 0
    init_mode: Int32 = 0
    expression_type: Annotated[str | None, "expType"] = None
    expression: Annotated[str | None, "exp"] = None
    order: bool = False
    attempt_id: str | None = None


@value_class
class AckMessageHeader(ExtHeader):
    """200051. `topic` is the real one, a retry topic if the message came from there."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Annotated[int, "offset"]


@value_class
class ChangeInvisibleTimeHeader(AckMessageHeader):
    """200053."""

    invisible_ms: Annotated[int, "invisibleTime"] = 0


@value_class
class PeekMessageHeader(ExtHeader):
    """200052."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_count: Annotated[Int32, "maxMsgNums"]


@value_class
class NotificationHeader(ExtHeader):
    """200054."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_ms: Annotated[int, "pollTime"]
    born_ms: Annotated[int, "bornTime"] = 0
    order: bool = False
    attempt_id: str | None = None
    expression_type: Annotated[str | None, "expType"] = None
    expression: Annotated[str | None, "exp"] = None


@value_class
class PollingInfoHeader(ExtHeader):
    """200055."""

    consumer_group: str
    topic: str
    queue_id: Int32
