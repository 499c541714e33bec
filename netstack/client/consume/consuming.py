"""Concurrent consumption: one buffer of messages from all held queues, acknowledged one by one in any order.

Source: RocketMQ 4.9.8 ConsumeMessageConcurrentlyService.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import OffsetStore
from netstack.client.consume.send_back import SendBack
from netstack.client.errors import UsageError
from netstack.client.messages import ReceivedMessage
from netstack.client.statistics import ConsumeCounts
from netstack.client.text import RETRY
from netstack.wire.json_body import MessageQueue

AGAIN_S = 5.0
SWEPT_AT_ONCE, SWEPT_LEVEL = 16, 3
PACE = 64  # messages handed out between two turns of the other tasks, about a millisecond
_log = logging.getLogger("netstack.client")


class MessageBuffer:
    """Messages that were pulled and not delivered yet."""

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        options: ConsumerOptions,
        send_back: SendBack,
        *,
        now_ms: Callable[[], int],
        counts: ConsumeCounts,
    ) -> None:
        self._retry_topic = RETRY + group
        self._offsets, self._options, self._send_back = offsets, options, send_back
        self._now_ms, self._counts = now_ms, counts
        self._ready: deque[ReceivedMessage] = deque()
        self._takers = trio.lowlevel.ParkingLot()
        self._handed_out = 0

    def __len__(self) -> int:
        return len(self._ready)

    def arrived(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Take in what a pull brought."""
        self._counts.pulled(held.queue.topic, len(messages))
        if held.queue.topic == self._retry_topic:
            for message in messages:
                message.topic = message.properties.get("RETRY_TOPIC", message.topic)
        self._ready.extend(messages)
        if self._takers:
            self._takers.unpark(count=len(messages))

    async def take(self, number: int = 1) -> list[ReceivedMessage]:
        """Wait for messages, return at least one and at most that many. Each must be acknowledged or retried."""
        self._handed_out += 1
        if self._handed_out % PACE == 0:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            found = self._pop(number)
            if found:
                return found
            await self._takers.park()

    def _pop(self, number: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        ready = self._ready
        while ready and len(found) < number:
            message = ready.popleft()
            held = message.held
            if isinstance(held, HeldQueue) and not held.dropped:
                message.consume_started_ms = self._now_ms()
                found.append(message)
        return found

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Deliver these again next: their receiver was cancelled."""
        for message in reversed(messages):
            message.consume_started_ms = 0
            self._ready.appendleft(message)
        self._takers.unpark(count=len(messages))

    def ack(self, message: ReceivedMessage) -> None:
        """The message is done. Ignored if the queue has moved to another member: it is delivered again."""
        held = message.held
        if not isinstance(held, HeldQueue):
            raise UsageError(f"{message!r} was not delivered by a consumer")
        committed = held.finish(message)
        if committed >= 0 and not held.dropped:
            self._offsets.raise_to(held.queue, committed)

    async def retry(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the message delivered again: after a level's delay; 0: the broker chooses; -1: as a dead letter.

        Cancelled, or when the broker does not take it, the message is handed out here once more.
        """
        held = message.held
        if not isinstance(held, HeldQueue) or held.dropped:
            return
        if self._options.broadcasting:
            _log.warning("event=message_dropped message=%r reason=no_retry_in_broadcasting", message)
            self.ack(message)
            return
        sent_back = False
        try:
            sent_back = await self._send_back.send_back(message, delay_level)
            if not sent_back:
                message.reconsume_times += 1
                await trio.sleep(AGAIN_S)
        finally:
            if sent_back:
                self.ack(message)
            else:
                self.put_back([message])

    async def sweep(self, held: Mapping[MessageQueue, HeldQueue]) -> None:
        """Send back messages that were delivered too long ago, until cancelled."""
        while True:
            await trio.sleep(self._options.consume_timeout_s)
            limit_ms = self._now_ms() - int(self._options.consume_timeout_s * 1000)
            for message in _delivered_before(limit_ms, held):
                _log.warning("event=consume_timeout message=%r next_step=acknowledge_or_raise_in_time", message)
                if await self._send_back.send_back(message, SWEPT_LEVEL):
                    self.ack(message)


def acknowledge_all(stock: MessageBuffer, messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        stock.ack(message)


def _delivered_before(limit_ms: int, held: Mapping[MessageQueue, HeldQueue]) -> Iterator[ReceivedMessage]:
    """Yield the oldest messages of each queue while they were delivered before; the queues may change meanwhile."""
    for each in list(held.values()):
        yield from takewhile(
            lambda message: 0 < message.consume_started_ms < limit_ms, each.messages.first(SWEPT_AT_ONCE)
        )
