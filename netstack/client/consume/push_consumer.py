"""The push consumer: messages of a group's share of queues, by `async for` or by a handler."""

import ssl
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

import trio

from netstack.client.consume.assignment import Assignment
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.consuming import MessageBuffer, acknowledge_all
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.local_offsets import LocalOffsets
from netstack.client.consume.offsets import OffsetStore, RemoteOffsets
from netstack.client.consume.orderly import OrderlyFlow
from netstack.client.consume.pulling import Puller
from netstack.client.consume.send_back import SendBack
from netstack.client.consume.subscriptions import Sql, Subscriptions
from netstack.client.errors import NoRoute, UsageError
from netstack.client.handlers import BatchHandler, Handler, call, consume_directly, for_batch, inside
from netstack.client.instance import Credentials, Instance, shared_or_own
from netstack.client.introspection import running_info
from netstack.client.lifetime import Lifetime
from netstack.client.messages import ReceivedMessage
from netstack.client.produce.trace import Tracer
from netstack.client.routes import any_address
from netstack.client.statistics import ConsumeCounts
from netstack.client.text import RETRY
from netstack.wire.bodies import (
    CheckClient,
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from netstack.wire.codes import RequestCode
from netstack.wire.json_body import MessageQueue

GOODBYE_S = 3.0
THREADS = 20


class PushConsumer:
    """A member of a consumer group. Subscribe, then use it with `async with`; leaving persists offsets and unregisters.

    async with PushConsumer("group", "127.0.0.1:9876") as consumer:
        await consumer.subscribe("topic", "tag1 || tag2")
        async for message in consumer:
            work(message.body)
            consumer.ack(message)
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance: Instance | None = None,
        options: ConsumerOptions | None = None,
        topics: Mapping[str, str | Sql] | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.group = group
        self.options = options = options or ConsumerOptions()
        name = "DEFAULT" if options.broadcasting else ""  # the offsets file has the same path after a restart
        self.instance, self._own = shared_or_own(instance, namesrv, credentials, tls, name=name)
        self._subscriptions = Subscriptions(self.instance.now_ms)
        for topic, expression in (topics or {}).items():
            self._subscriptions.put(topic, expression)
        self._lifetime = Lifetime(f"consumer {group}")
        self._threads = trio.CapacityLimiter(THREADS)
        self._handler: BatchHandler | None = None
        self._started_ms = 0
        self._counts = ConsumeCounts(trio.current_time)
        self._tracer = Tracer(self.instance, group, options.trace_topic, "CONSUME")
        self._build()

    def _build(self) -> None:
        """Connect the parts."""
        instance, group, options = self.instance, self.group, self.options
        self._local = LocalOffsets(options.offsets_folder, instance.client_id, group) if options.broadcasting else None
        self._offsets: OffsetStore = self._local or RemoteOffsets(instance, group)
        self._assignment = Assignment(
            instance, group, self._subscriptions, self._offsets, options, begin=self._begin_queue
        )
        send_back = SendBack(instance, group, options)
        self._stock = MessageBuffer(
            group, self._offsets, options, send_back, now_ms=instance.now_ms, counts=self._counts
        )
        self._ordered = OrderlyFlow(
            group, self._offsets, options, send_back, held=self._assignment.held, counts=self._counts
        )
        self._puller = Puller(
            instance,
            group,
            self._subscriptions,
            self._offsets,
            options,
            assignment=lambda: self._assignment,
            arrived=self._ordered.arrived if options.orderly else self._stock.arrived,
        )

    def _begin_queue(self, held: HeldQueue) -> None:
        self._lifetime.nursery.start_soon(self._puller.run, held)
        if self.options.orderly:
            self._ordered.begin(held)

    # --- life

    async def __aenter__(self) -> Self:
        self._lifetime.require_fresh()
        self.instance.add(self, consumes=True)
        if self._own is not None:
            await self._own.__aenter__()
        nursery = await self._lifetime.begin()
        self._started_ms = self.instance.now_ms()
        entered = False
        try:
            if self._local is not None:
                await self._local.load()
            else:
                self._subscriptions.put(RETRY + self.group, "*")
            await self._announce()
            entered = True
        finally:
            if not entered:
                await self.__aexit__(None, None, None)
        nursery.start_soon(self._assignment.run)
        nursery.start_soon(self._persist)
        nursery.start_soon(self._tracer.run)
        if self.options.orderly:
            nursery.start_soon(self._assignment.keep_locks)
        else:
            nursery.start_soon(self._stock.sweep, self._assignment.held)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._lifetime.end()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2 * GOODBYE_S):
                with trio.move_on_after(GOODBYE_S):
                    await self._assignment.leave()
                await self._tracer.flush()
                await self.instance.remove(self, consumes=True)
            if self._own is not None:
                await self._own.__aexit__(None, None, None)

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks of this consumer run; those of its connections are in that of the instance."""
        return self._lifetime.nursery

    async def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Subscribe to a topic, or change its filter: tags `a || b`, `*`, or Sql(...).

        Raises BrokerRefused for a bad expression, StrategyFailed. An error or a cancellation changes nothing.
        """
        before = self._subscriptions.get(topic)
        self._subscriptions.put(topic, expression)
        if self._lifetime.open:
            taken = False
            try:
                await self._announce()
                taken = True
            finally:
                if not taken:
                    self._subscriptions.restore(topic, before)
                self._assignment.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; its queues go back with the next rebalance, which comes at once."""
        self._subscriptions.drop(topic)
        if self._lifetime.open:
            self._assignment.wake()
            await self.instance.heartbeat()
            self._subscriptions.announced()

    async def _announce(self) -> None:
        """Learn the routes, have strategy and expressions checked, tell all brokers.

        Raises StrategyFailed, BrokerRefused for a bad expression.
        """
        for data in self._subscriptions.all():
            try:
                route = await self.instance.route(data.topic)
            except NoRoute:
                continue  # the topic may come later
            self._assignment.try_strategy(route)
            if data.expression_type != "TAG" and route.brokers:
                address = any_address(route.brokers, min(route.brokers))
                body = CheckClient(self.instance.client_id, self.group, data).to_bytes()
                if address is not None:
                    await self.instance.ask_ok(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
        await self.instance.heartbeat()
        self._subscriptions.announced()

    async def _persist(self) -> None:
        while True:
            await trio.sleep(self.options.persist_every_s)
            await self._offsets.persist(list(self._assignment.held))

    def pause(self) -> None:
        """Stop pulling; cached messages are still delivered."""
        self._puller.pause()

    def resume(self) -> None:
        self._puller.resume()

    async def commit(self) -> None:
        """Persist the offsets now instead of within five seconds."""
        await self._offsets.persist(list(self._assignment.held))

    @property
    def assigned(self) -> Collection[MessageQueue]:
        """The queues held now."""
        return [queue for queue, held in self._assignment.held.items() if not held.dropped]

    # --- consuming

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self.options.orderly:
            raise UsageError("ordered consumption needs a handler: `await consumer.run(handler)`")
        return (await self._stock.take())[0]

    async def take(self, number: int) -> list[ReceivedMessage]:
        """Return at least one and at most that many messages; each must be acknowledged or retried."""
        if self.options.orderly:
            raise UsageError("ordered consumption needs a handler: `await consumer.run(handler)`")
        return await self._stock.take(number)

    def ack(self, message: ReceivedMessage) -> None:
        """The message is done. The offset moves past it once all before it in its queue are done too."""
        self._stock.ack(message)

    async def retry(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the message delivered again later: level 1..18, 0 as the broker decides, -1 as a dead letter at once."""
        await self._stock.retry(message, delay_level)

    async def run(self, handler: Handler, *, concurrency: int = THREADS) -> None:
        """Call the handler for each message until cancelled; its return acknowledges, its exception retries.

        A plain function runs in a thread. With `orderly`, one message of a queue at a time.
        """
        await self._run(for_batch(handler), 1, concurrency)

    async def run_batches(self, handler: BatchHandler, *, batch: int = 32, concurrency: int = THREADS) -> None:
        """As run, for up to that many messages at once."""
        await self._run(handler, batch, concurrency)

    async def _run(self, handler: BatchHandler, batch: int, concurrency: int) -> None:
        self._threads.total_tokens = concurrency
        if self.options.telemetry is not None:
            span = partial(self.options.telemetry.processing, group=self.group, client_id=self.instance.client_id)
            handler = inside(span, handler)
        self._handler = handler
        try:
            if self.options.orderly:
                await self._ordered.run(handler, batch, self._threads)
            else:
                async with trio.open_nursery() as nursery:
                    for _ in range(concurrency):
                        nursery.start_soon(self._work, handler, batch)
        finally:
            self._handler = None

    async def _work(self, handler: BatchHandler, batch: int) -> None:
        """One worker: take, call, acknowledge or retry."""
        while True:
            messages = await self._stock.take(batch)
            unsettled = list(messages)
            try:
                await self._settle(handler, messages, unsettled)
            finally:
                if unsettled:
                    self._stock.put_back(unsettled)

    async def _settle(
        self, handler: BatchHandler, messages: Sequence[ReceivedMessage], unsettled: list[ReceivedMessage]
    ) -> None:
        """Call the handler and act on the outcome; what is settled leaves the list."""
        began = trio.current_time()
        request_id = messages[0].offset_message_id if self._tracer.on else ""
        self._tracer.consuming(messages, request_id)
        outcome = await call(handler, messages, self._threads)
        took_ms = (trio.current_time() - began) * 1000
        failed = outcome.error is not None
        self._counts.consumed(messages[0].topic, len(messages), took_ms, failed=failed)
        self._tracer.consumed(messages, request_id, int(took_ms), failed=failed)
        done = len(messages) if outcome.error is None else outcome.error.done
        acknowledge_all(self._stock, messages[:done])
        del unsettled[:done]
        while unsettled and outcome.error is not None:
            # Its own from here on: cancelled in there, it is handed out again.
            await self._stock.retry(unsettled.pop(0), outcome.error.delay_level)

    # --- what the instance asks

    @property
    def topics(self) -> Collection[str]:
        return self._subscriptions.topics

    def heartbeat(self) -> ConsumerData:
        model = MessageModel.BROADCASTING if self.options.broadcasting else MessageModel.CLUSTERING
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            model,
            self.options.start_from.value,
            self._subscriptions.all(),
        )

    def wake(self) -> None:
        self._assignment.wake()

    def reset(self, topic: str, positions: Mapping[MessageQueue, int]) -> None:
        self._assignment.reset({queue: offset for queue, offset in positions.items() if queue.topic == topic})

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        held = [queue for queue in self._assignment.held if queue.topic == topic]
        return {queue: self._offsets.get(queue) for queue in held if self._offsets.get(queue) >= 0}

    def running_info(self, *, with_tasks: bool) -> ConsumerRunningInfo:
        return running_info(
            self.instance,
            self.options,
            self._offsets,
            self._assignment.held,
            subscriptions=self._subscriptions.all(),
            kind=ConsumeType.CONSUME_PASSIVELY,
            started_ms=self._started_ms,
            status=self._counts.status(),
            with_tasks=with_tasks,
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeDirectlyResult:
        return await consume_directly(self._handler, message, self._threads, orderly=self.options.orderly)
