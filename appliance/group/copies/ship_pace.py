"""When followers are sent what was appended: at once where clients wait, else some milliseconds' worth together."""

from collections.abc import Callable
from typing import Final

import trio

TOGETHER_S: Final = 0.01  # a frame and its report cost a leader half a millisecond, whatever is in them


class ShipPace:
    """`ship` asks all links for what is to be sent."""

    def __init__(self, ship: Callable[[], None], *, waited_for: Callable[[], bool]) -> None:
        self._ship, self._waited_for = ship, waited_for
        self._due = trio.Event()

    def appended(self) -> None:
        """There is more to send."""
        if self._waited_for():
            self._ship()
        else:
            self._due.set()

    async def run(self) -> None:
        """Send what nobody waits for, until cancelled."""
        while True:
            await self._due.wait()
            await trio.sleep(TOGETHER_S)
            self._due = trio.Event()
            self._ship()
