"""How often each method was called, and what came of it."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from netstack.serving.limits import LogLimiter


class CallStatistics(NamedTuple):
    """Calls and refusals by the names of methods; calls that failed inside; calls of methods that are not there."""

    requests: Mapping[str, int]
    refusals: Mapping[tuple[str, str], int]  # (method, code)
    faults: int
    unknown: int


class CallCounts:
    """The counters of one port; `lines`: how often the log is told of calls that fail inside."""

    __slots__ = ("faults", "lines", "refusals", "requests", "unknown")

    def __init__(self) -> None:
        self.requests: Counter[bytes] = Counter()  # by path, of methods that are there
        self.refusals: Counter[tuple[str, str]] = Counter()  # by method and code
        self.faults = self.unknown = 0
        self.lines = LogLimiter()

    def statistics(self) -> CallStatistics:
        """Return what was counted so far."""
        asked = {path.rpartition(b"/")[2].decode(): count for path, count in self.requests.items()}
        return CallStatistics(asked, dict(self.refusals), self.faults, self.unknown)
