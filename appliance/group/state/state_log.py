"""The tables of a leader on their way through the log: a change is a record, and safe when that is committed.

The files of the tables are written by `StateApplier` alone, on the leader as on the others.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import trio

from appliance.group.state.state_records import STATE_TOPIC, Change, Differ, JournalChange, TableChange, encode
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal
from storage_driver.files.journal_file import Frames, JournalFile
from storage_driver.files.state_file import StateFile
from storage_driver.interfaces import MarkedAppending
from storage_driver.record import Message

log = logging.getLogger("appliance.group")
MOST_PACE_S = PERIOD_S = 1.0
TOLD_SOON = {"config/topics"}  # a client that has made a topic may ask any member for its route
WAIT_S = 3.0  # for the second disk; then whoever waits is told, and the change may still come to be


class Opening(Protocol):
    """Gives the files of tables; a store does."""

    def state_file(self, name: str, *, folder: str = "config") -> StateFile: ...
    def journal_file(self, name: str) -> JournalFile: ...


class StateLog:
    """Appends changes, as long as this member leads; `following`: the number after that of the newest record.

    `on_committed` is called when a change that the others are to know soon is safe, before who waits for it goes on.
    """

    def __init__(
        self,
        store: MarkedAppending,
        store_host: bytes,
        *,
        now_ms: Callable[[], int],
        on_committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._host, self._now_ms, self._on_committed = store, store_host, now_ms, on_committed
        self._told = 0  # the newest mark that was told
        self.following = 0
        self._ended = trio.Event()
        self._reason = ""

    def append(self, change: Change) -> int:
        """Append a change and return the log offset up to which it has to be committed. Raises OSError."""
        if self._reason:
            raise OSError(self._reason)
        mark = 0
        try:
            for body in encode(change):
                message = Message(STATE_TOPIC, 0, body, b"", 0, 0, self._now_ms(), self._host)
                placed = self._store.put(message, own=True)
                mark, self.following = placed.end, placed.queue_offset + 1
        except (Full, LogFailed, Busy, MessageIllegal) as exc:
            raise OSError(f"the change is not in the log: {exc}") from exc
        return mark

    async def wait(self, mark: int, *, tells: bool = False) -> None:
        """Return once the log is committed up to a mark. Raises OSError when that takes too long, or will not be.

        tells: the others are to know of it at once; each time costs a heartbeat to every member.
        """
        ended, failed = False, ""
        with trio.move_on_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._wait_ended, nursery.cancel_scope)
                try:
                    await self._store.wait_committed(mark)
                    ended = True
                except LogFailed as exc:
                    failed = str(exc)
                nursery.cancel_scope.cancel()
        if not ended:
            raise OSError(failed or self._reason or f"the change is not on the second disk after {WAIT_S:g} s")
        if tells and mark > self._told:
            self._told = mark
            self._on_committed()

    async def _wait_ended(self, scope: trio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()

    def end(self, reason: str) -> None:
        """This member leads no longer: what waits is told, nothing more is appended."""
        self._reason = reason
        self._ended.set()


class LogTable:
    """A table's file as its owner on the leader sees it; a write returns once the log has it."""

    def __init__(self, state: StateLog, table: str, file: StateFile, told: "Told" = dict) -> None:
        self._state, self._file, self._differ, self._told = state, file, Differ(table), told
        self._mark, self._one, self._tells = 0, trio.Lock(), table in TOLD_SOON
        self.path, self._took_s, self.period_s = file.path, 0.0, PERIOD_S

    @property
    def pace_s(self) -> float:
        """How long changes rest before they are written: a moment, longer where a table is large."""
        return min(MOST_PACE_S, 4 * self._took_s)

    def load(self) -> object | None:
        """Return the table. Raises StateDamaged."""
        content: object | None = self._file.load()
        if content is not None:
            self._differ.take(content)
        return content

    async def write(self, table: object) -> None:
        """Have the log take what changed, and wait until that is safe. Raises OSError."""
        async with self._one:
            began_s = trio.current_time()
            change = self._differ.change_to(self._told_of(table))
            self._took_s = trio.current_time() - began_s
            await self._write(change)

    async def write_bytes(self, raw: bytes) -> None:
        """Do the same for JSON in UTF-8; a large table is looked through in a thread. Raises OSError."""
        async with self._one:
            await self._write(
                await trio.to_thread.run_sync(lambda: self._differ.change_to(self._told_of(json.loads(raw))))
            )

    async def write_rows(self, section: str, rows: Mapping[str, object]) -> bool:
        """Do the same for some rows of a section, None: it is gone; False: the log wants all of it. Raises OSError."""
        async with self._one:
            if not self._differ.knows:
                return False
            await self._write(self._differ.change_of(section, rows))
        return True

    def _told_of(self, table: object) -> object:
        return self._told(table) if isinstance(table, Mapping) else table

    async def _write(self, change: TableChange | None) -> None:
        if change is not None:
            try:
                self._mark = self._state.append(change)
            except OSError:
                self._differ.forget()  # some of it may be in the log, and some not
                raise
        await self._state.wait(self._mark, tells=self._tells)


