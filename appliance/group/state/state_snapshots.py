"""Whole tables in the log, again and again, so that a log that begins late has them; and what all members still need.

A leader writes them when the last ones are a segment old. Retention of each member keeps the log from the newest whole
tables on, and what the leader keeps: what is not delivered, not shipped.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import trio

from appliance.group.state.state_applier import QUEUE, StateApplier, StateFiles
from appliance.group.state.state_log import StateLog
from appliance.group.state.state_records import SINGLE, Change, JournalChange, TableChange, whole
from storage_driver.errors import StateDamaged
from storage_driver.interfaces import MarkedReading
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.group")
RELEASE: Final = "rocketbox/release"
LOOK_S: Final = 1.0
STEPS: Final = 4  # of a segment: so much more has to be free before the others are told


class KeptFrom(NamedTuple):
    """Log offsets: where the newest whole tables begin, and below which the leader needs nothing."""

    tables: int = -1  # none yet
    below: int = 0

    @property
    def floor(self) -> int:
        """No member's retention passes this."""
        return max(0, min(self.tables, self.below))


def read_release(files: StateFiles) -> KeptFrom:
    """Return what the log said last. Blocks for one small file."""
    try:
        content: Any = files.tables[RELEASE].load() or {}
        return KeptFrom(int(content["tables"]), int(content["below"]))
    except (StateDamaged, OSError, KeyError, TypeError, ValueError, AttributeError):
        return KeptFrom()


class Snapshots:
    """Runs on a leader; `below` gives the log offset below which it needs nothing."""

    def __init__(
        self,
        store: MarkedReading,
        state: StateLog,
        applier: StateApplier,
        files: StateFiles,
        *,
        segment_bytes: int,
        below: Callable[[], int],
    ) -> None:
        self._store, self._state, self._applier, self._files = store, state, applier, files
        self._segment_bytes, self._below = segment_bytes, below
        self._release = read_release(files)

    async def run(self) -> None:
        """Write whole tables when the last are old, and tell what may go, until cancelled."""
        while True:
            try:
                await self._look()
            except (OSError, StateDamaged) as exc:
                log.warning("event=tables_not_in_log reason=%r", str(exc))
            await trio.sleep(LOOK_S)

    async def _look(self) -> None:
        told, below = self._release, self._below()
        if told.tables < 0 or self._store.end - told.tables >= self._segment_bytes:
            if (start := await self._write_all()) is not None:
                self._release = KeptFrom(start, below)
        elif below - told.below >= self._segment_bytes // STEPS:
            self._release = told._replace(below=below)
        if self._release != told:
            single = {SINGLE: self._release._asdict()}
            self._state.append(TableChange(RELEASE, single, {}))

    async def _write_all(self) -> int | None:
        """Append all tables as they are; return where they begin, None when they change just now."""
        if not self._settled():
            return None
        changes = await trio.to_thread.run_sync(self._read)
        if not self._settled():
            return None
        start = self._store.end
        for change in changes:
            self._state.append(change)
        return start

    def _settled(self) -> bool:
        """Return whether the files have every change that is in the log."""
        return self._applier.next >= max(self._state.following, self._store.max_offset(QUEUE))

    def _read(self) -> list[Change]:
        found: list[Change] = []
        for name, file in self._files.tables.items():
            if name != RELEASE and (content := file.load()) is not None:
                found.append(whole(name, content))
        for name, journal in self._files.journals.items():
            if journal.exists:
                found.append(JournalChange(name, self._applier.journal(name), whole=True))
        return found
