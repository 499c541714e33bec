"""Pulls the queues of a pull consumer and keeps what came until the application polls it.

Source: RocketMQ 4.9.8 DefaultLitePullConsumerImpl, its PullTaskImpl and consumeRequestCache.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets, starting_offset
from netstack.client.consume.process_queue import ProcessQueue
from netstack.client.consume.pulling import FLOW_CONTROL_S, Pulled, pull_once
from netstack.client.consume.subscriptions import Sql, Subscriptions, subscription
from netstack.client.errors import ClientError
from netstack.client.instance import Instance
from netstack.client.messages import ReceivedMessage
from netstack.errors import ProtocolError, Refused
from netstack.wire.codes import ResponseCode
from netstack.wire.json_body import MessageQueue

CACHED_AT_MOST = 10_000
START_FAILED_S = 3.0
_log = logging.getLogger("netstack.client")


class QueueFetcher:
    """`positions` tells for each queue where the application's next poll goes on; a seek sets it."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Subscriptions,
        offsets: RemoteOffsets,
        options: ConsumerOptions,
        *,
        held: Callable[[], Iterable[HeldQueue]],
    ) -> None:
        self._instance, self._group = instance, group
        self._subscriptions, self._offsets, self._options, self._held = subscriptions, offsets, options, held
        self.expressions: dict[str, str | Sql] = {}  # by topic, of assigned queues
        self.positions: dict[MessageQueue, int] = {}
        self._chunks: deque[tuple[HeldQueue, ProcessQueue, list[ReceivedMessage]]] = deque()
        self._arrived = trio.Event()
        self._pulls: dict[MessageQueue, trio.CancelScope] = {}

    async def run(self, held: HeldQueue) -> None:
        """Pull one queue until it is dropped; a seek cancels only the pull under way."""
        with held.scope:
            while not held.dropped:
                with trio.CancelScope() as scope:
                    self._pulls[held.queue] = scope
                    try:
                        await self._pull(held)
                    except (ClientError, Refused, ProtocolError) as error:
                        if getattr(error, "code", 0) == ResponseCode.FLOW_CONTROL:
                            await trio.sleep(FLOW_CONTROL_S)
                            continue
                        _log.warning("event=pull_failed queue=%s reason=%s", held.queue, error)
                        self._instance.suspect_routes()
                        await trio.sleep(START_FAILED_S if held.next_offset < 0 else self._options.failure_delay_s)

    async def _pull(self, held: HeldQueue) -> None:
        await held.wait_until(
            lambda: not held.paused and held.has_room(self._options) and self._cached < CACHED_AT_MOST
        )
        cache = held.messages  # a seek puts another in its place, and what was asked before it does not count
        if held.next_offset < 0:
            start = await starting_offset(self._instance, held.queue, self._offsets, self._options)
            if held.messages is not cache:
                return
            held.next_offset = start
        held.pulled_at = trio.current_time()
        found = await self._ask(held)
        if held.dropped or held.messages is not cache:
            return
        if found.code == ResponseCode.PULL_OFFSET_MOVED:
            _log.warning("event=offset_moved queue=%s from=%d to=%d", held.queue, held.next_offset, found.next_offset)
        held.next_offset, held.suggested_id = found.next_offset, found.suggested_id
        held.pulled_at = trio.current_time()
        if found.messages:
            self._keep(held, found.messages)

    async def _ask(self, held: HeldQueue) -> Pulled:
        topic = held.queue.topic
        wanted = self._subscriptions.get(topic) or subscription(topic, self.expressions.get(topic, "*"), 0)
        return await pull_once(
            *(self._instance, self._group, held.queue, held.next_offset, wanted),
            max_count=self._options.pull_batch,
            hold_s=self._options.hold_s,
            timeout_s=self._options.pull_timeout_s,
            wanted_id=held.suggested_id,
        )

    def _keep(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            message.held = held
        held.messages.put(messages)
        self._chunks.append((held, held.messages, messages))
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()  # all who poll look again

    @property
    def _cached(self) -> int:
        return sum(held.messages.count for held in self._held())

    async def next(self, timeout_s: float) -> list[ReceivedMessage]:
        """Return the next messages of one queue, none if none arrived in time. The position moves past them."""
        with trio.move_on_after(timeout_s):
            while True:
                while self._chunks:
                    held, cache, messages = self._chunks.popleft()
                    if held.dropped or cache is not held.messages:  # lost, or a seek came in between
                        continue
                    self.positions[held.queue] = held.messages.remove(message.queue_offset for message in messages)
                    held.consumed_at = trio.current_time()
                    for each in self._held():
                        each.change()
                    return messages
                await self._arrived.wait()
        return []

    def seek(self, held: HeldQueue, queue_offset: int) -> None:
        """Go on from this offset: what was fetched before, or is asked for now, no longer counts."""
        held.messages = ProcessQueue()
        held.next_offset = self.positions[held.queue] = queue_offset
        if held.queue in self._pulls:
            self._pulls[held.queue].cancel()
        held.change()
