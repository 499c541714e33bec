"""Waiting for a state: a test that waits for a time instead fails on a slower machine."""

from collections.abc import Awaitable, Callable

import trio

from storage_driver.log.clock import wall_ms


class Clock:
    """A wall clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.ms = wall_ms()

    def __call__(self) -> int:
        return self.ms


async def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Return once the condition holds; raise trio.TooSlowError when it never does."""
    with trio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 what it waits for has no event
            await trio.sleep(0.01)


async def until_it(holds: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
    """Return once the condition, which has to be awaited, holds."""
    with trio.fail_after(seconds):
        while not await holds():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def turns_of_others(work: Callable[[], Awaitable[object]]) -> int:
    """Return how often another task that is always ready had its turn while something was done."""
    turns = 0

    async def always_ready() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(always_ready)
        await work()
        nursery.cancel_scope.cancel()
    return turns
