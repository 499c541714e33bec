"""Messages by key, by log offset, and the entries of a queue (12, 33, 321).

Source: RocketMQ 4.9.8 QueryMessageProcessor, AdminBrokerProcessor.queryConsumeQueue.
"""

import re
from collections.abc import Callable
from functools import partial

from appliance.broker.delay.redelivery import records_in
from appliance.broker.filter.sql92 import compile_expression
from appliance.broker.filter.subscriptions import Subscription, tags_predicate
from appliance.broker.rights import Perm, Signer, may
from appliance.broker.tables.clients import ClientTable
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.wire.bodies import SubscriptionData
from netstack.wire.bodies_admin import ConsumeQueuePage, QueueEntry
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import QueryMessageHeader, QueryMessageReply, ViewMessageHeader
from netstack.wire.headers_admin import ConsumeQueueHeader
from storage_driver.errors import RecordDamaged
from storage_driver.interfaces import MarkedReading
from storage_driver.record import MessageQueue, StoredMessage, decode_record, tags_code

GRPC_ID = re.compile("01[0-9A-Fa-f]{32}")
UNIQUE_KEY_COUNT, MOST_FOUND, MOST_ENTRIES = 32, 64, 1000


class Queries:
    """Handles queries for single messages."""

    def __init__(self, store: MarkedReading, clients: ClientTable, *, now_ms: Callable[[], int]) -> None:
        self._store, self._clients, self._now_ms = store, clients, now_ms

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {
            RequestCode.QUERY_MESSAGE: self.handle_query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.handle_view,
            RequestCode.QUERY_CONSUME_QUEUE: self.handle_entries,
        }

    def handle_query(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_MESSAGE (12): whole records with a key; 22 when there is none."""
        return AsyncReply(partial(self._query, request, QueryMessageHeader.from_ext(request.ext)))

    async def _query(self, request: RemotingCommand, asked: QueryMessageHeader) -> RemotingCommand:
        count = UNIQUE_KEY_COUNT if asked.unique_key_query else max(1, min(asked.max_count, MOST_FOUND))
        now_ms = self._now_ms()
        end_ms = asked.end_ms if 0 < asked.end_ms < now_ms else now_ms
        # Tools read a begin out of an id of remoting; that of a gRPC client gives them any time.
        begin_ms = 0 if asked.unique_key_query and GRPC_ID.fullmatch(asked.key) else asked.begin_ms
        records = await self._store.find_by_key(asked.topic, asked.key, count, begin_ms, end_ms)
        if not records:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, QueryMessageReply(0, 0))
        return request.reply(ext=QueryMessageReply(now_ms, self._store.committed), body=b"".join(records))

    def handle_view(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """VIEW_MESSAGE_BY_ID (33): the record at a log offset; the client took it from an offset message id."""
        return AsyncReply(partial(self._view, request, ViewMessageHeader.from_ext(request.ext).log_offset, peer.signer))

    async def _view(self, request: RemotingCommand, log_offset: int, signer: Signer | None) -> RemotingCommand:
        record = await self._store.record_at(log_offset)
        if record is None or not _readable(record, signer):
            remark = f"can not find message by the offset, {log_offset}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        return request.reply(body=record)

    def handle_entries(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_CONSUME_QUEUE (321): the entries of a queue, and which of them a group would get."""
        return AsyncReply(partial(self._entries, request, ConsumeQueueHeader.from_ext(request.ext)))

    async def _entries(self, request: RemotingCommand, asked: ConsumeQueueHeader) -> RemotingCommand:
        queue = MessageQueue(asked.topic, asked.queue_id)
        if not self._store.has_queue(queue):
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{asked.queue_id}@{asked.topic} is not exist!")
        low, high = self._store.min_offset(queue), self._store.max_offset(queue)
        if not low <= asked.queue_offset < high:
            return request.reply(remark=f"Index {asked.queue_offset} of {asked.queue_id}@{asked.topic} is not exist!")
        count = max(1, min(asked.count, MOST_ENTRIES))
        found = await self._store.read(queue, asked.queue_offset, max_count=count, max_bytes=8 << 20)
        subscription = self._subscription(asked.consumer_group, asked.topic)
        entries = tuple(_entry(stored, subscription) for stored in records_in(found.chunks))
        page = ConsumeQueuePage(entries, low, high, subscription_body(subscription) if subscription else None)
        return request.reply(body=page.to_bytes())

    def _subscription(self, group: str | None, topic: str) -> Subscription | None:
        found = self._clients.consumers(group) if group else None
        return found.subscriptions.get(topic) if found else None


def _readable(record: bytes, signer: Signer | None) -> bool:
    try:
        return signer is None or may(signer, decode_record(record).topic, Perm.SUB)
    except RecordDamaged:
        return False  # nobody can tell whose it is


def _entry(stored: StoredMessage, subscription: Subscription | None) -> QueueEntry:
    code = tags_code(stored.topic, stored.properties, stored.stored_ms)
    return QueueEntry(stored.log_offset, stored.size, code, _passes(stored, code, subscription))


def _passes(stored: StoredMessage, code: int, subscription: Subscription | None) -> bool:
    if subscription is None:
        return False
    if not subscription.by_tags:
        return compile_expression(subscription.text)(stored.property_map)
    by_tags = tags_predicate(subscription)
    return by_tags is None or by_tags(code)


def subscription_body(subscription: Subscription) -> SubscriptionData:
    """Return a subscription as tools read it."""
    return SubscriptionData(
        subscription.topic,
        subscription.text,
        subscription.tags,
        tuple(sorted(subscription.codes)),
        subscription.version,
        subscription.kind,
        subscription.class_filter,
    )
