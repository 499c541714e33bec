"""What wakes the cutter and the one who connects."""

from __future__ import annotations

import math

import trio


class Wakes:
    """`changed`: something the cutter looks at. `connect`: do not wait for the back-off."""

    def __init__(self) -> None:
        self.changed, self.connect = trio.Event(), trio.Event()
        self.ship_now_to = 0  # all below this log offset is cut at once

    def ship_now(self, log_offset: int) -> None:
        """Cut what waits below a log offset at once and connect."""
        self.ship_now_to = log_offset
        self.both()

    def both(self) -> None:
        """Wake the cutter and the one who connects."""
        self.connect.set()
        self.changed.set()

    async def wait_connect(self, at_most_s: float = math.inf) -> None:
        """Return when somebody wants a connection or after so many seconds; a wake from before counts."""
        with trio.move_on_after(at_most_s):
            await self.connect.wait()
        self.connect = trio.Event()
