"""When a box that a test kills was down, and how late something was, the times without it left out.

Nor does what a send took at the same time: it needs one sync, as the copy of a message does, and on a machine that
stops everything both wait. What makes redelivery later than other work counts in full.
"""

SLOW_S = 0.1  # of a send
KILL_S = 1.0  # what was due so shortly before a kill may wait for the start as well


class Downs:
    """From each kill to the start behind it, by a clock of the test's."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float]] = []
        self._slow: list[tuple[float, float]] = []  # sends, from the request to the answer
        self._came: list[tuple[float, float]] = []  # when it was due, when it was done

    def add(self, killed_s: float, ready_s: float) -> None:
        self._rows.append((killed_s, ready_s))

    def sent(self, began_s: float, answered_s: float) -> None:
        if answered_s - began_s > SLOW_S:
            self._slow.append((began_s, answered_s))

    def came(self, due_s: float, done_s: float) -> None:
        """Note that something was done, perhaps by a box that has not said yet that it is ready."""
        self._came.append((due_s, done_s))

    def late_s(self) -> list[float]:
        """Return how late all was, once every start is known."""
        return [self.late_of(due_s, done_s) for due_s, done_s in self._came]

    def late_of(self, due_s: float, done_s: float) -> float:
        """Return for how long the box ran from the time that something was due, or from the start behind it."""
        for killed_s, ready_s in self._rows:
            if killed_s - KILL_S <= due_s <= ready_s:
                due_s = ready_s
        down_s = sum(max(0.0, min(ready_s, done_s) - max(killed_s, due_s)) for killed_s, ready_s in self._rows)
        slow_s = max((min(ended_s, done_s) - max(began_s, due_s) for began_s, ended_s in self._slow), default=0.0)
        return done_s - due_s - down_s - max(slow_s, 0.0)


def summary(late_s: list[float]) -> str:
    """Return the middle and the worst of some delays."""
    late = sorted(late_s) or [0.0]
    return f"{len(late_s)} left came {late[len(late) // 2]:.3f} s after their time, at most {late[-1]:.3f}"


def check_late(late_s: list[float], most_s: float = 1.0) -> None:
    """One of a hundred may be later: a busy machine stops everything now and then."""
    late = sorted(late_s)
    assert late, "something was left"
    assert late[len(late) * 99 // 100] <= most_s, summary(late)
