"""The calls of a connection that have just ended, for clients that did not wait for it.

A reset crosses the end of its answer within a round trip. One that comes later says nothing about what the client
got: messages that it works on would be given to others.
"""

from collections.abc import Callable
from typing import Final

MOST_KEPT: Final = 64
KEPT_S: Final = 2.0


class EndedCalls:
    """What a handler wants done where its answer was not waited for, by number of the call."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[float, Callable[[], None]]] = {}  # the oldest first

    def note(self, number: int, taken_back: Callable[[], None], now: float) -> None:
        """A call has ended."""
        self._kept[number] = now, taken_back
        self.forget(now)

    def reset(self, number: int, now: float) -> Callable[[], None] | None:
        """Return what is to be done since the client has reset a call, None when that says nothing any more."""
        self.forget(now)
        _, taken_back = self._kept.pop(number, (now, None))
        return taken_back

    def forget(self, now: float) -> None:
        """Let go of calls that ended too long ago, and of the oldest of too many."""
        while self._kept:
            number, (ended, _) = next(iter(self._kept.items()))
            if len(self._kept) <= MOST_KEPT and now - ended <= KEPT_S:
                break
            del self._kept[number]

    def clear(self) -> None:
        """Let go of all of them."""
        self._kept.clear()
