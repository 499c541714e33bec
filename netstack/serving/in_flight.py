"""How many bytes of requests the process holds: whole ones whose answers are pending, and incomplete frames."""

import trio

from netstack.serving.limits import PARTIAL_FREE


class BytesInFlight:
    """`limit` is for whole requests; incomplete frames may hold half of it besides.

    Where they hold more, one reader has the turn and goes on to the end of its frame, else each would wait for others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pending = self.partial = 0
        self._paused_at = 0.0
        self._open, self._partial_room = trio.Event(), trio.Event()
        self._turn: object = None  # the reader that has it
        self._wait_turn = trio.lowlevel.ParkingLot()
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
            self._wait_turn.unpark_all()

    @property
    def partial_full(self) -> bool:
        return self.partial > self._limit // 2

    def has_turn(self, reader: object) -> bool:
        return self._turn is reader

    def take_turn(self, reader: object) -> bool:
        """Return whether a reader has the turn from now on, since nobody else has it; `end_turn` follows."""
        if self._turn is None:
            self._turn = reader
        return self._turn is reader

    def end_turn(self, reader: object) -> None:
        """The reader's frame is whole, or its connection ends; whoever waits longest may take the turn."""
        if self._turn is reader:
            self._turn = None
            self._wait_turn.unpark()

    async def wait_turn(self) -> None:
        """Wait until the turn is free or incomplete frames hold less."""
        await self._wait_turn.park()

    async def wait_partial(self) -> None:
        """Wait until incomplete frames hold less; the oldest of them are closed by their age."""
        if self._partial_room.is_set():
            self._partial_room = trio.Event()
        await self._partial_room.wait()


class OwnPartial:
    """What unfinished messages of one connection hold of that room."""

    def __init__(self, of_all: BytesInFlight) -> None:
        self.size, self._all = 0, of_all
        self._waiting: trio.CancelScope | None = None

    def note(self, size: int) -> None:
        """Count so many bytes from now on; who waits and has little left goes on."""
        change, self.size = size - self.size, size
        self._all.hold_partial(change)
        if self._waiting is not None and size < PARTIAL_FREE:
            self._waiting.cancel()

    async def wait(self) -> None:
        """Wait while all hold too much and this one more than a little."""
        while self.size >= PARTIAL_FREE and self._all.partial_full:
            with trio.CancelScope() as self._waiting:
                await self._all.wait_partial()
        self._waiting = None
