"""A nursery that an object holds during `async with`; and functions that run once for several callers."""

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from netstack.client.errors import ClientError, UsageError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Lifetime:
    """Tasks of one object. What the caller raises inside comes out as it is; a failed task comes out as a group."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery all tasks run in. Raises UsageError outside of `async with`."""
        if self._nursery is None:
            raise UsageError(f"{self._owner} is not open: use `async with`")
        return self._nursery

    @property
    def open(self) -> bool:
        return self._nursery is not None

    def require_fresh(self) -> None:
        """Raise UsageError once it was opened."""
        if self._manager is not None:
            raise UsageError(f"{self._owner} was opened twice; make a new one")

    async def begin(self) -> trio.Nursery:
        self.require_fresh()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self._nursery

    async def end(self) -> None:
        """Cancel all tasks and wait for them. Raises what one of them died of."""
        if self._manager is None or self._nursery is None:
            return
        nursery, self._nursery = self._nursery, None
        nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)


class _Flight(Generic[T]):
    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.value: T | None = None
        self.error: ClientError | None = None


class Shared(Generic[K, T]):
    """Runs a function once per key however many ask meanwhile; a cancelled asker does not disturb the others."""

    def __init__(self, run: Callable[[K], Awaitable[T]]) -> None:
        self._run = run
        self._flights: dict[K, _Flight[T]] = {}

    async def get(self, key: K, nursery: trio.Nursery) -> T:
        """Return the function's result for the key. Raises its ClientError."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            nursery.start_soon(self._fly, key, flight)
        await flight.done.wait()
        if flight.error is not None:
            raise flight.error.with_traceback(None)
        assert flight.value is not None
        return flight.value

    async def _fly(self, key: K, flight: _Flight[T]) -> None:
        flight.error = UsageError("the client was closed meanwhile")
        try:
            flight.value = await self._run(key)
            flight.error = None
        except ClientError as error:
            flight.error = error
        finally:
            del self._flights[key]
            flight.done.set()
