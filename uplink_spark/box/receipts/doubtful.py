"""Ranges of the log that could not be read, before they are declared as lost."""

from __future__ import annotations

from storage_driver.failed_reads import FORGOTTEN_S, MOST_KNOWN, PATIENCE_S, FailedReads

__all__ = ["FORGOTTEN_S", "MOST_KNOWN", "PATIENCE_S", "DoubtfulRanges"]


class DoubtfulRanges(FailedReads):
    """By where they begin; of one store."""

    def is_lost(self, start: int, now: float) -> bool:
        """Note a failed read; return whether the range is given up now."""
        first = self.take(start, now)
        if now - first >= PATIENCE_S or self.is_crowd(now):
            self.note_given_up(now)
            return True
        self.keep(start, first, now)
        return False
