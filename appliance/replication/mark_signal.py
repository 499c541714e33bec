"""Waiting for a mark of the log, by many or again and again, with one ask of the log at a time."""

from collections.abc import Callable

import trio

from storage_driver.log.marks import Wake


class MarkSignal:
    """Wakes all who wait for a mark to rise. A log that failed never moves it again, so only the time ends a wait."""

    def __init__(
        self, at: Callable[[], int], when: Callable[[int, Wake], None], *, failure: Callable[[], str | None]
    ) -> None:
        self._at, self._when, self._failure = at, when, failure
        self._asked, self._moved = False, trio.Event()

    async def wait(self, above: int, timeout_s: float) -> None:
        """Return once the mark is above a log offset, or after a time."""
        with trio.move_on_after(timeout_s):
            while self._at() <= above:
                moved = self._moved
                if self._failure() is None and not self._asked:
                    self._asked = True
                    self._when(self._at() + 1, self._note)
                await moved.wait()

    def _note(self, reason: str | None) -> None:
        self._asked = False
        self._moved.set()
        self._moved = trio.Event()
