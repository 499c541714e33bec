"""RECALL_MESSAGE (370) of 5.x: a timed message is recalled before its delivery time.

The handle that a timed send returned is `v1 topic broker time key` in URL-safe base64. Success means that the recall
is stored, not that there was such a message. Source: RocketMQ 5.3 RecallMessageProcessor, RecallMessageHandle.
"""

import base64
import binascii
from collections.abc import Callable
from functools import partial

from appliance.broker.delay.timers import DUE_MS, UNIQUE_KEY, Timers
from appliance.broker.intake import MessageDraft, not_durable, refusals
from appliance.broker.tables.topics import TIMER_TOPIC, TopicTable
from appliance.requests import Answer, DeferredReply, Handle, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import MessageIdReply, RecallHeader
from storage_driver.named_tuple import NamedTuple


class RecallHandle(NamedTuple):
    """The contents of a handle."""

    topic: str
    broker: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker} {self.due_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "RecallHandle":
        """Return the contents of a handle. Raises ValueError."""
        try:
            parts = base64.urlsafe_b64decode(text).decode().split(" ", 4)
        except (binascii.Error, UnicodeDecodeError) as exc:
            raise ValueError("it is not URL-safe base64") from exc
        if len(parts) < 5 or parts[0] != "v1" or not parts[3].isdecimal():
            raise ValueError("it does not have the form `v1 topic broker time key`")
        return cls(parts[1], parts[2], int(parts[3]), parts[4])


def handle_of(draft: MessageDraft, topic: str, broker: str) -> str | None:
    """Return the recall handle for the reply to a send whose draft rests now, None when it does not."""
    if draft.topic != TIMER_TOPIC:
        return None
    return RecallHandle(topic, broker, int(draft.properties[DUE_MS]), draft.properties.get(UNIQUE_KEY, "")).encode()


class Recalls:
    """Handles recalls."""

    def __init__(
        self,
        timers: Timers,
        topics: TopicTable,
        *,
        when_committed: Callable[[int, Callable[[str | None], None]], None],
        now_ms: Callable[[], int],
        region: str = "DefaultRegion",
    ) -> None:
        self._timers, self._topics, self._when_durable, self._now_ms = timers, topics, when_committed, now_ms
        self._region = region

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {RequestCode.RECALL_MESSAGE: self.handle_recall}

    def handle_recall(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """RECALL_MESSAGE (370): answered once the recall is durable. Raises Refused."""
        unique_key, mark = self.recall(RecallHeader.from_ext(request.ext), peer.born_host)
        ext = MessageIdReply(unique_key).to_ext() | {"MSG_REGION": self._region}
        return DeferredReply(self._when_durable, mark, request.reply(ext=ext), partial(_failed, request))

    def recall(self, header: RecallHeader, born_host: bytes) -> tuple[str, int]:
        """Store a recall; return the key of its message and the mark to wait for. Raises Refused."""
        if self._topics.get(header.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        handle = self._checked(header)
        with refusals():
            mark = self._timers.recall(handle.topic, handle.unique_key, handle.due_ms, (self._now_ms(), born_host))
        return handle.unique_key, mark

    def _checked(self, header: RecallHeader) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as exc:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, f"recall failed, this box did not issue the handle: {exc}"
            ) from exc
        if (handle.topic, handle.broker) != (header.topic, self._timers.rules.broker):
            text = f"recall failed, the handle is for topic {handle.topic} on broker {handle.broker}"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, text)
        left_ms = handle.due_ms - self._now_ms()
        if not 0 < left_ms < self._timers.rules.longest_ms:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, {left_ms} ms are left: the message is already delivered",
            )
        return handle


def _failed(request: RemotingCommand, reason: str) -> RemotingCommand:
    refused = not_durable(reason)
    return request.reply(refused.code, refused.remark)
