"""`Commitment`: the mark `committed`, what is on this disk above it, and who waits for it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from storage_driver.log.marks import Mark
from storage_driver.queues.pending import PendingAppend, PendingRun, end_of, split_run

ALL: Final = 1 << 62  # above every log offset


class Commitment:
    """What of one log may be acknowledged; `dispatch` gets each record before it can be, returns how many it got."""

    def __init__(self, at: int, dispatch: Callable[[Sequence[PendingAppend]], int]) -> None:
        self.mark = Mark(at)
        self.answers: Mark | None = None  # the mark again, for clients, where they do not wait for ever
        self.read_to = ALL  # behind it the log has whole files of which no record was read yet
        self.dispatched = 0  # records
        self._dispatch = dispatch
        self._waiting: deque[PendingAppend] = deque()  # synced, not dispatched
        self._wanted = 0  # what `commit` was asked for while it was lower

    def bound_answers(self) -> Mark:
        """Let clients wait at a mark of their own from now on; return it."""
        self.answers = Mark(self.mark.at)
        return self.answers

    def add(self, pending: Sequence[PendingAppend]) -> None:
        """Take records that are synced and wait for `commit`."""
        self._waiting += pending

    def commit(self, log_offset: int, synced: int) -> None:
        """Dispatch what is below a log offset and let it be acknowledged, as far as it is synced.

        A batch is committed as a whole, and the mark never falls.
        """
        self._wanted = max(self._wanted, log_offset)
        end, ready = min(log_offset, synced, self.read_to), list[PendingAppend]()
        if end <= self.mark.at:
            return
        waiting = self._waiting
        if waiting and end_of(waiting[-1]) <= end:  # all of it, mostly
            ready = list(waiting)
            waiting.clear()
        while waiting and end_of(waiting[0]) <= end:
            ready.append(waiting.popleft())
        if waiting and waiting[0].log_offset < end:
            end = waiting[0].log_offset
        self.dispatch(ready, end)

    def dispatch(self, ready: Sequence[PendingAppend], end: int) -> None:
        """Commit records that end at a log offset: what is acknowledged can be pulled, so the mark moves last."""
        self.dispatched += self._dispatch(ready)
        self.move(end)

    def move(self, log_offset: int) -> None:
        """Set the mark."""
        self.mark.move(log_offset)
        if self.answers is not None:
            self.answers.move(log_offset)

    def adopt(self, end: int) -> None:
        """Know that behind a log offset, or before, are records which nobody has read."""
        self.read_to = min(self.read_to, end)

    def take_read(self, pending: Sequence[PendingAppend], log_offset: int, *, end: int, synced: int) -> None:
        """Take the records between `read_to` and a log offset, where one ends; commit what waited for them."""
        self._waiting += pending
        self.read_to = log_offset if log_offset < end else ALL
        self.commit(self._wanted, synced)

    def cut(self, log_offset: int) -> list[PendingAppend]:
        """Give up the records above a log offset that wait for `commit`, and return them."""
        self._wanted = min(self._wanted, log_offset)
        if self.read_to >= log_offset:
            self.read_to = ALL
        above = [pending for pending in self._waiting if pending.log_offset >= log_offset]
        waiting = self._waiting = deque(pending for pending in self._waiting if pending.log_offset < log_offset)
        if waiting and isinstance(waiting[-1], PendingRun) and end_of(waiting[-1]) > log_offset:
            kept, gone = split_run(waiting[-1], log_offset)
            waiting[-1] = kept
            above.insert(0, gone)
        return above

    def fail(self, reason: str, above: int) -> None:
        """Call wake(reason) for those who wait for what is above a log offset."""
        self.mark.fail(reason, above=above)
        if self.answers is not None:
            self.answers.fail(reason, above=above)