Told = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class LogJournal(JournalFile):
    """A journal as its owner on the leader sees it; `append` and `replace` block until the log has them."""

    def __init__(self, state: StateLog, table: str, file: JournalFile) -> None:
        self.path, self.size, self.replaced_size = file.path, 0, 0
        self.failure: OSError | None = None
        self._state, self._table, self._read = state, table, file
        self._token = trio.lowlevel.current_trio_token()
        self._ready = False

    @property
    def exists(self) -> bool:
        return self._read.exists

    @property
    def ready(self) -> bool:
        return self._ready

    def load(self) -> Frames:
        """Return what the journal holds. Raises OSError."""
        return self._read.load()

    def replace(self, payloads: Sequence[bytes]) -> None:
        """Let these entries be all there are. Raises OSError."""
        self._store(payloads, whole=True)
        self.size = self.replaced_size = sum(map(len, payloads))

    def append(self, payload: bytes) -> None:
        """Add an entry. Raises OSError: then `replace` is next."""
        self._store([payload], whole=False)
        self.size += len(payload)

    def _store(self, payloads: Sequence[bytes], *, whole: bool) -> None:
        self._ready = False
        with self._noting_failure():
            change = JournalChange(self._table, payloads, whole)
            trio.from_thread.run(self._through_log, change, trio_token=self._token)
        self._ready = True

    async def _through_log(self, change: JournalChange) -> None:
        await self._state.wait(self._state.append(change))


class LeaderFiles:
    """What a leader's tables are kept in: the log, and the files that follow it."""

    def __init__(self, opening: Opening, state: StateLog) -> None:
        self._opening, self._state = opening, state

    def state_file(self, name: str, *, folder: str = "config") -> LogTable:
        """Return a table's file."""
        file, told = self._opening.state_file(name, folder=folder), _TOLD.get(f"{folder}/{name}", _all)
        return LogTable(self._state, f"{folder}/{name}", file, told)

    def journal_file(self, name: str) -> LogJournal:
        """Return a journal."""
        return LogJournal(self._state, f"rocketbox/{name}", self._opening.journal_file(name))


class KeptTable:
    """A table's file where the table is never changed: what its owner would save is what the log says anyway."""

    def __init__(self, file: StateFile) -> None:
        self._file, self.path = file, file.path

    def load(self) -> object | None:
        """Return the table. Raises StateDamaged."""
        content: object | None = self._file.load()
        return content

    async def write(self, table: object) -> None:
        await trio.lowlevel.checkpoint()

    async def write_bytes(self, raw: bytes) -> None:
        await trio.lowlevel.checkpoint()


class FollowerFiles:
    """What a follower's tables are read from."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def state_file(self, name: str, *, folder: str = "config") -> KeptTable:
        """Return a table's file."""
        return KeptTable(self._opening.state_file(name, folder=folder))

    def journal_file(self, name: str) -> JournalFile:
        """Return a journal that nobody writes: only a leader hands out messages for a time."""
        return self._opening.journal_file(name)


def _all(table: Mapping[str, Any]) -> Mapping[str, Any]:
    return table


def _timers(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is sorted into runs is a matter of each disk; where the index starts anew it reads the log."""
    return {**table, "spilledTo": 0, "runs": []}


_TOLD: dict[str, Told] = {"rocketbox/timers": _timers}
