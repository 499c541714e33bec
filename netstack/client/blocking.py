"""The client for programs without trio, scripts and Spark drivers: plain calls into one background thread.

    with Producer("group", "127.0.0.1:9876") as producer:
        producer.send(Message("topic", b"body"))

Methods and errors are those of the asynchronous classes. An interrupt (Ctrl-C) ends the current call.
"""

import queue
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import trio

from netstack.client.consume import pull_consumer as async_pull
from netstack.client.consume import push_consumer as async_push
from netstack.client.consume.pulling import Pulled
from netstack.client.consume.subscriptions import Sql
from netstack.client.errors import UsageError
from netstack.client.messages import MIB, Message, MessageQueue, ReceivedMessage, SendResult
from netstack.client.produce import producer as async_producer
from netstack.client.produce.transactions import Verdict
from netstack.lazy import make_all

T = TypeVar("T")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])
_beginning = threading.Lock()


class _Thread:
    """A thread that runs trio and keeps one object open in it."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._make = make
        self._begun: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._release: trio.Event
        self.token: trio.lowlevel.TrioToken
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="rocketbox-client", daemon=True)

    def start(self) -> Any:
        """Return the opened object. Raises what opening it raised."""
        with _beginning:
            make_all()
        self._thread.start()
        opened = self._begun.get()
        if opened is None:
            self._thread.join()
            raise self._failure or UsageError("the client thread ended at once")
        return opened

    def _work(self) -> None:
        try:
            trio.run(self._hold)
        except Exception as failure:  # handed to the caller's thread
            self._failure = failure
        finally:
            self._begun.put(None)

    async def _hold(self) -> None:
        self.token, self._release = trio.lowlevel.current_trio_token(), trio.Event()
        async with self._make() as opened:
            self._begun.put(opened)
            await self._release.wait()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        if not self._thread.is_alive():
            raise self._failure or UsageError("this client is closed")
        return trio.from_thread.run(function, *args, trio_token=self.token)

    def stop(self) -> None:
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._release.set, trio_token=self.token)
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class _Facade(Generic[C]):
    """A client object of another thread, open between `with` and its end."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread = _Thread(make)
        self._opened: C | None = None

    def __enter__(self) -> Self:
        self._opened = self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened = None
        self._thread.stop()

    @property
    def _inner(self) -> C:
        if self._opened is None:
            raise UsageError("not open: use `with`")
        return self._opened

    def _run(self, function: Callable[..., Awaitable[T]], **named: Any) -> T:
        async def call() -> T:
            return await function(**named)

        return self._thread.run(call)

    def _now(self, function: Callable[[], T]) -> T:
        return trio.from_thread.run_sync(function, trio_token=self._thread.token)


class Producer(_Facade[async_producer.Producer]):
    """Takes the arguments of netstack.client.Producer."""

    def __init__(self, group: str, namesrv: str | Sequence[str] | None = None, **more: Any) -> None:
        super().__init__(lambda: async_producer.Producer(group, namesrv, **more))

    def send(self, message: Message, *, timeout_s: float | None = None) -> SendResult:
        return self._run(self._inner.send, message=message, timeout_s=timeout_s)

    def send_to(self, queue: MessageQueue, message: Message, *, timeout_s: float | None = None) -> SendResult:
        return self._run(self._inner.send_to, queue=queue, message=message, timeout_s=timeout_s)

    def send_ordered(self, message: Message, key: object, *, timeout_s: float | None = None) -> SendResult:
        return self._run(self._inner.send_ordered, message=message, key=key, timeout_s=timeout_s)

    def send_batch(self, messages: Sequence[Message], *, timeout_s: float | None = None) -> SendResult:
        return self._run(self._inner.send_batch, messages=messages, timeout_s=timeout_s)

    def send_all(self, messages: Iterable[Message], *, limit_bytes: int = MIB) -> list[SendResult]:
        return self._run(self._inner.send_all, messages=list(messages), limit_bytes=limit_bytes)

    def send_oneway(self, message: Message) -> None:
        self._run(self._inner.send_oneway, message=message)

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send pipelined and return the results in order. Raises the first failure once all have their answer."""
        producer = self._inner

        async def send_each() -> list[SendResult]:
            under_way = [await producer.submit(message) for message in messages]
            return [await pending.wait() for pending in under_way]

        return self._thread.run(send_each)

    def send_in_transaction(
        self, message: Message, execute: Callable[[Message, str], Verdict | None]
    ) -> tuple[SendResult, Verdict]:
        """Send a half message, run `execute(message, id)` in a thread, send the verdict to the broker."""

        async def executed(half: Message, message_id: str) -> Verdict | None:
            return await trio.to_thread.run_sync(execute, half, message_id)

        return self._run(self._inner.send_in_transaction, message=message, execute=executed)

    def request(self, message: Message, *, timeout_s: float = 3.0) -> ReceivedMessage:
        return self._run(self._inner.request, message=message, timeout_s=timeout_s)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._run(self._inner.queues, topic=topic)


class PushConsumer(_Facade[async_push.PushConsumer]):
    """Takes the arguments of netstack.client.PushConsumer; give `topics`. Iterating waits for the next message."""

    def __init__(self, group: str, namesrv: str | Sequence[str] | None = None, **more: Any) -> None:
        super().__init__(lambda: async_push.PushConsumer(group, namesrv, **more))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            yield self._thread.run(self._inner.__anext__)

    def take(self, number: int = 32, *, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """Return up to that many messages; an empty list if none arrived in time."""
        consumer = self._inner

        async def take() -> list[ReceivedMessage]:
            with trio.move_on_after(timeout_s):
                return await consumer.take(number)
            return []

        return self._thread.run(take)

    def ack(self, message: ReceivedMessage) -> None:
        consumer = self._inner
        self._now(lambda: consumer.ack(message))

    def ack_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Acknowledge many at once, which saves a change of threads for each."""
        consumer, done = self._inner, list(messages)

        def ack() -> None:
            for message in done:
                consumer.ack(message)

        self._now(ack)

    def retry(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        self._run(self._inner.retry, message=message, delay_level=delay_level)

    def commit(self) -> None:
        self._run(self._inner.commit)


class PullConsumer(_Facade[async_pull.PullConsumer]):
    """Takes the arguments of netstack.client.PullConsumer."""

    def __init__(self, group: str, namesrv: str | Sequence[str] | None = None, **more: Any) -> None:
        super().__init__(lambda: async_pull.PullConsumer(group, namesrv, **more))

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        self._run(self._inner.subscribe, topic=topic, expression=expression)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        self._run(self._inner.assign, queues=list(queues))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._run(self._inner.queues, topic=topic)

    @property
    def assigned(self) -> Collection[MessageQueue]:
        consumer = self._inner
        return self._now(lambda: consumer.assigned)

    def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        return self._run(self._inner.poll, timeout_s=timeout_s)

    def pull(self, queue: MessageQueue, queue_offset: int, *, max_count: int = 32, hold_s: float = 0.0) -> Pulled:
        return self._run(self._inner.pull, queue=queue, queue_offset=queue_offset, max_count=max_count, hold_s=hold_s)

    def commit(self) -> None:
        self._run(self._inner.commit)

    def committed(self, queue: MessageQueue) -> int:
        return self._run(self._inner.committed, queue=queue)

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        self._run(self._inner.seek, queue=queue, queue_offset=queue_offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        self._run(self._inner.seek_to_begin, queue=queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        self._run(self._inner.seek_to_end, queue=queue)

    def ends(self, queue: MessageQueue) -> tuple[int, int]:
        return self._run(self._inner.ends, queue=queue)
