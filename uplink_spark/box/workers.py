"""Threads of the shipper for what blocks: one to ship, one beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

Result = TypeVar("Result")


class Workers:
    """Each runs one thing at a time."""

    def __init__(self) -> None:
        self._thread, self._beside = trio.CapacityLimiter(1), trio.CapacityLimiter(1)

    async def in_thread(self, call: Callable[..., Result], *args: Any) -> Result:
        """Run something that reads, compresses or syncs."""
        return await trio.to_thread.run_sync(call, *args, limiter=self._thread)

    async def in_background(self, call: Callable[..., Result], *args: Any) -> Result:
        """Run a part of something that takes minutes and that shipping must not wait for."""
        return await trio.to_thread.run_sync(call, *args, limiter=self._beside)
