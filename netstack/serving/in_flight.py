"""How many bytes of requests the process holds: whole ones whose answers are pending, and incomplete frames."""

import trio


class BytesInFlight:
    """`limit` is for whole requests; incomplete frames may hold half of it besides."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pending = self.partial = 0
        self._paused_at = 0.0
        self._open, self._partial_room = trio.Event(), trio.Event()
        self._open.set()

    def take(self, size: int) -> None:
        """Count the bytes of a request whose answer is pending."""
        self.pending += size
        if self.pending > self._limit and self._open.is_set():
            self._open, self._paused_at = trio.Event(), trio.current_time()

    def give(self, size: int) -> None:
        """Count the bytes of a request that is answered; readers continue at three quarters."""
        self.pending -= size
        if not self._open.is_set() and self.pending <= self._limit * 3 // 4:
            self._open.set()

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    def paused_s(self, now: float) -> float:
        """Return for how long nobody's requests have been read, by trio's clock; 0 while they are."""
        return now - self._paused_at if self.paused else 0.0

    async def wait_open(self) -> None:
        await self._open.wait()

    def hold_partial(self, change: int) -> None:
        """Count bytes of incomplete frames."""
        self.partial += change
        if not self.partial_full:
            self._partial_room.set()

    @property
    def partial_full(self) -> bool:
        return self.partial > self._limit // 2

    async def wait_partial(self) -> None:
        """Wait until incomplete frames hold less; the oldest of them are closed by their age."""
        if self._partial_room.is_set():
            self._partial_room = trio.Event()
        await self._partial_room.wait()
