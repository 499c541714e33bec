"""How many bytes of requests the process holds: whole ones whose answers are pending, and incomplete frames."""

from collections.abc import Callable
from typing import Final

import trio

from netstack.serving.limits import PARTIAL_FREE, PARTIAL_MODEST

TURN_S: Final = 1.0  # who goes on with message after message has the turn for so long


class BytesInFlight:
    """`limit` is for whole requests; incomplete frames may hold half of it besides.

    Where they hold more, one reader has the turn and goes on to the end of its frame, else each would wait for others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pending = self.partial = 0
        self.large_partial = 0  # what connections with several messages hold of it beyond PARTIAL_MODEST each
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
        """The reader needs no turn (any more): its frame is whole, or its connection ends.

        Whoever waits longest may take a turn that is free.
        """
        if self._turn is reader:
            self._turn = None
        if self._turn is None:
            self._wait_turn.unpark()

    @property
    def turn_is_wanted(self) -> bool:
        return bool(self._wait_turn)

    @property
    def is_far_over(self) -> bool:
        """Whether large beginnings of messages hold so much that nobody with several of them goes on."""
        return self.large_partial > self._limit

    async def wait_turn(self) -> None:
        """Wait until the turn is free or incomplete frames hold less."""
        await self._wait_turn.park()

    async def wait_partial(self) -> None:
        """Wait until incomplete frames hold less; the oldest of them are closed by their age."""
        if self._partial_room.is_set():
            self._partial_room = trio.Event()
        await self._partial_room.wait()


class OwnPending:
    """What pending requests of one connection hold of that room.

    While all hold too much, who holds much is not read, and who holds little goes on: its requests are small.
    """

    __slots__ = ("_all", "_waiting", "requests", "size")

    def __init__(self, of_all: BytesInFlight) -> None:
        self.size, self._all = 0, of_all
        self.requests = 0  # a connection of gRPC counts them here
        self._waiting: trio.CancelScope | None = None

    def take(self, size: int) -> None:
        """Count the bytes of a request whose answer is pending."""
        self.size += size
        self._all.take(size)

    def give(self, size: int) -> None:
        """Count the bytes of a request that is answered."""
        self.size -= size
        self._all.give(size)
        if self._waiting is not None:
            self._waiting.cancel()

    def is_stopped(self, partial: int) -> bool:
        """Whether this connection is not to be read now, with so many bytes of an incomplete frame."""
        return self._all.paused and self.size + partial >= PARTIAL_FREE

    async def wait(self, partial: int) -> None:
        """Wait until it may be read."""
        while self.is_stopped(partial):
            with trio.CancelScope() as self._waiting:
                await self._all.wait_open()
            self._waiting = None


class OwnPartial:
    """What unfinished messages of one connection hold of that room, which may be several at a time."""

    def __init__(self, of_all: BytesInFlight) -> None:
        self.size, self._all = 0, of_all
        self._waiting: trio.CancelScope | None = None
        self._turn_size, self._turn_at = 0, 0.0  # when it took the turn
        self.went_on_at = float("-inf")  # after it had waited

    @property
    def has_turn(self) -> bool:
        return self._all.has_turn(self)

    def note(self, size: int) -> None:
        """Count so many bytes from now on; who waits looks again. With a message that is whole the turn ends."""
        change, self.size = size - self.size, size
        self._all.large_partial += max(0, size - PARTIAL_MODEST) - max(0, size - change - PARTIAL_MODEST)
        self._all.hold_partial(change)
        if self.has_turn and size < self._turn_size:
            self.end_turn()
        if self._waiting is not None:
            self._waiting.cancel()

    def end_turn(self) -> None:
        """Leave the turn to others, if this one has it."""
        self._all.end_turn(self)

    async def wait(self, may_go_on: Callable[[], bool]) -> None:
        """Wait while all hold too much and this one more than a little, for its turn if its peer `may_go_on`."""
        while self.size >= PARTIAL_FREE and self._all.partial_full:
            moves = may_go_on()
            if moves and self._take_turn():
                return
            if not moves:
                self.end_turn()
            with trio.CancelScope() as self._waiting:
                await (self._all.wait_turn() if moves else self._all.wait_partial())
            self._waiting, self.went_on_at = None, trio.current_time()
        self.end_turn()

    def _take_turn(self) -> bool:
        now_s, had = trio.current_time(), self.has_turn
        if had and (self._all.is_far_over or (self._all.turn_is_wanted and now_s - self._turn_at > TURN_S)):
            self.end_turn()
            return False
        if self._all.is_far_over or not self._all.take_turn(self):
            return False
        if not had:
            self._turn_size, self._turn_at = self.size, now_s
        return True
