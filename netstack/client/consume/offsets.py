"""Offsets of a group in each queue: in memory and at the broker, and the start of a queue without an offset."""

import logging
from collections.abc import Iterable
from typing import Protocol

import trio

from netstack.client.consume.consumer_options import ConsumerOptions, StartFrom
from netstack.client.errors import BrokerRefused, BrokerUnknown, ClientError, reading
from netstack.client.instance import Instance
from netstack.client.routes import any_address
from netstack.client.text import RETRY
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import ExtFields
from netstack.wire.headers import (
    OffsetReply,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from netstack.wire.json_body import MessageQueue

UNKNOWN = -1
_log = logging.getLogger("netstack.client")


class OffsetStore(Protocol):
    """Offsets of one group; `get` is memory only, `read` asks where they are kept."""

    def get(self, queue: MessageQueue) -> int: ...

    def set(self, queue: MessageQueue, queue_offset: int) -> None: ...

    def raise_to(self, queue: MessageQueue, queue_offset: int) -> None: ...

    def forget(self, queue: MessageQueue) -> None: ...

    async def read(self, queue: MessageQueue) -> int: ...

    async def persist(self, queues: Iterable[MessageQueue]) -> None: ...


class KnownOffsets:
    """What both stores of offsets have in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int:
        return self._offsets.get(queue, UNKNOWN)

    def set(self, queue: MessageQueue, queue_offset: int) -> None:
        self._offsets[queue] = queue_offset

    def raise_to(self, queue: MessageQueue, queue_offset: int) -> None:
        if queue_offset > self._offsets.get(queue, UNKNOWN):
            self._offsets[queue] = queue_offset


class RemoteOffsets(KnownOffsets):
    """Kept by the queue's broker. Source: RocketMQ 4.9.8 RemoteBrokerOffsetStore."""

    def __init__(self, instance: Instance, group: str) -> None:
        super().__init__()
        self._instance, self._group = instance, group

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int:
        """Return the broker's offset, -1 when it has none. Raises ClientError."""
        header = QueryConsumerOffsetHeader(self._group, queue.topic, queue.queue_id)
        try:
            return await ask_offset(self._instance, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerRefused as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return UNKNOWN
            raise

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Send the offsets to all brokers at once and wait for the answers; failures are logged."""
        async with trio.open_nursery() as nursery:
            for queue in queues:
                if self.get(queue) >= 0:
                    nursery.start_soon(self._persist_one, queue, self.get(queue))

    async def _persist_one(self, queue: MessageQueue, queue_offset: int) -> None:
        header = UpdateConsumerOffsetHeader(self._group, queue.topic, queue.queue_id, queue_offset)
        try:
            address = broker_address(self._instance, queue)
            await self._instance.ask_ok(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        except ClientError as error:
            _log.warning("event=offset_not_persisted group=%s queue=%s reason=%s", self._group, queue, error)


def broker_address(instance: Instance, queue: MessageQueue) -> str:
    """Return where to ask about a queue: the master, else any. Raises BrokerUnknown."""
    address = any_address({queue.broker_name: instance.addresses_of(queue.broker_name)}, queue.broker_name)
    if address is None:
        raise BrokerUnknown(queue.broker_name)
    return address


async def ask_offset(instance: Instance, queue: MessageQueue, code: int, header: ExtFields) -> int:
    """Return the offset a broker answers with. Raises ClientError."""
    if not instance.addresses_of(queue.broker_name):
        await instance.route(queue.topic)
    address = broker_address(instance, queue)
    answer = await instance.ask_ok(address, code, header)
    with reading(f"{queue.broker_name} ({address})", f"question for an offset of {queue.topic}"):
        return OffsetReply.from_ext(answer.ext).offset


async def max_offset(instance: Instance, queue: MessageQueue) -> int:
    """Return the offset that the next message of the queue will get."""
    return await ask_offset(instance, queue, RequestCode.GET_MAX_OFFSET, QueueHeader(queue.topic, queue.queue_id))


async def min_offset(instance: Instance, queue: MessageQueue) -> int:
    """Return the lowest offset the queue still holds."""
    return await ask_offset(instance, queue, RequestCode.GET_MIN_OFFSET, QueueHeader(queue.topic, queue.queue_id))


async def offset_at(instance: Instance, queue: MessageQueue, time_ms: int) -> int:
    """Return the offset of the message stored nearest to this time, as brokers search for it."""
    header = SearchOffsetHeader(queue.topic, queue.queue_id, time_ms)
    return await ask_offset(instance, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def starting_offset(
    instance: Instance, queue: MessageQueue, offsets: OffsetStore, options: ConsumerOptions
) -> int:
    """Return the first offset: a stored one has priority. Raises ClientError; then the queue waits a round."""
    stored = await offsets.read(queue)
    if stored >= 0:
        return stored
    retry = queue.topic.startswith(RETRY)
    if options.start_from is StartFrom.FIRST or (retry and options.start_from is StartFrom.LAST):
        return 0
    if retry or options.start_from is StartFrom.LAST:
        return await max_offset(instance, queue)
    start_ms = options.start_ms if options.start_ms is not None else instance.now_ms() - 1_800_000
    return await offset_at(instance, queue, start_ms)
