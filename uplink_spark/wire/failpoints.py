"""Named crash steps: UPLINK_STOP_AT=G3 (or G3:5, the fifth time) kills this process there, as a power cut would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

Failpoint = Callable[[str], None]


def no_failpoint(_name: str) -> None:
    """Continue."""


def failpoint_from(setting: str | None) -> Failpoint:
    """Return the function that is called at each named step."""
    if not setting:
        return no_failpoint
    wanted, _, count = setting.partition(":")
    left = [int(count or 1)]

    def step(name: str) -> None:
        if name == wanted:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return step
