"""What the core of a member has heard of its own log.

Where the leader's disk is all that an acknowledgement waits for, the core need not hear of each batch: it hears how
far the log is before whatever else it hears, and before it is asked what others are to be sent.
"""

from typing import Protocol

from storage_driver.consensus.effects import Effects


class MarkedCore(Protocol):
    """A core, as far as it hears of its log."""

    @property
    def commits_own_disk(self) -> bool: ...
    def appended(self, now_s: float, end: int) -> Effects: ...
    def note_log(self, now_s: float, end: int, synced: int) -> None: ...


class CommittingLog(Protocol):
    """A log whose mark moves as its owner says."""

    @property
    def end(self) -> int: ...
    @property
    def synced(self) -> int: ...
    def commit(self, log_offset: int, /) -> None: ...


class ToldLog:
    """`end`: the core knows of so much of the log."""

    def __init__(self, core: MarkedCore, log: CommittingLog) -> None:
        self.end = log.end
        self._core, self._log = core, log
        self._untold = False
        self._written = 0  # the end of what began to be written, where the core has not heard of it yet

    @property
    def waits(self) -> bool:
        """Whether the core may hear of batches later."""
        return self._core.commits_own_disk

    def appended(self, now_s: float, log_offset: int) -> Effects:
        """Tell the core where the log ends now, unless it knows of more."""
        if log_offset <= self.end:
            return Effects()
        self.end = log_offset
        return self._core.appended(now_s, log_offset)

    def cut(self, log_offset: int) -> None:
        """The log ends here, and the core knows it."""
        self.end, self._written, self._untold = log_offset, 0, False

    def writing(self, end: int) -> None:
        """A batch up to here begins to be written; the core hears of it later."""
        self._written, self._untold = end, True

    def commit(self, log_offset: int) -> None:
        """Everything below is on this disk: commit it; the core hears of it later."""
        self._untold = True
        self._log.commit(log_offset)

    def tell(self, now_s: float) -> None:
        """Let the core hear what it has not heard yet: once more later, where an end below the mark waits its turn."""
        if self._untold:
            self.end = max(self.end, self._written)
            self._untold = self._log.synced > self.end
            self._core.note_log(now_s, self.end, self._log.synced)
