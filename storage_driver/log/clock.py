"""Wall-clock epochs of the log: ranges within which store times rise and differences of times are true.

A new epoch begins with every opening of the store and with every step of the clock. Age counts only the time the box
was running, each stretch by its own clock, so no step and no wrong date on start makes a message old.
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from storage_driver.files.state_file import checksum
from storage_driver.named_tuple import NamedTuple

STEP_MS: Final = 60_000  # smaller steps back are waited out: store times stand still
EPOCHS_KEPT: Final = 256
PARTS: Final = {"layout", "epochs"}  # once there was no checksum


def wall_ms() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000


class ClockEpoch(NamedTuple):
    """From `log_offset` on the clock went without a step from begin_ms to at least end_ms."""

    log_offset: int
    begin_ms: int
    end_ms: int
    trusted: bool


class ClockEpochs:
    """All epochs known, oldest first; the last one is current."""

    def __init__(self) -> None:
        self.epochs: list[ClockEpoch] = []
        self.changed = False  # an epoch began since the list was saved
        self._latest_ms = {True: 0, False: 0}  # of epochs that were replaced, by whether they were trusted

    def begin(self, log_offset: int, now_ms: int, *, trusted: bool) -> None:
        """Begin an epoch at a log offset; one that would be empty is replaced."""
        self.changed = True
        while self.epochs and self.epochs[-1].log_offset >= log_offset:
            gone = self.epochs.pop()
            self._latest_ms[gone.trusted] = max(gone.end_ms, self._latest_ms[gone.trusted])
        self.epochs = [*self.epochs[-(EPOCHS_KEPT - 1) :], ClockEpoch(log_offset, now_ms, now_ms, trusted)]

    def tick(self, now_ms: int, elapsed_ms: int, log_offset: int, *, trusted: bool) -> int:
        """Note the time after elapsed_ms of monotonic time; return by how much the clock stepped, 0 for not at all."""
        current = self.epochs[-1]
        step = now_ms - current.end_ms - elapsed_ms
        if abs(step) > STEP_MS or trusted != current.trusted:
            self.begin(log_offset, now_ms, trusted=trusted)
            return step if abs(step) > STEP_MS else 0
        self.epochs[-1] = ClockEpoch(current.log_offset, current.begin_ms, max(now_ms, current.end_ms), trusted)
        return 0

    def latest_ms(self, *, trusted: bool) -> int:
        """Return the latest time of day that was ever seen, by a clock that was trusted when the present one is."""
        seen = [epoch.end_ms for epoch in self.epochs if epoch.trusted or not trusted]
        return max(*seen, self._latest_ms[True], 0 if trusted else self._latest_ms[False], 0)

    def age_ms(self, log_offset: int, stored_ms: int) -> int:
        """Return for how long the box has been running since a record was stored, never negative."""
        age = 0
        for epoch in reversed(self.epochs):
            if epoch.log_offset <= log_offset:
                return age + max(0, min(epoch.end_ms - stored_ms, epoch.end_ms - epoch.begin_ms))
            age += max(0, epoch.end_ms - epoch.begin_ms)
        return age

    def boundaries(self) -> list[int]:
        """Return the log offsets where epochs begin."""
        return [epoch.log_offset for epoch in self.epochs]

    def to_json(self) -> dict[str, Any]:
        """Return the form of the state file."""
        rows = [[e.log_offset, e.begin_ms, e.end_ms, e.trusted] for e in self.epochs]
        return {"layout": 1, "epochs": rows, "crc": checksum(rows)}

    def load(self, value: Any) -> None:
        """Take the epochs of a state file; a damaged one counts as missing: a wrong digit would delete the log."""
        try:
            if value.keys() != PARTS and value["crc"] != checksum(value["epochs"]):
                return
            epochs = [ClockEpoch(int(a), int(b), int(c), bool(d)) for a, b, c, d in value["epochs"]]
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            return
        if all(a.log_offset < b.log_offset for a, b in pairwise(epochs)):
            self.epochs = epochs[-EPOCHS_KEPT:]


def pieces(boundaries: Sequence[int], first: int, end: int) -> list[tuple[int, int]]:
    """Split log range [first, end) at the boundaries within it."""
    cuts = [first, *[b for b in boundaries if first < b < end], end]
    return list(pairwise(cuts))
