"""What is known of the link to the gateway: since when, how fast, the last receipt and the last error."""

from __future__ import annotations

from uplink_spark.box.plan import LinkRate

FULL_S = 600  # so long a window of 0 is told as a full gateway


class LinkHistory:
    """Outlives the connections. Times are trio's."""

    def __init__(self) -> None:
        self.rate = LinkRate()
        self.connected_since: float | None = None
        self.last_receipt_at: float | None = None
        self._full_since: float | None = None  # the gateway's window is 0
        self.last_error = ""

    def note_window(self, window: int, now: float) -> None:
        """Note the window that the gateway grants."""
        if window:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now

    def is_full(self, now: float) -> bool:
        """Whether the gateway has taken nothing for ten minutes."""
        return self._full_since is not None and now - self._full_since > FULL_S

    def connected_s(self, now: float) -> float:
        return now - self.connected_since if self.connected_since is not None else 0.0

    def last_receipt_s(self, now: float) -> float | None:
        return None if self.last_receipt_at is None else now - self.last_receipt_at
