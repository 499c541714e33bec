"""The producer: send and wait, pipelined, one-way, batches, ordered, half messages, request and reply."""

import base64
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from netstack.client.errors import MessageRejected, UsageError
from netstack.client.instance import Credentials, Instance, shared_or_own
from netstack.client.lifetime import Lifetime
from netstack.client.messages import (
    MIB,
    Message,
    ReceivedMessage,
    SendResult,
    split_batch,
)
from netstack.client.produce.pipeline import Pending, Pipeline
from netstack.client.produce.requesting import Requesting
from netstack.client.produce.sending import Selector, Sender
from netstack.client.produce.trace import Tracer
from netstack.client.produce.transactions import Check, HalfMessage, ProducerTransactions, Verdict
from netstack.client.send_request import EndsOnFailure, ProducerOptions
from netstack.client.text import hashed_position
from netstack.wire.codes import RequestCode
from netstack.wire.headers import CheckTransactionHeader, RecallHeader
from netstack.wire.json_body import MessageQueue

GOODBYE_S = 3.0
Execute = Callable[[Message, str], Awaitable[Verdict | None]]


class Producer:
    """Sends messages for a group. Use it with `async with`; its end waits for the sends of `submit`.

    Give `instance` to share connections with other producers and consumers; otherwise it creates its own.
    Brokers call `check` for half messages without a verdict.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance: Instance | None = None,
        options: ProducerOptions | None = None,
        check: Check | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.group, self.options = group, options or ProducerOptions()
        self.instance, self._own = shared_or_own(instance, namesrv, credentials, tls)
        self._tracer = Tracer(self.instance, group, self.options.trace_topic)
        self._sender = Sender(self.instance, group, self.options, self._tracer.sent if self._tracer.on else None)
        self._transactions = ProducerTransactions(self._sender, check, self._tracer)
        self._requesting = Requesting(self._sender)
        self._lifetime = Lifetime(f"producer {group}")
        self._pipeline: Pipeline | None = None

    async def __aenter__(self) -> Self:
        self._lifetime.require_fresh()
        self.instance.add(self, consumes=False)
        if self._own is not None:
            await self._own.__aenter__()
        nursery = await self._lifetime.begin()
        self._pipeline = Pipeline(self._sender, nursery)
        nursery.start_soon(self._pipeline.watch_deadlines)
        nursery.start_soon(self._transactions.run)
        nursery.start_soon(self._tracer.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._pipeline is not None:
                await self._pipeline.wait_empty()
        finally:
            if self._pipeline is not None:
                self._pipeline.close()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + GOODBYE_S):
                await self._tracer.flush()
            try:
                await self._lifetime.end()
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + GOODBYE_S):
                    await self.instance.remove(self, consumes=False)
                if self._own is not None:
                    await self._own.__aexit__(None, None, None)

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks of this producer run; those of its connections are in that of the instance."""
        return self._lifetime.nursery

    def _require_open(self) -> Pipeline:
        if self._pipeline is None or not self._lifetime.open:
            raise UsageError(f"producer {self.group} is not open: use `async with`")
        return self._pipeline

    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendResult:
        """Send and wait for the acknowledgement. Raises MessageRejected, BrokerRefused, SendFailed, NoRoute, …"""
        self._require_open()
        return await self._sender.send(self._sender.make(message), timeout_s)

    async def send_to(self, queue: MessageQueue, message: Message, *, timeout_s: float | None = None) -> SendResult:
        """Send to one queue, once."""
        self._require_open()
        if queue.topic != message.topic:
            raise MessageRejected(f"queue of {queue.topic}, message for {message.topic}")
        return await self._sender.send(self._sender.make(message), timeout_s, queue=queue)

    async def send_selected(self, message: Message, select: Selector, *, timeout_s: float | None = None) -> SendResult:
        """Send to the queue that `select` picks out of all writable ones, once."""
        self._require_open()
        route = await self._sender.route(message.topic)
        return await self.send_to(select(route.publish), message, timeout_s=timeout_s)

    async def send_ordered(self, message: Message, key: object, *, timeout_s: float | None = None) -> SendResult:
        """Send to the queue of a key, the same that the Java client's hash selector picks."""
        return await self.send_selected(
            message, lambda queues: queues[hashed_position(key, len(queues))], timeout_s=timeout_s
        )

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> SendResult:
        """Send several messages of one topic as one; they are stored together or not at all."""
        self._require_open()
        return await self._sender.send(self._sender.make_batch(messages), timeout_s, queue=queue)

    async def send_all(
        self, messages: Iterable[Message], *, limit_bytes: int = MIB, timeout_s: float | None = None
    ) -> list[SendResult]:
        """Send messages of one topic in as many batches as the limit asks for."""
        return [await self.send_batch(lot, timeout_s=timeout_s) for lot in split_batch(messages, limit_bytes)]

    async def send_oneway(self, message: Message) -> None:
        """Send without an acknowledgement; the result is unknown. Raises Unreachable, NoRoute."""
        self._require_open()
        out = self._sender.make(message)
        with EndsOnFailure(out.ended):
            route = await self._sender.route(message.topic)
            queue = self._sender.pick(route)
            address = self._sender.address(queue.broker_name, route)
            ext = out.header(self.group, queue, self.options, self.instance.now_ms())
            while not await self.instance.tell(address, out.code, ext, out.body):  # noqa: ASYNC110 many may wait for room
                await trio.sleep(0.01)
        if out.ended is not None:
            out.ended(None, None)

    async def submit(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> Pending:
        """Start a send; waits only while `options.window` are under way. `await pending.wait()` gives the result."""
        pipeline = self._require_open()
        return await pipeline.submit(
            self._sender.make(message), self.options.timeout_s if timeout_s is None else timeout_s, queue
        )

    async def submit_batch(self, messages: Sequence[Message], *, timeout_s: float | None = None) -> Pending:
        """As submit, for a batch."""
        pipeline = self._require_open()
        return await pipeline.submit(
            self._sender.make_batch(messages), self.options.timeout_s if timeout_s is None else timeout_s
        )

    async def wait_sent(self) -> None:
        """Return once every submitted send has its result."""
        await self._require_open().wait_empty()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic can be written to now. Raises NoRoute."""
        return (await self._sender.route(topic)).publish

    async def send_in_transaction(self, message: Message, execute: Execute) -> tuple[SendResult, Verdict]:
        """Send a half message, run `execute(message, id)` and tell the broker its verdict.

        None or an error of `execute` leaves the verdict open: the broker asks `check` later. The error is logged.
        """
        self._require_open()
        return await self._transactions.send(message, execute)

    @asynccontextmanager
    async def transaction(self, message: Message) -> AsyncGenerator[HalfMessage]:
        """Send a half message and run the block: its end commits, an exception rolls back, a cancellation neither."""
        self._require_open()
        async with self._transactions.half(message) as half:
            yield half

    async def request(self, message: Message, *, timeout_s: float = 3.0) -> ReceivedMessage:
        """Send a request and return the reply of its consumer. Raises NoReply and what send raises."""
        self._require_open()
        return await self._requesting.request(message, timeout_s)

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a timed message before its delivery; return its id. Raises BrokerRefused if it is too late."""
        route = await self._sender.route(topic)
        header = RecallHeader(topic, recall_handle, self.group)
        broker = _broker_of(recall_handle) or route.publish[0].broker_name
        answer = await self.instance.ask_ok(self._sender.address(broker, route), RequestCode.RECALL_MESSAGE, header)
        return answer.ext.get("msgId", "")

    def check_transaction(self, address: str, header: CheckTransactionHeader, message: ReceivedMessage) -> None:
        """A broker asks about a half message; called by the instance."""
        self._transactions.take_check(address, header, message)


def _broker_of(recall_handle: str) -> str | None:
    """Return the broker named inside a handle: URL-safe base64 of `v1 topic broker time id`."""
    try:
        parts = base64.urlsafe_b64decode(recall_handle).decode().split(" ")
    except ValueError:
        return None
    return parts[2] if len(parts) == 5 else None
