"""`Turns`: when the log's thread begins its next call, and who hears how each ended; `CutRequest`: one kind of call."""

from collections import deque
from collections.abc import Callable
from typing import Any

import trio
from outcome import Outcome  # trio's own

from storage_driver.log.cut_history import CutDone
from storage_driver.log.segment import SegmentWriter
from storage_driver.log.truncation import Truncation

Ended = Callable[[Outcome[Any]], None]


class CutRequest:
    """A cut of the log that was asked for; `done` says what it took away once it has `ended`."""

    def __init__(self, log_offset: int, reason: str, truncation: Truncation) -> None:
        self.log_offset, self.reason, self._truncation = log_offset, reason, truncation
        self.done: CutDone | None = None
        self.ended = trio.Event()

    def work(self, writer: SegmentWriter, end: int) -> CutDone:
        """Cut in the log's thread, when nothing is being written. Raises OSError."""
        done = self._truncation.cut(self.log_offset, end, self.reason)
        writer.go_back(self.log_offset)
        return done


class Turns:
    """The calls of one log's thread, in their order."""

    def __init__(self, budget_s: float) -> None:
        """budget_s: how long a batch waits for more records, 0 for not at all."""
        self.cut: CutRequest | None = None  # asked for, not begun
        self.nudge: Callable[[], None] = lambda: None  # has the thread begin, when it rests
        self.rested = not budget_s  # the budget, if there is one, has passed for the next batch
        self._budget_s = budget_s
        self._work = trio.Event()
        self._jobs: deque[Ended] = deque()  # at most two

    def ask(self) -> None:
        """Have the thread's task look for work."""
        self._work.set()

    async def due(self, waiting: bool) -> None:
        """Return once there is work, a cut or `waiting` if there is some already, and the budget has passed."""
        if not waiting and self.cut is None:
            self._work = trio.Event()
            await self._work.wait()
        if self._budget_s:
            await trio.sleep(self._budget_s)
            self.rested = True

    def ask_cut(self, cut: CutRequest) -> None:
        """Have the log cut before anything else is written."""
        self.cut = cut
        self.ask()
        self.nudge()

    def begin_batch(self, ended: Ended) -> None:
        """Note who hears of the batch that begins now."""
        self.rested = not self._budget_s
        self._jobs.append(ended)

    def begin_cut(self, ended: Ended) -> None:
        """Note who hears of the cut that begins now."""
        self.cut = None
        self._jobs.append(ended)

    @property
    def under_way(self) -> bool:
        """Tell whether a call has begun that nobody has heard of."""
        return bool(self._jobs)

    def ended(self, ended: Outcome[Any]) -> None:
        """Hear how the oldest call ended."""
        self._jobs.popleft()(ended)
