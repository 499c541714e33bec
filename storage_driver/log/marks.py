"""`Mark`: a log offset that rises, and waiters for its values."""

from collections import deque
from collections.abc import Callable

import trio

Wake = Callable[[str | None], None]
When = Callable[[int, Wake], None]


async def reached(when: When, mark: int) -> str | None:
    """Return once `when` tells that a mark is reached; the reason if it will not be."""
    done, reasons = trio.Event(), list[str | None]()

    def wake(reason: str | None) -> None:
        reasons.append(reason)
        done.set()

    when(mark, wake)
    await done.wait()
    return reasons[0]


class Mark:
    """One of the log's marks. Asks come in the order of the log, so one move frees a prefix of those who wait."""

    __slots__ = ("_waiting", "at", "begins", "told")

    def __init__(self, at: int) -> None:
        self.at = at
        self.told = 0  # how many have waited and do no longer
        self._waiting: deque[tuple[int, Wake]] = deque()
        self.begins: Callable[[], None] | None = None  # is told that somebody waits where nobody did

    def when(self, log_offset: int, wake: Wake) -> bool:
        """Call wake(None) once the mark is at or above a log offset; return whether somebody waits now."""
        if log_offset <= self.at:
            wake(None)
            return False
        waiting = self._waiting
        if waiting and (last := waiting[-1][0]) > log_offset:
            log_offset = last  # a late asker waits for the group before it
        waiting.append((log_offset, wake))
        if self.begins is not None and len(waiting) == 1:
            self.begins()
        return True

    def move(self, log_offset: int) -> None:
        """Set the mark and wake those whose log offset it has reached, in order."""
        self.at = log_offset
        waiting = self._waiting
        while waiting and waiting[0][0] <= log_offset:
            self.told += 1
            waiting.popleft()[1](None)

    @property
    def asked(self) -> int:
        """How many have ever waited."""
        return self.told + len(self._waiting)

    def expire(self, asked: int, reason: str) -> None:
        """Call wake(reason) for those who still wait of the first `asked` ones."""
        waiting = self._waiting
        while waiting and self.told < asked:
            self.told += 1
            waiting.popleft()[1](reason)

    def fail(self, reason: str, above: int = -1) -> None:
        """Call wake(reason) for those who wait for a log offset above this one: it will not be reached."""
        kept: deque[tuple[int, Wake]] = deque()
        waiting, self._waiting = self._waiting, kept
        for log_offset, wake in waiting:
            if log_offset > above:
                self.told += 1
                wake(reason)
            else:
                kept.append((log_offset, wake))
