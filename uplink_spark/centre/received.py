"""The pieces that came on one connection: the window they fill and the memory they hold until they are answered."""

from __future__ import annotations

from collections import deque

import trio

from uplink_spark.centre.hub import Budget
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import ProtocolError


class ReceivedPieces:
    """Numbered from 0 as they come. What was offered to the shard may hold memory longer than the connection lasts."""

    def __init__(self, config: GatewayConfig, budget: Budget) -> None:
        self._config, self._budget = config, budget
        self._count = 0
        self._unverified: deque[tuple[int, bytes]] = deque()
        self._came = trio.Event()
        self._raw: dict[int, int] = {}  # number -> raw bytes, without a receipt
        self._raw_bytes = self._memory = 0
        self._offered = 0  # of the memory: what the shard holds

    async def admit(self, length: int) -> None:
        """Return when there is memory for the next piece. Raises ProtocolError beyond the window."""
        self._count += 1
        if len(self._raw) + len(self._unverified) >= self._config.window_pieces:
            raise ProtocolError(f"more than {self._config.window_pieces} pieces without a receipt")
        await self._budget.acquire(length)
        self._memory += length

    def put(self, container: bytes) -> None:
        """Queue the piece that was admitted last."""
        self._unverified.append((self._count - 1, container))
        self._came.set()

    async def next(self) -> tuple[int, bytes]:
        """Return number and container of the oldest piece that nobody has verified yet."""
        while not self._unverified:
            await self._came.wait()
            self._came = trio.Event()
        number, container = self._unverified.popleft()
        self._raw[number] = 0
        return number, container

    def fits(self, raw_bytes: int) -> bool:
        """Whether so many raw bytes are within the window; one piece alone always is."""
        return not self._raw_bytes or self._raw_bytes + raw_bytes <= self._config.window_bytes

    def offer(self, number: int, raw_bytes: int, length: int) -> None:
        """Count a piece that the shard holds from now on."""
        self._raw_bytes += raw_bytes
        self._raw[number] = raw_bytes
        self._offered += length

    def settle(self, number: int, length: int, *, offered: bool = False) -> None:
        """Give back what a piece held: it is answered."""
        self._raw_bytes -= self._raw.pop(number, 0)
        self._memory -= length
        self._offered -= length if offered else 0
        self._budget.release(length)

    def release(self) -> None:
        """Give back the memory of all but what the shard holds: the connection is over."""
        self._budget.release(self._memory - self._offered)
