"""The application's functions that consume: called under trio or in a thread, their outcome judged in one place."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

import trio

from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import ConsumeDirectlyResult, ConsumeResult

_log = logging.getLogger("netstack.client")


class Retry(Exception):
    """Raise it in a handler to have messages delivered again: after `delay_level`, 0 = the broker decides, -1 = never,
    as dead letters. Of a batch the first `done` messages are acknowledged. In order, `after_s` is the pause."""

    def __init__(self, delay_level: int = 0, *, done: int = 0, after_s: float | None = None) -> None:
        super().__init__(f"to be delivered again, delay level {delay_level}")
        self.delay_level, self.done, self.after_s = delay_level, done, after_s


class Ordered(Enum):
    """What an ordered handler without auto-commit returns; None means neither yet."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


Handler = Callable[[ReceivedMessage], object | Awaitable[object]]
BatchHandler = Callable[[Sequence[ReceivedMessage]], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The outcome of a handler; `error` is None after a success."""

    value: object
    error: Retry | None
    text: str = ""


def for_batch(handler: Handler) -> BatchHandler:
    """Return a handler of lists out of one of single messages."""
    if inspect.iscoroutinefunction(handler):

        async def each(messages: Sequence[ReceivedMessage]) -> object:
            return await handler(messages[0])

        return each
    return lambda messages: handler(messages[0])


def inside(
    context: Callable[[Sequence[ReceivedMessage]], AbstractContextManager[None]], handler: BatchHandler
) -> BatchHandler:
    """Return a handler that runs inside a context made for its messages, in the thread or task it runs in."""
    if inspect.iscoroutinefunction(handler):

        async def wrapped(messages: Sequence[ReceivedMessage]) -> object:
            with context(messages):
                return await handler(messages)

        return wrapped

    def called(messages: Sequence[ReceivedMessage]) -> object:
        with context(messages):
            return handler(messages)

    return called


async def call(
    handler: BatchHandler, messages: Sequence[ReceivedMessage], threads: trio.CapacityLimiter
) -> HandlerResult:
    """Run the application's function; a plain one in a thread. An exception means: deliver again later."""
    try:
        if inspect.iscoroutinefunction(handler):
            value = await handler(messages)
        else:
            (value,) = await trio.to_thread.run_sync(lambda: (handler(messages),), limiter=threads)  # trio would refuse
            if inspect.isawaitable(value):  # a bare coroutine, as a lambda around an async function returns it
                value = await value
    except Retry as retry:
        return HandlerResult(None, retry, str(retry))
    except Exception as error:  # the application's code; the message comes again
        _log.exception("event=handler_failed first=%r messages=%d", messages[0], len(messages))
        return HandlerResult(None, Retry(), f"{type(error).__name__}: {error}")
    return HandlerResult(value, None)


async def consume_directly(
    handler: BatchHandler | None, message: ReceivedMessage, threads: trio.CapacityLimiter, *, orderly: bool
) -> ConsumeDirectlyResult:
    """Run the handler on one message outside of the normal flow, at the request of a tool."""
    if handler is None:
        remark = "this consumer takes messages by `async for`, it has no handler to call"
        return ConsumeDirectlyResult(ConsumeResult.CR_THROW_EXCEPTION, orderly, True, 0, remark)
    began = trio.current_time()
    outcome = await call(handler, [message], threads)
    took_ms = int((trio.current_time() - began) * 1000)
    verdict = ConsumeResult.CR_SUCCESS if outcome.error is None else ConsumeResult.CR_LATER
    if outcome.value is Ordered.COMMIT:
        verdict = ConsumeResult.CR_COMMIT
    elif outcome.value is Ordered.ROLLBACK:
        verdict = ConsumeResult.CR_ROLLBACK
    return ConsumeDirectlyResult(verdict, orderly, True, took_ms, outcome.text or None)
