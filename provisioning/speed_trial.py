"""A new speed of the line, until a valid frame proves it."""

import math

SPEED_PROOF_S = 2.0


class SpeedTrial:
    """Without a valid frame in time the line goes back to `old_baud`."""

    def __init__(self, baud: int) -> None:
        self.old_baud = baud
        self._until_s = math.inf
        self._asks = False

    def begin(self, old_baud: int, now_s: float) -> None:
        """The line has the new speed from now on."""
        self.old_baud, self._until_s, self._asks = old_baud, now_s + SPEED_PROOF_S, True

    def heard(self) -> None:
        """A valid frame came: it is proof."""
        self._until_s = math.inf

    @property
    def runs(self) -> bool:
        return self._until_s < math.inf

    def failed(self, now_s: float) -> bool:
        """Tell once that nothing proved the speed in time."""
        failed = now_s >= self._until_s
        if failed:
            self._until_s = math.inf
        return failed

    def asks(self) -> bool:
        """Tell whether the request that came is the first after a change, which only asks whether the box hears."""
        asks, self._asks = self._asks, False
        return asks
