"""PageTurns: what people and scrapers look at is made one at a time, and rests between, so that the rest goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

REST: Final = 2.0  # times what the last one took: at most a third of the time is spent on them
MOST_REST_S: Final = 1.0


class PageTurns:
    """First come, first served."""

    def __init__(self) -> None:
        self._lock, self._free_s = trio.Lock(), 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        async with self._lock:
            await trio.sleep_until(self._free_s)
            began_s = trio.current_time()
            try:
                yield
            finally:
                now_s = trio.current_time()
                self._free_s = now_s + min(MOST_REST_S, REST * (now_s - began_s))
