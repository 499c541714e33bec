"""Ordered consumption: one task per held queue, strictly one batch after the other.

Source: RocketMQ 4.9.8 ConsumeMessageOrderlyService.
"""

import logging
from collections.abc import Mapping, Sequence

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import OffsetStore
from netstack.client.consume.send_back import SendBack
from netstack.client.handlers import BatchHandler, HandlerResult, Ordered, Retry, call
from netstack.client.messages import ReceivedMessage
from netstack.client.statistics import ConsumeCounts
from netstack.client.text import RETRY
from netstack.wire.json_body import MessageQueue

SHORTEST_S, LONGEST_S = 0.01, 30.0
_log = logging.getLogger("netstack.client")


class OrderlyFlow:
    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        options: ConsumerOptions,
        send_back: SendBack,
        *,
        held: Mapping[MessageQueue, HeldQueue],
        counts: ConsumeCounts,
    ) -> None:
        self._group, self._offsets, self._options = group, offsets, options
        self._send_back, self._held, self._counts = send_back, held, counts
        self._nursery: trio.Nursery | None = None
        self._handler: tuple[BatchHandler, int, trio.CapacityLimiter] | None = None

    def arrived(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Take in what a pull brought."""
        self._counts.pulled(held.queue.topic, len(messages))
        if held.queue.topic == RETRY + self._group:
            for message in messages:
                message.topic = message.properties.get("RETRY_TOPIC", message.topic)
        held.change()

    def begin(self, held: HeldQueue) -> None:
        """A queue was added; serve it if somebody consumes."""
        if self._nursery is not None:
            self._nursery.start_soon(self._serve, held)

    async def run(self, handler: BatchHandler, batch: int, threads: trio.CapacityLimiter) -> None:
        """Serve all held queues until cancelled."""
        self._handler = handler, batch, threads
        try:
            async with trio.open_nursery() as self._nursery:
                for held in list(self._held.values()):
                    self._nursery.start_soon(self._serve, held)
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def _serve(self, held: HeldQueue) -> None:
        assert self._handler is not None
        handler, batch, threads = self._handler
        while True:
            await held.wait_until(lambda: held.dropped or (held.messages.waiting_count > 0 and self._allowed(held)))
            if held.dropped:
                return
            messages = held.messages.take(batch)
            held.busy = True
            began = trio.current_time()
            finished = False
            try:
                outcome = await call(handler, messages, threads)
                took_ms = (trio.current_time() - began) * 1000
                failed = outcome.error is not None
                self._counts.consumed(held.queue.topic, len(messages), took_ms, failed=failed)
                pause_s = await self._settle(held, messages, outcome)
                finished = True
            finally:
                if not finished:
                    held.messages.take_back(messages)  # cancelled: the next task of this queue begins here
                held.busy = False
                held.consumed_at = trio.current_time()
                held.change()
            if pause_s:
                await trio.sleep(pause_s)

    def _allowed(self, held: HeldQueue) -> bool:
        return self._options.broadcasting or held.lock.held

    async def _settle(self, held: HeldQueue, messages: Sequence[ReceivedMessage], outcome: HandlerResult) -> float:
        """Act on a handler's outcome; return how long the queue pauses."""
        committed, pause_s = -1, 0.0
        if outcome.error is not None:
            again = await self._still_to_retry(messages)
            if again:
                held.messages.take_back(messages)
                pause_s = self._rest(outcome.error)
            elif self._options.auto_commit:
                committed = held.messages.commit()
        elif self._options.auto_commit or outcome.value is Ordered.COMMIT:
            committed = held.messages.commit()
        elif outcome.value is Ordered.ROLLBACK:
            held.messages.rollback()
            pause_s = self._rest(Retry())
        if committed >= 0 and not held.dropped:
            self._offsets.set(held.queue, committed)
        return pause_s

    def _rest(self, retry: Retry) -> float:
        wanted = self._options.suspend_s if retry.after_s is None else retry.after_s
        return min(LONGEST_S, max(SHORTEST_S, wanted))

    async def _still_to_retry(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Raise the counts; what has failed too often goes to the dead letters. True when any is to be tried again."""
        limit = self._options.max_reconsume
        again = False
        for message in messages:
            if 0 <= limit <= message.reconsume_times and await self._send_back.send_to_retry(
                message, limit, 3 + message.reconsume_times
            ):
                continue
            message.reconsume_times += 1
            again = True
        return again
