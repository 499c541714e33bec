"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053).

An acknowledgement of a handle that is no longer valid is answered with 0, as by Apache: the message is somebody else's
or comes again, and its client can do nothing about it. The answer to any other leaves when it is durable.
Source: RocketMQ 5.5.0 AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

from functools import partial

from appliance.broker.pop.engine import PopEngine
from appliance.broker.pop.pop_table import Handle
from appliance.broker.pop.retry_topics import TopicKind, retry_topic
from appliance.broker.pop_requests.checks import PopChecks
from appliance.broker.pop_requests.receipts import offsets_of, read_receipt
from appliance.broker.pop_requests.receiving import LONGEST_INVISIBLE_MS
from appliance.broker.tables.topics import TopicTable
from appliance.requests import Answer, DeferredReply, RequestPeer
from appliance.requests import Handle as Handler
from netstack.errors import Refused
from netstack.wire.bodies_pop import ACKS_FROM_PEER, BatchAck, BatchAcks
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader
from storage_driver.interfaces import Queues
from storage_driver.record import MessageQueue

MOST_ACKS = 1024  # takes in one request
MOST_ACKED = 4096  # messages: 2 µs each, during which nobody else is served


class Acknowledging:
    """Handles acknowledgements and renewals; one object per broker."""

    def __init__(self, engine: PopEngine, checks: PopChecks, store: Queues, topics: TopicTable) -> None:
        self._engine, self._checks, self._store, self._topics = engine, checks, store, topics

    def handlers(self) -> dict[int, Handler]:
        """Return request code -> handler."""
        return {
            RequestCode.ACK_MESSAGE: self.handle,
            RequestCode.BATCH_ACK_MESSAGE: self.handle_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.handle_change,
        }

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Acknowledge one message. Raises Refused."""
        header = AckMessageHeader.from_ext(request.ext)
        handle = self._handle(header, peer)
        high = self._store.max_offset(handle[0].queue)
        self._check_offset(handle, high + 1)
        mark = self._engine.acknowledge(handle)
        return self._answer(request, mark)

    def handle_batch(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Acknowledge messages of several takes; what is wrong with one of them leaves the others alone."""
        marks = [
            mark
            for ack, offsets in read_acks(request.body)
            for handle in self._handles(ack, offsets)
            if (mark := self._engine.acknowledge(handle))
        ]
        return self._answer(request, max(marks) if marks else None)

    def handle_change(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Move the time of one message. Raises Refused."""
        header = ChangeInvisibleTimeHeader.from_ext(request.ext)
        if not 0 <= header.invisible_ms <= LONGEST_INVISIBLE_MS:
            text = f"invisibleTime {header.invisible_ms}, allowed: 0 to {LONGEST_INVISIBLE_MS} ms"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        handle = self._handle(header, peer)
        self._check_offset(handle, self._store.max_offset(handle[0].queue))
        renewed = self._engine.renew(handle, header.invisible_ms)
        if renewed is None:
            text = f"offset {header.queue_offset} of {header.topic} is no longer in flight by this handle"
            raise Refused(ResponseCode.NO_MESSAGE, f"{text}: it was acknowledged, or comes again by another one")
        ext = {
            "popTime": str(renewed.pop_ms),  # the handle stays: old and new one name the same take
            "invisibleTime": str(max(renewed.due_ms - renewed.pop_ms, 0)),
            "reviveQid": str(read_receipt(header.extra_info).revive_queue),
        }
        reply = request.reply(ext=ext)
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._engine.when_synced, renewed.mark, reply, failed)

    def _answer(self, request: RemotingCommand, mark: int | None) -> Answer:
        """Answer once what was acknowledged is durable, by this request or by one that it repeats."""
        mark = self._engine.newest_mark if mark is None else mark
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._engine.when_synced, mark, request.reply(), failed)

    def _handle(self, header: AckMessageHeader, peer: RequestPeer) -> Handle:
        """Return the handle that a request names. Raises Refused."""
        topic = self._checks.acknowledger(header, peer)
        try:
            receipt = read_receipt(header.extra_info)
        except ValueError as exc:
            text = f"extraInfo {header.extra_info[:80]!r} is not a handle: {exc}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text) from exc
        queue = MessageQueue(topic.name, header.queue_id)
        return PopEngine.handle(header.consumer_group, queue, header.queue_offset, receipt.pop_ms)

    def _check_offset(self, handle: Handle, end: int) -> None:
        key, offset, _ = handle
        low = self._store.min_offset(key.queue)
        if not low <= offset < end:
            where = f"{key.queue.topic}@{key.queue.queue_id}"
            text = f"offset is illegal, key:{where}, commit:{offset}, store:{low}~{end}"
            raise Refused(ResponseCode.NO_MESSAGE, text)

    def _handles(self, ack: BatchAck, offsets: list[int]) -> list[Handle]:
        """Return the handles of a batch, none where the topic is gone."""
        topic = retry_topic(ack.consumer_group, ack.topic, TopicKind(int(ack.retry)))
        if self._topics.get(topic) is None:
            return []
        queue = MessageQueue(topic, ack.queue_id)
        return [PopEngine.handle(ack.consumer_group, queue, offset, ack.pop_ms) for offset in offsets]


def read_acks(body: bytes) -> list[tuple[BatchAck, list[int]]]:
    """Return the takes of a body with the offsets of each, without those that cannot be read. Raises Refused."""
    acks = BatchAcks.from_bytes(body, ACKS_FROM_PEER).acks
    if not acks:
        raise Refused(ResponseCode.NO_MESSAGE, "no acknowledgement in the body")
    if len(acks) > MOST_ACKS:
        text = f"{len(acks)} takes in one request, at most {MOST_ACKS} are allowed"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
    found, messages = [], 0
    for ack in acks:
        try:
            TopicKind(int(ack.retry))
            found.append((ack, list(offsets_of(ack.start_offset, ack.bits))))
        except ValueError:
            continue
        messages += len(found[-1][1])
        if messages > MOST_ACKED:
            text = f"{messages} messages or more in one request, at most {MOST_ACKED} are acknowledged together"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
    return found
