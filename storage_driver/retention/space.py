"""Space on the store's file system: measured, forecast, and appends blocked or resumed by it."""

from collections.abc import Callable

import trio

from storage_driver.appending import Appender
from storage_driver.config import StoreConfig
from storage_driver.files.disk import Disk
from storage_driver.files.reserve import Reserve
from storage_driver.retention.rules import DiskState, Forecast, full_reason


class SpaceWatch:
    """`usage` is what the last look found, `full_in_h` when appends will be refused; None: not at this rate."""

    def __init__(self, config: StoreConfig, disk: Disk, appender: Appender, next_bytes: Callable[[], int]) -> None:
        self.usage = DiskState(0, 1 << 60, 1 << 60)
        self.full_in_h: float | None = None
        self._rules, self._appender, self._next_bytes = config.retention, appender, next_bytes
        self._forecast = Forecast()
        self._reserve = Reserve(disk, config.root, config.reserve_bytes)
        self._one_thread = trio.CapacityLimiter(1)

    async def look(self) -> None:
        """Measure the file system and set or clear the full mark of appends. Raises OSError."""
        usage = await trio.to_thread.run_sync(self._reserve.look, limiter=self._one_thread)
        self.usage = DiskState(usage.percent, usage.available, usage.used + usage.available)
        self._forecast.add(trio.current_time(), usage.available)
        self.full_in_h = self._forecast.full_in_h(self.usage, self._rules)
        was_full = self._appender.lacks_space
        full = full_reason(self.usage, self._rules, self._next_bytes(), was_full=was_full)
        self._appender.set_full(full)
