"""Calls that overtook the settings of their client, and wait for them: some clients send both at once."""

from collections.abc import Hashable
from typing import Final

import trio

SETTINGS_S: Final = 3.0
MOST_WAITING = 1024  # of all clients together


class SettingsWaits:
    """Who waits for the settings of which client; above `most` nobody does."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most, self._count = most, 0
        self._lots: dict[Hashable, trio.lowlevel.ParkingLot] = {}

    async def wait(self, client: Hashable, seconds: float = SETTINGS_S) -> None:
        """Return when the client has said what it is, when it has had its time, or at once where too many wait."""
        if self._count >= self._most:
            return
        lot = self._lots.setdefault(client, trio.lowlevel.ParkingLot())
        self._count += 1
        try:
            with trio.move_on_after(seconds):
                await lot.park()
        finally:
            self._count -= 1
            if not lot:
                self._lots.pop(client, None)

    def told(self, client: Hashable) -> None:
        """The client has said what it is: its calls go on."""
        if lot := self._lots.get(client):
            lot.unpark_all()
