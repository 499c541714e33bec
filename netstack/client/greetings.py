"""`Greetings`: which brokers have heard of the groups of a client, and when the next heartbeat is due."""

from collections.abc import Collection, Iterable

import trio

HEARTBEAT_EVERY_S = 30.0


class Greetings:
    """All brokers hear of a client every half minute, those that it has just met soon."""

    def __init__(self) -> None:
        self._beat, self._fresh = trio.Event(), set[str]()
        self._greeted: set[str] = set()  # have heard of all groups
        self._due = 0.0

    def begin(self) -> None:
        """Have the first heartbeat sent in a second."""
        self._due = trio.current_time() + 1

    def renew(self) -> None:
        """Know that there is a group that no broker has heard of."""
        self._greeted.clear()

    def greeted(self, addresses: Iterable[str]) -> None:
        """Know that these brokers have answered."""
        self._greeted.update(addresses)

    def add_new(self, addresses: Collection[str]) -> None:
        """Have those of these brokers told soon that have not heard of this client."""
        if fresh := {*addresses} - self._greeted:
            self._fresh |= fresh
            self._beat.set()

    def add(self, address: str) -> None:
        """Have a broker told soon: its connection is new."""
        self._fresh.add(address)
        self._beat.set()

    async def next(self) -> set[str] | None:
        """Return the brokers to be told now, None for all of them."""
        with trio.move_on_at(self._due):
            await self._beat.wait()
        self._beat = trio.Event()
        fresh, self._fresh = self._fresh, set()
        if trio.current_time() < self._due:
            return fresh
        self._due = trio.current_time() + HEARTBEAT_EVERY_S
        return None
