"""The application's functions: whatever they do has an outcome, and only cancellation passes through."""

import threading
from collections.abc import Sequence

import pytest
import trio

from netstack.client.handlers import Ordered, Retry, call, consume_directly, for_batch
from netstack.client.messages import ReceivedMessage
from netstack.wire.bodies import ConsumeResult

MESSAGE = ReceivedMessage.__new__(ReceivedMessage)
MESSAGE._properties, MESSAGE.topic, MESSAGE.broker_name = {"UNIQ_KEY": "id"}, "T", "b"
MESSAGE.queue_id = MESSAGE.queue_offset = 0


async def test_async_functions_run_here_and_plain_ones_in_a_thread() -> None:
    threads = trio.CapacityLimiter(1)
    seen: list[str] = []

    async def here(messages: Sequence[ReceivedMessage]) -> str:
        seen.append(threading.current_thread().name)
        return "value"

    def there(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(threading.current_thread().name)

    assert (await call(here, [MESSAGE], threads)).value == "value"
    assert (await call(there, [MESSAGE], threads)).error is None
    assert (await call(lambda messages: here(messages), [MESSAGE], threads)).value == "value"
    assert seen[0] == seen[2] != seen[1]


async def test_an_exception_means_again_and_a_retry_says_when() -> None:
    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("broken")

    async def later(message: ReceivedMessage) -> None:
        raise Retry(5, done=1)

    threads = trio.CapacityLimiter(1)
    failed = await call(for_batch(fail), [MESSAGE], threads)
    assert (failed.error and failed.error.delay_level, failed.text) == (0, "ValueError: broken")
    retried = await call(for_batch(later), [MESSAGE], threads)
    assert retried.error is not None
    assert (retried.error.delay_level, retried.error.done) == (5, 1)


async def test_cancellation_is_no_outcome() -> None:
    async def wait(message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0.01) as scope:
        await call(for_batch(wait), [MESSAGE], trio.CapacityLimiter(1))
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, ConsumeResult.CR_SUCCESS),
        (Ordered.COMMIT, ConsumeResult.CR_COMMIT),
        (Ordered.ROLLBACK, ConsumeResult.CR_ROLLBACK),
    ],
)
async def test_what_a_tool_is_told_is_what_the_handler_said(value: object, result: ConsumeResult) -> None:
    async def handle(messages: Sequence[ReceivedMessage]) -> object:
        return value

    told = await consume_directly(handle, MESSAGE, trio.CapacityLimiter(1), orderly=True)
    assert (told.consume_result, told.order, told.remark) == (result, True, None)
