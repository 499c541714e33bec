"""Rates of five minutes, backlog and the age of what waits. Seconds are monotonic."""

from __future__ import annotations

import math
from collections import deque

HALF_LIFE_S = 300
BACKLOG_AGE_S = 600
MARK_EVERY_S = 10


class Rate:
    """An exponentially weighted rate of events over five minutes."""

    def __init__(self) -> None:
        self._value, self._at, self._born = 0.0, 0.0, 0.0

    def add(self, amount: float, now: float) -> None:
        if not self._born:
            self._born = self._at = now
        self._decay(now)
        self._value += amount / HALF_LIFE_S

    def _decay(self, now: float) -> None:
        self._value *= math.exp(-max(0.0, now - self._at) / HALF_LIFE_S)
        self._at = now

    def per_second(self, now: float) -> float:
        """The rate, corrected while the window is not yet full."""
        if not self._born:
            return 0.0
        self._decay(now)
        filled = 1 - math.exp(-max(1.0, now - self._born) / HALF_LIFE_S)
        return self._value / filled


class CutterPause:
    """How long the cutter rests after a piece, so that the senders of this box keep their share of the interpreter.

    Cutting and sending 4 MiB holds it for about 15 of 40 ms. While the log takes BUSY_GROUPS commits within WINDOW_S,
    the cutter rests at least REST times as long as it worked, and longer and longer while commits follow one another
    WORSE times as slowly beside its work as they do while it rests; a box nobody sends to ships as fast as it can.
    """

    BUSY_GROUPS, WINDOW_S, STOPPED_S = 25, 2.5, 0.5
    REST, LONGEST_REST, WORSE = 3.0, 24.0, 1.15
    RECENT = 32  # commits

    def __init__(self) -> None:
        self._moves: deque[float] = deque(maxlen=self.BUSY_GROUPS)
        self._took = {True: 0.0, False: 0.0}  # from commit to commit: beside the cutter's work, while it rests
        self._rest = self.REST
        self.working = False

    def moved(self, now: float) -> None:
        """A group of sends became durable."""
        if self._moves and (took := now - self._moves[-1]) < self.STOPPED_S:
            known = self._took[self.working]
            self._took[self.working] = known + (took - known) / self.RECENT if known else took
        self._moves.append(now)

    def rest_s(self, worked_s: float, now: float, *, pressed: bool = False) -> float:
        """Return how long to rest now; pressed: what waits may soon be lost, so that senders get no more than REST."""
        if not self.busy(now):
            return 0.0
        worse = 0 < self._took[False] * self.WORSE < self._took[True]
        self._rest = min(self.LONGEST_REST, self._rest * 1.25) if worse else max(self.REST, self._rest * 0.9)
        return worked_s * (self.REST if pressed else self._rest)

    def busy(self, now: float) -> bool:
        """Whether senders keep the log at work."""
        moves = self._moves
        full = len(moves) == self.BUSY_GROUPS and now - moves[-1] < self.STOPPED_S
        return full and now - moves[0] <= self.WINDOW_S


class Progress:
    """How much comes in, how much is receipted, and when each log offset became durable."""

    def __init__(self) -> None:
        self._in, self._out = Rate(), Rate()
        self._marks: deque[tuple[float, int]] = deque(maxlen=8192)  # at this time the log had this many bytes more
        self._total = 0

    def inflow(self, length: int, now: float) -> None:
        self._in.add(length, now)
        self._total += length
        if not self._marks or now - self._marks[-1][0] >= MARK_EVERY_S:
            self._marks.append((now, self._total))

    def receipted(self, length: int, now: float) -> None:
        self._out.add(length, now)

    def inflow_rate(self, now: float) -> float:
        return self._in.per_second(now)

    def shipping_rate(self, now: float) -> float:
        return self._out.per_second(now)

    def backlog(self, unshipped: int, now: float) -> int:
        """Of the unshipped bytes those older than ten minutes: all but what came in since."""
        recent = self._total - max((total for at, total in self._marks if now - at > BACKLOG_AGE_S), default=0)
        young = recent if self._marks and now - self._marks[0][0] > BACKLOG_AGE_S else self._total
        return max(0, unshipped - young)

    def oldest_s(self, hole: int | None, now: float) -> float:
        """Since when the oldest unshipped byte has been seen waiting by this process."""
        if hole is None:
            self._oldest = None
            return 0.0
        if self._oldest is None or self._oldest[0] != hole:
            before = self._oldest[1] if self._oldest is not None and hole < self._oldest[0] else now
            self._oldest = (hole, before)
        return now - self._oldest[1]

    _oldest: tuple[int, float] | None = None
