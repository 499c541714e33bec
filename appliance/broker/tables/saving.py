"""A table in memory that reaches the disk after each change, at once when somebody waits for that.

Changes are applied at once; only replies that promise durability wait (`when_saved`). One loop writes; what changes
during a write shares the next, so a burst of a thousand new topics costs a handful of syncs.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import trio

from storage_driver.errors import ENDED, StateDamaged
from storage_driver.files.journal_file import JournalFile
from storage_driver.files.state_file import StateFile
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.broker")

RETRY_S = 1.0
MOST_ROWS = 1000  # saved by themselves, some ms; more: the whole table, in a thread
CALM_S = 1.0  # thousands of topics made one after another are some writes of the whole table, not thousands
Row = TypeVar("Row")
Name = TypeVar("Name")
Wake = Callable[[str | None], None]
WriteRows = Callable[[str, Mapping[str, object]], Awaitable[bool]]


class TableFile(Protocol):
    """Where a table is kept; storage_driver's state files are such."""

    def load(self) -> object | None: ...

    async def write(self, table: object, /) -> None: ...

    async def write_bytes(self, raw: bytes, /) -> None: ...


class KeptFiles(Protocol):
    """Where the tables of a broker are kept: in a store, or in a log that others share."""

    def state_file(self, name: str, *, folder: str = "config") -> TableFile: ...
    def journal_file(self, name: str) -> JournalFile: ...


def pace_of(file: TableFile, usual_s: float) -> float:
    """Return how long changes may rest before they are written: less where another box goes on with the table."""
    found: float = getattr(file, "pace_s", usual_s)
    return found


def period_of(file: TableFile, usual_s: float) -> float:
    """Return how often progress is written: more often where another box goes on with it."""
    found: float = getattr(file, "period_s", usual_s)
    return found


def load_table(file: TableFile, what: str) -> dict[str, Any]:
    """Return the stored table, an empty one when there is none or nothing of it can be read: damage prevents no start.

    Topics come back from the log, groups and offsets from their clients; what was damaged is kept and told.
    """
    try:
        stored = file.load()
    except StateDamaged as exc:
        log.error("event=table_damaged table=%s reason=%r next_step=restore_it_from_a_backup", what, str(exc))
        if isinstance(file, StateFile):  # a group's table comes from the log
            file.set_aside()
        return {}
    return stored if isinstance(stored, dict) else {}


def rows_of(table: object, read: Callable[[Any], Row], what: str) -> dict[str, Row]:
    """Return the rows of a stored table that can be read; the others are named in the log."""
    found: dict[str, Row] = {}
    for name, row in table.items() if isinstance(table, dict) else ():
        try:
            found[str(name)] = read(row)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as exc:
            log.error("event=row_damaged table=%s row=%r reason=%r", what, name, f"{type(exc).__name__}: {exc}")
    return found


class TableVersion(NamedTuple):
    """Rises with every change of a table, never falls over restarts."""

    counter: int
    timestamp_ms: int

    def next(self, now_ms: int) -> "TableVersion":
        """Return the version of the next change."""
        return TableVersion(self.counter + 1, now_ms)

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, value: object, now_ms: int) -> "TableVersion":
        """Return a stored version, or a first one."""
        if not isinstance(value, dict):
            return cls(0, now_ms)
        counter, timestamp_ms = value.get("counter"), value.get("timestamp")
        return cls(
            counter if isinstance(counter, int) else 0, timestamp_ms if isinstance(timestamp_ms, int) else now_ms
        )


class Saver:
    """Writes one table after each change; `saved` is the newest mark on disk."""

    def __init__(self, file: TableFile, snapshot: Callable[[], object], *, calm_s: float | None = None) -> None:
        self.mark = self.saved = 0
        self.failures = 0
        self._failed = False  # the last write
        self._file, self._snapshot, self._calm_s = file, snapshot, calm_s
        self._work, self._urgent = trio.Event(), trio.Event()
        self._waiting: deque[tuple[int, Wake]] = deque()

    def changed(self) -> int:
        """Note a change and return the mark under which it will be on disk."""
        self.mark += 1
        self._work.set()
        return self.mark

    def when_saved(self, mark: int, wake: Wake) -> None:
        """Call wake(None) once the change with this mark is on disk, wake(reason) if it could not be written."""
        if mark <= self.saved:
            wake(None)
        else:
            self._waiting.append((mark, wake))
            self._urgent.set()

    async def run(self) -> None:
        """Write after each change until cancelled; who waits then is told that it is not sure."""
        try:
            await self._write_changes()
        finally:
            self._wake_upto(self.mark, ENDED)

    async def _write_changes(self) -> None:
        while True:
            await self._work.wait()
            if not (self._waiting or self._failed):
                # Nobody waits: after a power cut the change comes back by itself, from the log or by heartbeats.
                self._urgent = trio.Event()
                with trio.move_on_after(pace_of(self._file, CALM_S) if self._calm_s is None else self._calm_s):
                    await self._urgent.wait()
            self._work, mark = trio.Event(), self.mark
            if self.saved == mark:
                continue
            try:
                await self._file.write(self._snapshot())
            except OSError as exc:
                self.failures += 1
                self._failed = True
                log.error("event=table_not_saved reason=%r", str(exc))
                self._wake_upto(mark, f"the change is not on disk: {exc}")
                self._work.set()
                await trio.sleep(RETRY_S)
            else:
                self.saved, self._failed = mark, False
                self._wake_upto(mark, None)

    async def flush(self) -> None:
        """Write what is not on disk yet, for a clean stop."""
        mark = self.mark  # what changes during the write is not in it
        if self.saved != mark:
            await self._file.write(self._snapshot())
            self.saved = mark

    def _wake_upto(self, mark: int, reason: str | None) -> None:
        while self._waiting and self._waiting[0][0] <= mark:
            self._waiting.popleft()[1](reason)


