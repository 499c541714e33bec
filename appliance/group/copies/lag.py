"""How old the first byte is that a copy of a log has not. Sans I/O."""

from collections import deque
from itertools import pairwise
from typing import Final

STEP_S: Final = 0.25  # between two notes
MOST_NOTES: Final = 1024  # some 600 are enough for years
FINENESS: Final = 32  # notes may lie apart by this part of their age


class LogAges:
    """Notes of when a log had which end."""

    def __init__(self) -> None:
        self._notes = deque[tuple[int, float]]()  # end, since when; both rise

    def note(self, end: int, now_s: float) -> None:
        """The log ends here now."""
        notes = self._notes
        while notes and notes[-1][0] > end:  # it was cut
            notes.pop()
        if notes and (notes[-1][0] == end or now_s - notes[-1][1] < STEP_S):
            return
        notes.append((end, now_s))
        if len(notes) > MOST_NOTES:
            self._thin(now_s)

    def _thin(self, now_s: float) -> None:
        """Drop a note where those around it are close to each other for their age."""
        notes, self._notes = list(self._notes), deque([self._notes[0]])
        for (end, at_s), (_, next_s) in pairwise(notes[1:]):
            if (next_s - self._notes[-1][1]) * FINENESS > now_s - at_s:
                self._notes.append((end, at_s))
        self._notes.append(notes[-1])

    def age_s(self, now_s: float, synced: int) -> float:
        """Return since when the log has had the byte behind what a copy has; 0 when it has everything."""
        since_s = now_s
        for end, noted_s in reversed(self._notes):
            if end <= synced:
                break
            since_s = noted_s
        return max(0.0, now_s - since_s)
