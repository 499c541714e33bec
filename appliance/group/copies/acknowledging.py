"""Clients wait so long for the other disks, then they hear why; their message may be committed later nevertheless."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from appliance.broker.intake import NOT_COPIED
from storage_driver.log.marks import Wake, When

LOOK_S: Final = 0.05


class _Waiter:
    """A client that waits until `deadline_s`; `wake` is None once it was answered."""

    __slots__ = ("deadline_s", "wake")

    def __init__(self, deadline_s: float, wake: Wake) -> None:
        self.deadline_s = deadline_s
        self.wake: Wake | None = wake

    def __call__(self, reason: str | None) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake(reason)


class Acknowledgements:
    """`when` is the `when_committed` of those who answer clients: it ends after `wait_s`, with a reason."""

    def __init__(self, when_committed: When, *, wait_s: float, why: Callable[[], str]) -> None:
        self._when_committed, self._wait_s, self._why = when_committed, wait_s, why
        self._waiting: deque[_Waiter] = deque()
        self.expired = 0

    def when(self, log_offset: int, wake: Wake) -> None:
        """Call wake(None) once all bytes below log_offset are committed, wake(reason) when that takes too long."""
        self._wait(self._when_committed, log_offset, wake)

    def over(self, when: When) -> When:
        """Return another `when` that ends after the same time."""
        return partial(self._wait, when)

    def _wait(self, when: When, log_offset: int, wake: Wake) -> None:
        waiter, waiting = _Waiter(trio.current_time() + self._wait_s, wake), self._waiting
        when(log_offset, waiter)
        if waiter.wake is not None:
            while waiting and waiting[0].wake is None:
                waiting.popleft()
            waiting.append(waiter)

    async def run(self) -> None:
        """Answer those who have waited long enough, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            now, waiting = trio.current_time(), self._waiting
            while waiting and (waiting[0].wake is None or waiting[0].deadline_s <= now):
                waiter = waiting.popleft()
                if waiter.wake is not None:
                    self.expired += 1
                    waiter(f"{NOT_COPIED} after {self._wait_s * 1000:.0f} ms: {self._why()}")
