"""The pull consumer: the application asks for messages, chooses queues, seeks and commits.

Source: RocketMQ 4.9.8 DefaultLitePullConsumerImpl.
"""

import logging
import ssl
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import trio

from netstack.client.consume.assignment import Assignment
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets, max_offset, min_offset
from netstack.client.consume.queue_fetcher import QueueFetcher
from netstack.client.consume.queue_reader import QueueReader
from netstack.client.consume.subscriptions import Sql, Subscriptions
from netstack.client.errors import ClientError, NotAssigned, UsageError
from netstack.client.instance import Credentials, Instance, shared_or_own
from netstack.client.introspection import running_info
from netstack.client.lifetime import Lifetime
from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from netstack.wire.json_body import MessageQueue

QUEUES_EVERY_S = 30.0
GOODBYE_S = 3.0
ONE_OF_BOTH = "subscribe and assign exclude one another; make another consumer"
LITE = ConsumerOptions(pull_batch=10, hold_s=20.0)
_log = logging.getLogger("netstack.client")


class PullConsumer(QueueReader):
    """Either subscribe (a member of the group, queues come and go) or assign (fixed queues); use it with `async with`.

        async with PullConsumer("group", "127.0.0.1:9876") as consumer:
            await consumer.assign(await consumer.queues("topic"))
            for message in await consumer.poll(): ...

    Polling moves the position; with auto-commit a later poll commits it, so a crash repeats up to five seconds.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance: Instance | None = None,
        options: ConsumerOptions = LITE,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        shared, self._own = shared_or_own(instance, namesrv, credentials, tls)
        super().__init__(shared, group)
        self.options = options
        self._subscriptions = Subscriptions(self.instance.now_ms)
        self._offsets = RemoteOffsets(self.instance, group)
        uses = self.instance, group, self._subscriptions, self._offsets, options
        self._assignment = Assignment(*uses, begin=self._begin)
        self._fixed: dict[MessageQueue, HeldQueue] | None = None
        self._fetcher = QueueFetcher(*uses, held=lambda: self._held.values())
        self._commit_at = 0.0
        self._rebalancing = False
        self._started_ms = 0
        self._lifetime = Lifetime(f"consumer {group}")

    # --- life

    async def __aenter__(self) -> Self:
        self._lifetime.require_fresh()
        self.instance.add(self, consumes=True)
        if self._own is not None:
            await self._own.__aenter__()
        nursery = await self._lifetime.begin()
        self._started_ms = self.instance.now_ms()
        self._commit_at = trio.current_time() + self.options.persist_every_s
        nursery.start_soon(self._persist)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._lifetime.end()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2 * GOODBYE_S):
                if self.options.auto_commit and kind is None:
                    self._note_positions()
                with trio.move_on_after(GOODBYE_S):
                    await self._offsets.persist(list(self._held))
                await self.instance.remove(self, consumes=True)
            if self._own is not None:
                await self._own.__aexit__(None, None, None)

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks of this consumer run; those of its connections are in that of the instance."""
        return self._lifetime.nursery

    @property
    def _held(self) -> dict[MessageQueue, HeldQueue]:
        return self._assignment.held if self._fixed is None else self._fixed

    async def _persist(self) -> None:
        while True:
            await trio.sleep(self.options.persist_every_s)
            await self._offsets.persist(list(self._held))

    def _begin(self, held: HeldQueue) -> None:
        self._offsets.forget(held.queue)  # as it was when it was held before: another may have gone on since
        self._fetcher.positions.pop(held.queue, None)
        self._lifetime.nursery.start_soon(self._fetcher.run, held)

    # --- which queues

    async def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Join the group for a topic; its members share the queues. Raises UsageError after assign, StrategyFailed.

        An error or a cancellation changes nothing.
        """
        route, before = await self.instance.route(topic), self._subscriptions.get(topic)
        if self._fixed is not None:
            raise UsageError(ONE_OF_BOTH)
        self._assignment.try_strategy(route)
        self._subscriptions.put(topic, expression)
        first, self._rebalancing, taken = not self._rebalancing, True, False
        try:
            await self.instance.heartbeat()
            self._subscriptions.announced()
            if first:
                await self._assignment.rebalance()
            taken = True
        finally:
            if not taken:
                self._subscriptions.restore(topic, before)
            if first and self._lifetime.open:
                self._lifetime.nursery.start_soon(self._assignment.run)
            else:
                self._assignment.wake()

    async def unsubscribe(self, topic: str) -> None:
        self._subscriptions.drop(topic)
        self._assignment.wake()
        await self.instance.heartbeat()

    async def assign(self, queues: Iterable[MessageQueue], expressions: Mapping[str, str | Sql] | None = None) -> None:
        """Consume exactly these queues from now on, one expression per topic. Raises UsageError after subscribe."""
        wanted = list(queues)
        for topic in {queue.topic for queue in wanted}:
            await self.instance.route(topic)  # before anything has changed
        if self._subscriptions.topics:
            raise UsageError(ONE_OF_BOTH)
        self._fetcher.expressions.update(expressions or {})
        fixed = self._fixed = self._fixed if self._fixed is not None else {}
        for queue in [each for each in fixed if each not in wanted]:
            fixed.pop(queue).drop()
        for queue in wanted:
            if queue not in fixed:
                fixed[queue] = HeldQueue(queue, -1)
                self._begin(fixed[queue])

    async def queue_changes(self, topic: str) -> AsyncGenerator[tuple[MessageQueue, ...]]:
        """Return the queues of a topic, first as they are, then whenever they differ; looks twice a minute."""
        known: tuple[MessageQueue, ...] | None = None
        while True:
            try:
                queues = await self.queues(topic)
            except ClientError as error:
                _log.info("event=queues_unknown topic=%s reason=%s", topic, error)
            else:
                if queues != known:
                    known = queues
                    yield queues
            await trio.sleep(QUEUES_EVERY_S)

    @property
    def assigned(self) -> Collection[MessageQueue]:
        """The queues held now."""
        return [queue for queue, held in self._held.items() if not held.dropped]

    def _queue(self, queue: MessageQueue) -> HeldQueue:
        held = self._held.get(queue)
        if held is None or held.dropped:
            raise NotAssigned(f"{queue} is not assigned to this consumer; assigned are {len(self.assigned)} queues")
        return held

    async def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """Return the next messages of one queue, none if none arrived in time. The position moves past them."""
        if self.options.auto_commit and trio.current_time() >= self._commit_at:
            self._note_positions()
            self._commit_at = trio.current_time() + self.options.persist_every_s
        await trio.lowlevel.checkpoint()
        return await self._fetcher.next(timeout_s)

    # --- positions

    def _note_positions(self) -> None:
        for queue in self._held:
            if self._fetcher.positions.get(queue, -1) >= 0:
                self._offsets.set(queue, self._fetcher.positions[queue])

    async def commit(self, positions: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled, or these offsets, and wait until the brokers have it. Raises NotAssigned."""
        if positions is None:
            self._note_positions()
        else:
            for queue, queue_offset in positions.items():
                self._queue(queue)
                self._offsets.set(queue, queue_offset)
        await self._offsets.persist(list(self._held) if positions is None else list(positions))

    async def committed(self, queue: MessageQueue) -> int:
        """Return the committed offset, -1 when there is none. Raises ClientError."""
        known = self._offsets.get(queue)
        return known if known >= 0 else await self._offsets.read(queue)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset after the last polled message, -1 before the first. Raises NotAssigned."""
        self._queue(queue)
        return self._fetcher.positions.get(queue, -1)

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue a queue from an offset, without its cached messages. Raises NotAssigned, UsageError outside it."""
        self._queue(queue)
        lowest, highest = await min_offset(self.instance, queue), await max_offset(self.instance, queue)
        if not max(0, lowest) <= queue_offset <= highest:
            raise UsageError(f"offset {queue_offset} of {queue}: there are {lowest}..{highest}")
        self._fetcher.seek(self._queue(queue), queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self.seek(queue, max(0, await min_offset(self.instance, queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self.seek(queue, await max_offset(self.instance, queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        await self.seek(queue, await self.offset_at(queue, time_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues; cached messages are still polled. Raises NotAssigned."""
        for queue in queues:
            self._queue(queue).paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            held = self._queue(queue)
            held.paused = False
            held.change()

    # --- what the instance asks

    @property
    def topics(self) -> Collection[str]:
        return self._subscriptions.topics

    def heartbeat(self) -> ConsumerData:
        model, start = MessageModel.CLUSTERING, self.options.start_from.value
        return ConsumerData(self.group, ConsumeType.CONSUME_ACTIVELY, model, start, self._subscriptions.all())

    def wake(self) -> None:
        self._assignment.wake()

    def reset(self, topic: str, positions: Mapping[MessageQueue, int]) -> None:
        """Nothing: brokers reset push consumers only."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._fetcher.positions.items() if queue.topic == topic}

    def running_info(self, *, with_tasks: bool) -> ConsumerRunningInfo:
        return running_info(
            *(self.instance, self.options, self._offsets, self._held),
            subscriptions=self._subscriptions.all(),
            kind=ConsumeType.CONSUME_ACTIVELY,
            started_ms=self._started_ms,
            status={},
            with_tasks=with_tasks,
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeDirectlyResult:
        remark = "a pull consumer has no handler to call"
        return ConsumeDirectlyResult(ConsumeResult.CR_THROW_EXCEPTION, False, True, 0, remark)
