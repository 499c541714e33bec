"""The bytes on the wire: capped by the second, counted by the month where the connection costs money."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import trio

from uplink_spark.box.caps import Allowed, Bucket, Caps, MonthUse, allowed_now, budget_left
from uplink_spark.box.figures import ShipperCounts
from uplink_spark.box.link.interfaces import interface_of
from uplink_spark.box.receipts.ledger import Ledger
from uplink_spark.config import UplinkConfig

LATEST_MS = 253_402_000_000_000  # in the year 9999
METERED_DELAY_S = 300.0


class Metering:
    """The throttle of the link: every byte of a frame is counted, so caps and budgets hold exactly."""

    def __init__(
        self,
        config: UplinkConfig,
        ledger: Ledger,
        counts: ShipperCounts,
        *,
        now_ms: Callable[[], int],
        clock_ok: Callable[[], bool],
    ) -> None:
        self._config, self._ledger, self._counts = config, ledger, counts
        self._now_ms, self._clock_ok = now_ms, clock_ok
        self.caps = Caps(config)
        self.on_metered = False
        self._bucket = Bucket(0, trio.current_time())

    async def wait_for(self, length: int) -> bool:
        """Return when so many bytes may leave, True when they were capped."""
        cap = self.cap()
        self._bucket.set_rate(cap, trio.current_time())
        wait_s = self._bucket.take(length, trio.current_time())
        if wait_s:
            await trio.sleep(wait_s)
        self.count(length)
        return cap > 0

    def count(self, length: int) -> None:
        """Count bytes that leave."""
        self._counts.wire_bytes += length
        if self.on_metered:
            self._ledger.month = self.month_use().add(self._month(), length)

    def leaves_by(self, local_host: str) -> None:
        """A connection goes out from this address: does it cost money?"""
        self.on_metered = interface_of(local_host) in self._config.metered.interfaces

    def local_time(self) -> datetime:
        return datetime.fromtimestamp(max(0, min(self._now_ms(), LATEST_MS)) / 1000).astimezone()

    def _month(self) -> str:
        return self.local_time().strftime("%Y-%m")

    def cap(self) -> int:
        """Bytes a second in force now, 0: none."""
        return self.caps.rate(self.local_time(), clock_ok=self._clock_ok())

    def allowed(self) -> Allowed:
        return allowed_now(self._config.metered, self.month_use(), on_metered=self.on_metered)

    def budget_left(self, queued: int) -> tuple[int, int]:
        """Frame bytes the month still allows of data and of the express lane."""
        return budget_left(self._config.metered, self.month_use(), on_metered=self.on_metered, queued=queued)

    def month_use(self) -> MonthUse:
        """Return what this month has used."""
        month = self._month()
        return self._ledger.month if self._ledger.month.month == month else MonthUse(month)

    def max_delay_s(self) -> float:
        return METERED_DELAY_S if self.on_metered else self._config.max_delay_s
