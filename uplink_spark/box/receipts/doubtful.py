"""Ranges of the log that could not be read, before they are declared as lost.

A disk that is gone fails every read, so no range is given up at once: it has to fail again after a while. Bad sectors
come in crowds: what fails soon after that is given up at once.
"""

from __future__ import annotations

PATIENCE_S = 10.0  # from the first failed read to the one that counts
FORGOTTEN_S = 120.0  # without another one the first failed read says nothing
MOST_KNOWN = 1000  # ranges that failed and are not given up


class DoubtfulRanges:
    """When ranges failed first and last, by where they begin; of one store."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[float, float]] = {}
        self._gave_up_at = -FORGOTTEN_S

    def is_lost(self, start: int, now: float) -> bool:
        """Note a failed read; return whether the range is given up now."""
        first, last = self._failed.pop(start, (now, now))
        if now - last > FORGOTTEN_S:
            first = now
        if now - first >= PATIENCE_S or now - self._gave_up_at < FORGOTTEN_S:
            self._gave_up_at = now
            return True
        self._failed[start] = first, now
        if len(self._failed) > MOST_KNOWN:
            del self._failed[next(iter(self._failed))]
        return False
