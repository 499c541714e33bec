"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): remoting's translation of `publishing`.

Source: RocketMQ 4.9.8 SendMessageProcessor.
"""

from functools import partial
from typing import Final

from appliance.broker.intake import not_durable, refusal
from appliance.broker.publish.publishing import Publishing
from appliance.broker.publish.send_batch import is_long
from appliance.broker.publish.send_properties import unique_key
from appliance.broker.tables.topics import Topic
from appliance.requests import Answer, AsyncReply, DeferredReply, Handle, RefusedWith, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode
from netstack.wire.command import ONEWAY, RemotingCommand
from netstack.wire.message_headers import SendMessageHeader, SendMessageReply
from netstack.wire.send_reply import SendReplies
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal
from storage_driver.interfaces import Marks
from storage_driver.record import TRANSACTION_PREPARED, message_id

SEND: Final = RequestCode.SEND_MESSAGE_V2
SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE
RECONSUME_SINCE_VERSION: Final = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts
NOT_STORED: Final = (Refused, Full, LogFailed, MessageIllegal, Busy)


class Sends:
    """Handles sends; one object per broker."""

    def __init__(self, publishing: Publishing, store: Marks, *, store_host: bytes, region: str, trace_on: bool) -> None:
        self._publishing = publishing
        self._when_durable = store.when_acknowledged  # one and the same for all answers
        self._region = region, trace_on
        self._replies = SendReplies(region, trace_on=trace_on)
        self._ext = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        self._id_prefix = message_id(store_host, 0)[:-16].encode()

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
        return {**dict.fromkeys(codes, self.handle), SEND_BATCH: self.handle_batch}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Store what was sent, answer once it is durable. Raises Refused with the fields every send reply has."""
        topic: Topic | None = None
        try:
            header = request.send or SendMessageHeader.from_ext(request.ext)
            if header.batch:
                return self.handle_batch(request, peer)
            if header.max_reconsume_times is not None and request.version < RECONSUME_SINCE_VERSION:
                header.max_reconsume_times = None
            topic = self._publishing.admit(header, peer, request)
            answered = not request.flag & ONEWAY
            queue_id, queue_offset, log_offset, end, key, recall = self._publishing.one(
                header, request.body, topic, peer, answered=answered
            )
        except NOT_STORED as exc:
            raise self._refused(exc, topic) from exc
        message_id = b"%b%016X" % (self._id_prefix, log_offset)
        held = self._held(request, queue_id, queue_offset, message_id, end, key=key)
        if topic.attributes:
            held.when = self._publishing.acknowledging.when(topic)
        if recall or header.sys_flag & TRANSACTION_PREPARED:
            transaction = unique_key(header.properties) if header.sys_flag & TRANSACTION_PREPARED else None
            reply = SendMessageReply(message_id.decode(), queue_id, queue_offset, transaction, *self._region)
            held.response = request.reply(ext=reply.to_ext() | ({"recallHandle": recall} if recall else {}))
        return held

    def handle_batch(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Store a batch, answer once all of it is durable. Raises Refused as `handle` does."""
        topic: Topic | None = None
        try:
            header = request.send or SendMessageHeader.from_ext(request.ext)
            topic = self._publishing.admit(header, peer, request)
            if is_long(request.body):
                return AsyncReply(partial(self._long_batch, header, topic, request, peer))
            batch = self._publishing.batch(header, request.body, topic, peer, answered=not request.is_oneway)
        except NOT_STORED as exc:
            raise self._refused(exc, topic) from exc
        held = self._held(
            request, batch.queue_id, batch.queue_offset, self._ids_of(batch.places), batch.end, key=batch.key
        )
        held.size = batch.size
        if topic.attributes:
            held.when = self._publishing.acknowledging.when(topic)
        return held

    async def _long_batch(
        self, header: SendMessageHeader, topic: Topic, request: RemotingCommand, peer: RequestPeer
    ) -> RemotingCommand | bytes:
        """Answer a batch of thousands when it is durable. Raises Refused."""
        try:
            batch = await self._publishing.long_batch(header, request, topic, peer)
        except NOT_STORED as exc:
            raise self._refused(exc, topic) from exc
        return self._replies.encoded(request, self._ids_of(batch.places), batch.queue_id, batch.queue_offset)

    def _refused(self, exc: Refused | Full | LogFailed | MessageIllegal | Busy, topic: Topic | None) -> RefusedWith:
        """Return what the sender is told. Not a local of `handle`, which its traceback would keep with the body."""
        self._publishing.refused(topic, exc)
        refused = exc if isinstance(exc, Refused) else refusal(exc)
        return RefusedWith(refused.code, refused.remark, self._ext)

    def _held(
        self, request: RemotingCommand, queue_id: int, queue_offset: int, message_ids: bytes, end: int, *, key: int
    ) -> DeferredReply:
        return DeferredReply(
            self._when_durable,
            end,
            self._replies.encoded(request, message_ids, queue_id, queue_offset),
            partial(self._lost, request.opaque, request.serialize_type, key, end),
        )

    def _lost(self, opaque: int, serialize_type: int, key: int, end: int, reason: str) -> RemotingCommand:
        """Return what the sender is told. Not from the request, which would keep its body until the sync."""
        self._publishing.lost(key, end)
        refused = not_durable(reason)
        request = RemotingCommand(SEND, opaque, serialize_type=serialize_type)
        return request.reply(refused.code, refused.remark, self._ext)

    def _ids_of(self, places: bytes) -> bytes:
        texts = places.hex(",", 8).upper().encode()
        return self._id_prefix + texts.replace(b",", b"," + self._id_prefix)
