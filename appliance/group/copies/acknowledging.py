"""Clients wait so long for the other disks, then they hear why; their message may be committed later nevertheless."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import trio

from appliance.errors import NOT_COPIED

LOOK_S: Final = 0.05


class WaitingClients(Protocol):
    """A mark of the log, at which clients wait in order."""

    begins: Callable[[], None] | None  # is told that somebody waits where nobody did

    @property
    def asked(self) -> int:
        """How many have ever waited."""

    @property
    def told(self) -> int:
        """How many of them do no longer."""

    def expire(self, asked: int, reason: str, /) -> None:
        """Tell a reason to those who still wait of the first `asked` ones."""


class Acknowledgements:
    """Ends the wait of clients after `wait_s`, with a reason. They are counted now and then: a wait costs nothing."""

    def __init__(self, marks: Sequence[WaitingClients], *, wait_s: float, why: Callable[[], str]) -> None:
        self._marks, self._wait_s, self._why = marks, wait_s, why
        self._counts = deque[tuple[float, list[int]]]()  # at a time, so many had asked at each mark
        self.expired = 0
        self._begun = trio.Event()
        for mark in marks:
            mark.begins = self._begin

    def _begin(self) -> None:
        self._begun.set()

    async def run(self) -> None:
        """Answer those who have waited long enough, until cancelled."""
        while True:
            await self._begun.wait()
            await self._look_while_they_wait()

    async def _look_while_they_wait(self) -> None:
        """Count clients, and tell those who have waited long enough, until nobody waits."""
        looked = trio.current_time()
        while True:
            now = trio.current_time()
            while self._counts and self._counts[0][0] + self._wait_s <= now:
                self._expire(self._counts.popleft()[1])
            if any(mark.asked > mark.told for mark in self._marks):
                self._counts.append((looked, [mark.asked for mark in self._marks]))
            elif not self._counts:
                self._begun = trio.Event()
                return
            looked = now
            await trio.sleep(LOOK_S)

    def _expire(self, counts: Sequence[int]) -> None:
        for mark, asked in zip(self._marks, counts, strict=True):
            if asked > mark.told:
                self.expired += asked - mark.told
                mark.expire(asked, f"{NOT_COPIED} after {self._wait_s * 1000:.0f} ms: {self._why()}")
