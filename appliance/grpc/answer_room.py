"""How many bytes of messages wait in answers that clients read: of one connection, and of all together.

A client that reads nothing holds its part for `UNREAD_S`, for PRESSED_S alone while others wait for room.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from netstack.serving.limits import PRESSED_S

MIB = 1 << 20
MOST_OF_ONE, MOST = 8 * MIB, 48 * MIB
UNREAD_S = 30.0  # a client that takes nothing for so long gets no more of its answer


class AnswerReading:
    """One answer that a client reads: `took` after each part of it; `scope` ends when it takes nothing for long."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.took()

    def took(self) -> None:
        """The client took a part."""
        self.took_s = trio.current_time()
        self.scope.deadline = self.took_s + UNREAD_S


class AnswerRooms:
    """The rooms of all connections of a port."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self.most, self.most_of_one, self.held = most, most_of_one, 0
        self._waiting = trio.lowlevel.ParkingLot()
        self._read: dict[AnswerReading, None] = {}

    async def wait(self, *, for_others: bool) -> None:
        """Return when some of what was held is given back; `for_others`: what they hold is in the way."""
        with trio.move_on_after(PRESSED_S) as waiting:
            await self._waiting.park()
        if waiting.cancelled_caught and for_others:
            oldest_s = trio.current_time() - PRESSED_S
            for reading in self._read:
                if reading.took_s <= oldest_s:
                    reading.scope.cancel()

    def change(self, size: int) -> None:
        """Count what is held, or given back."""
        self.held += size
        if size < 0:
            self._waiting.unpark_all()

    @contextmanager
    def reading(self) -> Iterator[AnswerReading]:
        """Watch over an answer while its client reads it."""
        reading = AnswerReading()
        self._read[reading] = None
        try:
            with reading.scope:
                yield reading
        finally:
            del self._read[reading]


class AnswerRoom:
    """The `Room` of one connection: a read begins while there is any, what it found is held until it is sent."""

    def __init__(self, rooms: AnswerRooms) -> None:
        self._rooms, self._held = rooms, 0
        self.reading = rooms.reading

    async def reserve(self, size: int, /) -> None:
        """Return when about so many bytes may be read; `give_back` follows."""
        rooms = self._rooms
        while (own := self._held >= rooms.most_of_one) or rooms.held >= rooms.most:
            await rooms.wait(for_others=not own)
        self.hold(size)

    def give_back(self, size: int, /) -> None:
        self.hold(-size)

    def hold(self, size: int) -> None:
        """Count bytes that were read and are not sent yet, without waiting."""
        self._held += size
        self._rooms.change(size)
