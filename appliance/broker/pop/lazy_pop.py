"""The POP engine of a box, made when somebody first uses POP, or at the start where an earlier run left a journal."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from appliance.broker.pop.counts import PopCounts
from storage_driver.files.journal_file import JournalFile

if TYPE_CHECKING:
    from appliance.broker.pop.engine import PopEngine


class LazyPop:
    """Makes the engine once and runs it; boxes without POP import none of it."""

    def __init__(self, file: JournalFile, make: Callable[[JournalFile], "PopEngine"]) -> None:
        self._file, self._make = file, make
        self._made: PopEngine | None = None
        self._used = trio.Event()
        if file.exists:
            self.engine()

    @property
    def made(self) -> "PopEngine | None":
        """The engine if there is one."""
        return self._made

    def engine(self) -> "PopEngine":
        """Return the engine, made now if it was not used yet."""
        if self._made is None:
            self._made = self._make(self._file)
            self._used.set()
        return self._made

    def counts(self) -> PopCounts:
        """Return the counts, all 0 while POP is not used."""
        return self._made.counts() if self._made is not None else PopCounts()

    async def run(self) -> None:
        """Run the engine, once there is one, until cancelled."""
        await self._used.wait()
        await self.engine().run()

    async def flush(self) -> None:
        """Write what the journal holds back. Raises OSError."""
        if self._made is not None:
            await self._made.journal.flush()