class RowChanges(Generic[Name]):
    """Which rows of a table are not saved; above a number all of them count as changed."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._new: set[Name] | None = set()  # None: all
        self._going: set[Name] | None = set()  # what is being saved

    def note(self, row: Name) -> None:
        """A row was changed, made or dropped."""
        if self._new is not None:
            self._new.add(row)
            if len(self._new) > self._most:
                self._new = None

    def has(self, row: Name) -> bool:
        """Whether a row may be otherwise than it was saved."""
        return self._new is None or self._going is None or row in self._new or row in self._going

    def begin(self) -> set[Name] | None:
        """Return the rows of the next save, None for all; `end` follows."""
        self._going, self._new = self._new, set()
        return self._going

    def end(self, saved: bool) -> None:
        """The save has ended."""
        if not saved:
            both = None if self._new is None or self._going is None else self._new | self._going
            self._new = None if both is None or len(both) > self._most else both
        self._going = set()


class RowSave(Generic[Name]):
    """Writes the rows of a section that changed, where the table's file takes rows, else the whole table."""

    def __init__(
        self,
        file: TableFile,
        section: str,
        *,
        row: Callable[[Name], tuple[str, object]],
        whole: Callable[[], Awaitable[bytes]],
    ) -> None:
        """row: how the file names a row, and what it holds, None: it is gone. whole: the table as JSON in UTF-8."""
        self._file, self._section, self._row, self._whole = file, section, row, whole
        self._write_rows: WriteRows | None = getattr(file, "write_rows", None)
        self._changes: RowChanges[Name] | None = RowChanges() if self._write_rows is not None else None

    def note(self, row: Name) -> None:
        """A row was changed, made or dropped."""
        if self._changes is not None:
            self._changes.note(row)

    def has(self, row: Name) -> bool:
        """Whether a row may be otherwise than it was saved."""
        return self._changes is None or self._changes.has(row)

    async def write(self) -> None:
        """Write what changed since the last one that succeeded. Raises OSError."""
        if self._changes is None:
            await self._file.write_bytes(await self._whole())
            return
        changed, saved = self._changes.begin(), False
        try:
            if changed is None or not await self._write_some(changed):
                await self._file.write_bytes(await self._whole())
            saved = True
        finally:
            self._changes.end(saved)

    async def _write_some(self, changed: set[Name]) -> bool:
        """Write these rows alone; False where the file wants all."""
        rows = dict(map(self._row, changed))
        return self._write_rows is not None and await self._write_rows(self._section, rows)


class SharedSave:
    """Saves a table for all who want that: who comes during a save shares the next one, or its failure."""

    def __init__(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        """write: saves what of the table is stored now."""
        self._what, self._write = what, write
        self._changes = self._saved = self._failures = 0
        self._why = ""  # the last save failed
        self._one, self._work = trio.Lock(), trio.Event()

    def changed(self) -> None:
        """Note a change."""
        self._changes += 1
        self._work.set()

    @property
    def is_done(self) -> bool:
        """Whether all changes are saved."""
        return self._saved == self._changes

    async def flush(self) -> None:
        """Save what is not saved yet. Raises OSError."""
        wanted, failures = self._changes, self._failures
        async with self._one:
            if self._saved >= wanted:
                return
            if self._failures != failures:
                raise OSError(f"the save that was waited for failed: {self._why}")
            changes = self._changes
            try:
                await self._write()
            except OSError as exc:
                self._failures, self._why = self._failures + 1, str(exc)
                raise
            self._saved = changes

    async def run(self, every_s: float) -> None:
        """Save so long after a change, which shares that with those that follow it; until cancelled."""
        while True:
            await self._work.wait()
            await trio.sleep(every_s)
            self._work = trio.Event()
            try:
                await self.flush()
            except OSError as exc:
                log.error("event=%s_not_saved reason=%r", self._what, str(exc))
                self._work.set()


class SavedTable:
    """A table with a `Saver` of its own, which writes what `snapshot` returns."""

    def __init__(self, file: TableFile, snapshot: Callable[[], object]) -> None:
        self._saver = Saver(file, snapshot)

    def when_saved(self, mark: int, wake: Wake) -> None:
        """Call wake once the change with this mark is on disk."""
        self._saver.when_saved(mark, wake)

    async def run(self) -> None:
        """Save changes until cancelled."""
        await self._saver.run()

    async def flush(self) -> None:
        """Save what is not on disk yet."""
        await self._saver.flush()


def number(item: Mapping[str, object], name: str, otherwise: int) -> int:
    """Return a whole number of a record that others wrote. Raises ValueError."""
    return int(str(item.get(name, otherwise)))


class WholeTable:
    """The answer that holds a whole table: made once for each version of it, then shared by all who ask."""

    def __init__(self) -> None:
        self._version: TableVersion | None = None
        self._body = b""

    def body(self, version: TableVersion, encode: Callable[[], bytes]) -> bytes:
        """Return the table of this version, encoded."""
        if version != self._version:
            self._version, self._body = version, encode()
        return self._body
