"""What a master knows of one slave: where it stands, what it may report, when it is silent for too long. Sans I/O.

A report never releases an acknowledgement: a stock slave reports what it has written to memory, not to a disk.
"""

from collections.abc import Sequence

from netstack.wire.replication import STOCK_PACE, Pace

SPARE_REPORTS = 64  # beyond one for each slice and two a second: a stock slave sends no more
ADDRESS, PLACES, GARBAGE, FLOOD = "address", "places", "garbage", "flood"
BEYOND, GONE, DIFFERS, SILENT, SLOW = "beyond_end", "deleted", "differs", "silent", "slow"
REFUSALS = (ADDRESS, PLACES, GARBAGE, FLOOD, BEYOND, GONE, DIFFERS, SILENT, SLOW)


class SlaveRefused(Exception):
    """The connection of a slave has to end; `reason` is one of REFUSALS."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class SlaveProgress:
    """One connection, from its first report on; times are those of one monotonic clock."""

    def __init__(self, now_s: float, pace: Pace = STOCK_PACE) -> None:
        self._pace = pace
        self.reported: int | None = None  # up to where the slave says it has the log
        self.position: int | None = None  # what is sent next; None: it has not begun
        self.slices = 0
        self._since_s = self._heard_s = self._sent_s = now_s
        self._reports = 0

    def note_reports(self, reports: Sequence[int], now_s: float) -> None:
        """Take what the slave reported. Raises SlaveRefused for more than was sent, and for a flood."""
        if reports:  # a part of one is no word
            self._heard_s = now_s
        self._reports += len(reports)
        if self._reports > self.slices + SPARE_REPORTS + 2 * (now_s - self._since_s):
            raise SlaveRefused(FLOOD, f"{self._reports} reports, {self.slices} slices were sent")
        if reports:
            if self.position is not None and max(reports) > self.position:
                raise SlaveRefused(BEYOND, f"reports {max(reports)}, it was sent the log up to {self.position}")
            self.reported = reports[-1]

    def begin(self, position: int) -> None:
        """Sending starts at a log offset."""
        self.position = position

    def note_sent(self, position: int, slices: int, now_s: float) -> None:
        """So many slices (heartbeats are some, too) are on their way, up to a log offset."""
        self.position, self._sent_s = position, now_s
        self.slices += slices

    def heartbeat_in_s(self, now_s: float) -> float:
        """Return how long nothing need be sent."""
        return max(0.0, self._sent_s + self._pace.heartbeat_s - now_s)

    def silence_left_s(self, now_s: float) -> float:
        """Return how long the slave may still say nothing. A stock one says its first word after five seconds."""
        return self._heard_s + self._pace.silence_s - now_s
