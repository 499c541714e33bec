"""Which reads failed with EIO, and for how long: nothing is given up at the first one, the next ones of a crowd are.

A disk that is gone fails every read, so a read has to fail again after a while. Bad sectors come in crowds. Sans I/O:
times are those of one monotonic clock.
"""

from typing import Final

PATIENCE_S: Final = 10.0  # from the first failed read of a place to the one that counts; readers ask every few seconds
FORGOTTEN_S: Final = 120.0  # without another one the first failed read says nothing
MOST_KNOWN: Final = 1000  # places that failed and are not given up


class FailedReads:
    """When places of one log failed first and last, by their log offset; and when the last one was given up."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[float, float]] = {}
        self._gave_up_at = -FORGOTTEN_S

    def take(self, at: int, now: float) -> float:
        """Forget a place that has failed again now; return when it did first."""
        first, last = self._failed.pop(at, (now, now))
        return now if now - last > FORGOTTEN_S else first

    def keep(self, at: int, first: float, now: float) -> None:
        """Know of a place that failed first and now, and is not given up."""
        self._failed[at] = first, now
        if len(self._failed) > MOST_KNOWN:
            del self._failed[next(iter(self._failed))]

    def note_given_up(self, now: float) -> None:
        """Know that a place was given up."""
        self._gave_up_at = now

    def is_crowd(self, now: float) -> bool:
        """Tell whether a place was given up a short while ago."""
        return now - self._gave_up_at < FORGOTTEN_S
