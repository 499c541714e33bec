"""How many bytes of messages wait in answers that clients read: of one connection, and of all together."""

import trio

MIB = 1 << 20
MOST_OF_ONE, MOST = 8 * MIB, 48 * MIB


class AnswerRooms:
    """The rooms of all connections of a port."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self.most, self.most_of_one, self.held = most, most_of_one, 0
        self._waiting = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Return when some of what was held is given back."""
        await self._waiting.park()

    def change(self, size: int) -> None:
        """Count what is held, or given back."""
        self.held += size
        if size < 0:
            self._waiting.unpark_all()


class AnswerRoom:
    """The `Room` of one connection: a read begins while there is any, what it found is held until it is sent."""

    def __init__(self, rooms: AnswerRooms) -> None:
        self._rooms, self._held = rooms, 0

    async def reserve(self, size: int, /) -> None:
        """Return when about so many bytes may be read; `give_back` follows."""
        while self._held >= self._rooms.most_of_one or self._rooms.held >= self._rooms.most:
            await self._rooms.wait()
        self.hold(size)

    def give_back(self, size: int, /) -> None:
        self.hold(-size)

    def hold(self, size: int) -> None:
        """Count bytes that were read and are not sent yet, without waiting."""
        self._held += size
        self._rooms.change(size)
