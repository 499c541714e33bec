"""When followers are sent what was appended: at once where clients wait, else some milliseconds' worth together."""

from collections.abc import Callable
from typing import Final

import trio

TOGETHER_S: Final = 0.02  # a frame and its report cost a leader half a millisecond, whatever is in them
MOST_TOGETHER: Final = 1 << 20  # bytes


class ShipPace:
    """`ship` asks all links for what is to be sent."""

    def __init__(self, ship: Callable[[], None], *, waited_for: Callable[[], bool]) -> None:
        self._ship, self._waited_for = ship, waited_for
        self._due = trio.Event()
        self._end = self._asked = 0  # log offsets: what there is, what was there when links were asked

    def appended(self, end: int) -> None:
        """There is more to send; the log ends here."""
        self._end = end
        if self._waited_for() or end - self._asked > MOST_TOGETHER:
            self._send()
        else:
            self._due.set()

    def _send(self) -> None:
        self._asked = self._end
        self._ship()

    async def run(self) -> None:
        """Send what nobody waits for, until cancelled."""
        while True:
            await self._due.wait()
            await trio.sleep(TOGETHER_S)
            self._due = trio.Event()
            self._send()
