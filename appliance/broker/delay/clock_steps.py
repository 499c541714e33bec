"""Steps of the wall clock while the box runs: what waits is due when its time has really passed.

A box without a battery starts in the past and is set forward when the network comes; a clock may be ahead and set back.
"""

import time
from collections.abc import Callable
from typing import Final

from storage_driver.log.clock import STEP_MS

MOST_STEPS: Final = 16


def boot_ms() -> int:
    """Return the milliseconds since the boot, those of a suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ClockSteps:
    """Sees a step at the next look; `was_set_back`: what a clock that was ahead stored may be far from due."""

    def __init__(self, now_ms: Callable[[], int], elapsed_ms: Callable[[], int] = boot_ms) -> None:
        self.was_set_back = True  # perhaps before this start
        self._now_ms, self._elapsed_ms = now_ms, elapsed_ms
        self._seen_ms, self._seen_at = now_ms(), elapsed_ms()
        self._forward: list[tuple[int, int]] = []  # what the old clock showed, by how much it was set forward

    def look(self) -> None:
        """Note by how much the clock has stepped since the last look."""
        now_ms, at = self._now_ms(), self._elapsed_ms()
        expected_ms = self._seen_ms + at - self._seen_at
        self._seen_ms, self._seen_at = now_ms, at
        step_ms = now_ms - expected_ms
        if step_ms > STEP_MS:
            self._forward = [*self._forward, (expected_ms, step_ms)][-MOST_STEPS:]
        elif step_ms < -STEP_MS:
            self._forward, self.was_set_back = [], True

    def later_ms(self, stored_ms: int) -> int:
        """Return by how much later than the clock says a message is due that was stored at this time of the clock."""
        return sum(step_ms for old_ms, step_ms in self._forward if stored_ms <= old_ms)
