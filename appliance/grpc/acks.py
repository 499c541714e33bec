"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: what became of a message.

Source: RocketMQ 5.3 AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from appliance.broker.pop.engine import PopEngine
from appliance.broker.pop.pop_table import Handle
from appliance.broker.pop.retry_topics import retry_topic
from appliance.broker.pop_requests.receipts import PopReceipt
from appliance.broker.rights import Need, Perm, ResourceKind, of_topic
from appliance.grpc.clients import ClientSession
from appliance.grpc.methods import Later
from appliance.grpc.outcome import Rejection, fill_ok, fill_overall, ok
from appliance.grpc.receipts import is_over, receipt_from
from appliance.grpc.receives import check_invisible
from appliance.grpc.resources import group_of, topic_of
from netstack.grpc.answer_bytes import acknowledged
from netstack.grpc.calls import Call, Deferred
from netstack.grpc.v2.definition_pb2 import Code, Status
from netstack.grpc.v2.service_pb2 import (
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
)
from storage_driver.record import MessageQueue

MOST_ENTRIES = 1024
EXPIRED = Status(code=Code.INVALID_RECEIPT_HANDLE, message="receipt handle is expired")


class Acks:
    """Handles what consumers say of their messages."""

    def __init__(self, broker: str, engine: Callable[[], PopEngine], now_ms: Callable[[], int]) -> None:
        self._broker, self._engine, self._now_ms = broker, engine, now_ms

    def acknowledge(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Take messages for consumed; answered when that is durable. Raises Rejection."""
        group, topic = self._place(session, request)
        entries = request.entries
        if not entries or len(entries) > MOST_ENTRIES:
            text = f"{len(entries)} messages to acknowledge, expected 1 to {MOST_ENTRIES}"
            raise Rejection(Code.BAD_REQUEST, text)
        found = [self._one(session, group, topic, each.receipt_handle) for each in entries]
        marks = [mark for _, mark in found if mark is not None]
        if len(found) == 1 and marks:
            answer = acknowledged(entries[0].message_id, entries[0].receipt_handle)
        else:
            answer = _acknowledged_all(entries, [refused for refused, _ in found])
        return Deferred(self._engine().when_synced, max(marks), answer, _NOT_ACKNOWLEDGED) if marks else answer

    def _one(self, session: ClientSession, group: str, topic: str, text: str) -> tuple[Status | None, int | None]:
        """Acknowledge one message: what is wrong, and the mark to wait for.

        What is acknowledged twice is fine; what came again for others is not.
        """
        try:
            receipt = receipt_from(text)
        except Rejection as refused:
            return refused.status, None
        handle = _handle(group, topic, receipt)
        session.leases.drop(handle)
        mark = self._engine().acknowledge(handle)
        if mark is None and is_over(receipt, self._now_ms()):
            return EXPIRED, None
        return None, self._engine().newest_mark if mark is None else mark

    def change(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Let a message come again after some time. Raises Rejection."""
        group, topic = self._place(session, request)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        check_invisible(invisible_ms, 0)
        receipt = receipt_from(request.receipt_handle)
        handle = _handle(group, topic, receipt)
        session.leases.drop(handle)
        renewed = self._engine().renew(handle, invisible_ms)
        if renewed is None:
            return ChangeInvisibleDurationResponse(status=EXPIRED)
        moved = receipt._replace(invisible_ms=max(renewed.due_ms - receipt.pop_ms, 0))
        response = ChangeInvisibleDurationResponse(status=ok(), receipt_handle=moved.text(self._broker))
        return Deferred(self._engine().when_synced, renewed.mark, response.SerializeToString(), _NOT_RENEWED)

    def forward(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Store a message among the dead letters of its group. Raises Rejection."""
        group, topic = self._place(session, request)
        handle = _handle(group, topic, receipt_from(request.receipt_handle))
        session.leases.drop(handle)
        return Later(partial(self._forwarded, handle))

    async def _forwarded(self, handle: Handle) -> ForwardMessageToDeadLetterQueueResponse:
        there = await self._engine().dead_letter(handle)
        return ForwardMessageToDeadLetterQueueResponse(status=ok() if there else EXPIRED)

    def _place(self, session: ClientSession, request: Any) -> tuple[str, str]:
        topic, group = topic_of(request.topic), group_of(request.group)
        if session.signer is not None:
            session.require(of_topic(topic, Perm.SUB))
            session.require(Need(ResourceKind.GROUP, group, Perm.SUB))
        return group, topic


def _handle(group: str, topic: str, receipt: PopReceipt) -> Handle:
    queue = MessageQueue(retry_topic(group, topic, receipt.kind), receipt.queue_id)
    return PopEngine.handle(group, queue, receipt.queue_offset, receipt.pop_ms)


def _acknowledged_all(entries: Sequence[Any], refused: Sequence[Status | None]) -> bytes:
    response = AckMessageResponse()
    for each, status in zip(entries, refused, strict=True):
        entry = response.entries.add()
        entry.message_id, entry.receipt_handle = each.message_id, each.receipt_handle
        if status is None:
            fill_ok(entry.status)
        else:
            entry.status.CopyFrom(status)
    fill_overall(response)
    return bytes(response.SerializeToString())


def _failed(response: Any, reason: str) -> bytes:
    status = Status(code=Code.INTERNAL_SERVER_ERROR, message=f"not durable: {reason}")
    return bytes(response(status=status).SerializeToString())


_NOT_ACKNOWLEDGED = partial(_failed, AckMessageResponse)
_NOT_RENEWED = partial(_failed, ChangeInvisibleDurationResponse)
