"""Offsets: committed ones (14, 15) and those of queues (29, 30, 31, 32).

Source: RocketMQ 4.9.8 ConsumerManageProcessor, AdminBrokerProcessor.
"""

from appliance.broker.tables.groups import is_group_name
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.shares import counted_for
from appliance.broker.tables.topics import TopicTable
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import FIRST_5X_VERSION, RemotingCommand
from netstack.wire.headers import (
    OffsetReply,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
    UpdateConsumerOffsetHeader,
)
from storage_driver.interfaces import Reading
from storage_driver.record import MessageQueue


class Lookups:
    """Handles queries for offsets of queues and groups."""

    def __init__(self, topics: TopicTable, offsets: OffsetTable, store: Reading) -> None:
        self._topics, self._offsets, self._store = topics, offsets, store

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.handle_query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.handle_update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.handle_search,
            RequestCode.GET_MAX_OFFSET: self.handle_max,
            RequestCode.GET_MIN_OFFSET: self.handle_min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.handle_earliest,
        }

    def handle_query(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_CONSUMER_OFFSET (14): the stored offset; 0 for a new group on a young queue, else 22.

        Young is a queue whose first message is still in memory, or that never had one: 22 there lets a starting
        consumer miss the first messages. After 22 it begins where it was told to, at the end for instance.
        """
        header = QueryConsumerOffsetHeader.from_ext(request.ext)
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return _offset(request, offset)
        queue = MessageQueue(header.topic, header.queue_id)
        if header.set_zero_if_not_found is False or self._store.min_offset(queue) > 0:
            raise _unknown_offset()
        if not self._store.max_offset(queue):
            return _offset(request, 0)
        return AsyncReply(lambda: self._zero_if_young(request, queue))

    async def _zero_if_young(self, request: RemotingCommand, queue: MessageQueue) -> RemotingCommand:
        first = await self._store.read(queue, 0, max_count=1, max_bytes=1)
        if first.suggest_slow:  # so far behind the log's end that it is not counted as being in memory
            raise _unknown_offset()
        return _offset(request, 0).response

    def handle_update(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """UPDATE_CONSUMER_OFFSET (15): stored whatever it was before; a negative one is ignored.

        Members of 5.x report one-way, which a reset that they have not heard of outlasts; tools ask for an answer.
        As 5.x, not as 4.9, for topics that exist alone: others would only fill the table. Raises Refused.
        """
        header = UpdateConsumerOffsetHeader.from_ext(request.ext)
        if self._topics.get(header.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if not is_group_name(header.consumer_group):
            text = f"group {header.consumer_group[:80]!a} is not a legal name of a group"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        store = self._offsets.commit if request.is_oneway else self._offsets.move
        by = counted_for(peer.remote[0])
        store(header.consumer_group, header.topic, header.queue_id, header.commit_offset, by)
        return Reply(request.reply())

    def handle_max(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_MAX_OFFSET (30): the offset the next message gets, 0 for a queue without any."""
        header = QueueHeader.from_ext(request.ext)
        return _offset(request, self._store.max_offset(MessageQueue(header.topic, header.queue_id)))

    def handle_min(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_MIN_OFFSET (31): the first offset still there, -1 for a queue that does not exist."""
        header = QueueHeader.from_ext(request.ext)
        if not self._exists(header):
            return _offset(request, -1)
        return _offset(request, self._store.min_offset(MessageQueue(header.topic, header.queue_id)))

    def _exists(self, header: QueueHeader) -> bool:
        topic = self._topics.get(header.topic)
        return (topic is not None and 0 <= header.queue_id < topic.queue_count) or self._store.has_queue(
            MessageQueue(header.topic, header.queue_id)
        )

    def handle_search(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """SEARCH_OFFSET_BY_TIMESTAMP (29): 4.9 is given the message stored nearest to a time, 5.x a bound of it.

        So for a time after the last message 4.9 gets that message, 5.x the end of the queue.
        """
        header = SearchOffsetHeader.from_ext(request.ext)
        queue, boundary = MessageQueue(header.topic, header.queue_id), bound_for(request)
        if boundary == "lower" and (header.boundary_type or "").upper() == "UPPER":
            boundary = "upper"

        async def search() -> RemotingCommand:
            return request.reply(
                ext=OffsetReply(await self._store.offset_by_time(queue, header.time_ms, boundary=boundary))
            )

        return AsyncReply(search)

    def handle_earliest(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_EARLIEST_MSG_STORETIME (32): when the first message still there was stored, -1 when there is none."""
        header = QueueHeader.from_ext(request.ext)
        queue = MessageQueue(header.topic, header.queue_id)

        async def look() -> RemotingCommand:
            found_ms = await self._store.stored_ms_at(queue, self._store.min_offset(queue))
            return request.reply(ext=StoreTimeReply(-1 if found_ms is None else found_ms))

        return AsyncReply(look)


def bound_for(request: RemotingCommand) -> str:
    """Return which message of a time one of 4.9 is given, and one of 5.x: the nearest, the first not before it."""
    return "lower" if request.version >= FIRST_5X_VERSION else "nearest"


def _unknown_offset() -> Refused:
    return Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


def _offset(request: RemotingCommand, offset: int) -> Reply:
    return Reply(request.reply(ext=OffsetReply(offset)))
