"""What a leader is asked for by other members, and by itself, one thing after the other."""

from collections import deque
from typing import Final

import trio

from storage_driver.named_tuple import NamedTuple

LEAD, LEAVE = "lead", "leave"
MOST_WISHES: Final = 8  # a group has four members at most, each may want both


class Wish(NamedTuple):
    """A member wants to lead, or to leave; `own`: nobody asked, this leader prefers it."""

    kind: str
    member: str
    own: bool = False


class Wishes:
    """Those that wait, and how a leader has answered the last one of this member."""

    def __init__(self) -> None:
        self._waiting, self._some = deque[Wish](), trio.Event()
        self.answer = ""  # why the leader refused; empty: it has not

    def add(self, wish: Wish) -> None:
        """Note a wish; one that waits already is not noted twice."""
        if wish not in self._waiting and len(self._waiting) < MOST_WISHES:
            self._waiting.append(wish)
            self._some.set()

    async def next(self) -> Wish:
        """Return the oldest wish once there is one."""
        while not self._waiting:
            self._some = trio.Event()
            await self._some.wait()
        return self._waiting.popleft()
