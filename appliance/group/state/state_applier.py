"""Takes what the log says of tables into their files, on each member; the files' owners only read them.

A batch is written file by file, then the position. After a power cut in between some changes are applied again, which
leads to the same tables.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from appliance.broker.delay.redelivery import records_in
from appliance.group.state.state_records import (
    STATE_TOPIC,
    ChangeIllegal,
    JournalChange,
    TableChange,
    applied,
    decode,
)
from appliance.replication.mark_signal import MarkSignal
from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk
from storage_driver.files.journal_file import JournalFile
from storage_driver.files.state_file import StateFile
from storage_driver.interfaces import MarkedReading
from storage_driver.record import MessageQueue
from storage_driver.store import MessageStore

log = logging.getLogger("appliance.group")
QUEUE: Final = MessageQueue(STATE_TOPIC, 0)
LOOK_S: Final = 0.05  # between two looks at a log that grows
AGAIN_S: Final = 1.0  # after a disk took nothing
EVERY_S, BURST = 0.25, 4  # for files that are synced: so often in the long run, some at once after a pause
BATCH, BATCH_BYTES = 256, 8 << 20
CONFIG: Final = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset", "messageRequestMode")
OWN: Final = ("creations", "resent", "timers", "queueLocks", "release", "accounts", "lineage")
JOURNALS: Final = ("pop.journal",)
TOPICS: Final = "config/topics"
Applied = Callable[[frozenset[str]], Awaitable[None]]
Placed = tuple[int, TableChange | JournalChange]
"""The log offset of a record, and what it says."""


class AppliedLog(MarkedReading, Protocol):
    """A store whose queues go with their topics."""

    async def delete_ended(self, topic: str, log_offset: int, /) -> None:
        """Delete the topic's queues that have nothing at a log offset or above. Raises OSError."""


class StateFiles:
    """The files of all tables that follow the log, each opened once."""

    def __init__(
        self, tables: Mapping[str, StateFile], journals: Mapping[str, JournalFile], position: StateFile, disk: Disk
    ) -> None:
        self.tables, self.journals, self.position, self._disk = tables, journals, position, disk

    def state_file(self, name: str, *, folder: str = "config") -> StateFile:
        return self.tables[f"{folder}/{name}"]

    def journal_file(self, name: str) -> JournalFile:
        """Return a journal to read: the applier's own file is written meanwhile."""
        return JournalFile(self._disk, self.journals[f"rocketbox/{name}"].path)


class StateApplier:
    """Applies what is committed. `next`: the first record of the state that is not applied."""

    def __init__(self, store: AppliedLog, files: StateFiles) -> None:
        self._store, self._files = store, files
        position = _loaded(files.position)
        self.next = _number(position.get("next"))
        self._kept = {name: _number(count) for name, count in dict(position.get("entries") or {}).items()}
        self.floor = 0  # everything below this log offset is applied
        self.failure: str | None = None
        self._one = trio.Lock()
        self._signal = MarkSignal(lambda: store.committed, store.when_committed, failure=lambda: store.failure)

    async def run(self, done: Applied) -> None:
        """Apply what gets committed, soon, and tell which tables changed, until cancelled."""
        rested_s = -inf  # the time that the rests of all writes so far add up to
        while True:
            seen, rest_s = self._store.committed, LOOK_S
            try:
                if changed := await self.apply():
                    await done(changed)
                    now_s = trio.current_time()
                    rested_s = max(rested_s, now_s - BURST * EVERY_S) + EVERY_S
                    rest_s = max(LOOK_S, rested_s - now_s)
                self.failure = None
            except OSError as exc:
                if self.failure is None:
                    log.error("event=state_not_applied reason=%r", str(exc))
                self.failure, seen, rest_s = str(exc), -1, AGAIN_S
            await trio.sleep(rest_s)
            await self._signal.wait(seen, inf)

    async def mend(self) -> None:
        """Make files of tables that are damaged again from the log, which has whole tables. Raises OSError."""
        for name in await trio.to_thread.run_sync(_damaged, self._files.tables):
            if (content := await self._in_the_log(name)) is not None:
                await self._files.tables[name].write(content)
                log.warning("event=table_made_again table=%s next_step=none", name)

    async def _in_the_log(self, name: str) -> dict[str, Any] | None:
        """Return a table as the log says, None where the log has it nowhere as a whole. Raises OSError."""
        content, is_whole, at = dict[str, Any](), False, self._store.min_offset(QUEUE)
        while at < self.next:
            found = await self._store.read(QUEUE, at, max_count=min(BATCH, self.next - at), max_bytes=BATCH_BYTES)
            if found.next_offset <= at:
                break
            changes = await trio.to_thread.run_sync(_changes, found.chunks)
            for change in (each for _, each in changes if isinstance(each, TableChange) and each.table == name):
                content, is_whole = applied(content, change), is_whole or change.whole
            at = found.next_offset
        return content if is_whole else None

    async def apply(self) -> frozenset[str]:
        """Apply everything that is committed now; return the names of the tables that changed. Raises OSError."""
        changed = frozenset[str]()
        async with self._one:
            committed, end = self._store.committed, self._store.max_offset(QUEUE)
            start = max(self.next, self._store.min_offset(QUEUE))
            while start < end:
                found = await self._store.read(QUEUE, start, max_count=BATCH, max_bytes=BATCH_BYTES)
                if found.next_offset <= start:
                    break
                changes = await trio.to_thread.run_sync(_changes, found.chunks)
                await self._delete_queues(changes)  # first: behind the position nobody looks again
                try:
                    changed |= await trio.to_thread.run_sync(self._take, changes, found.next_offset)
                except StateDamaged:  # the one before lacks what was applied since
                    await self.mend()
                    changed |= await trio.to_thread.run_sync(
                        partial(self._take, mended=True), changes, found.next_offset
                    )
                start = self.next = found.next_offset
            self.floor = committed
        return changed

    def journal(self, name: str) -> list[bytes]:
        """Return the entries of a journal that count. Blocks. Raises OSError."""
        return self._files.journals[name].load().payloads[: self._kept.get(name, 0)]

    async def _delete_queues(self, changes: Sequence[Placed]) -> None:
        """Delete what queues of deleted topics have from before, as the leader did: this box may lead next."""
        for log_offset, change in changes:
            for topic in _deleted_topics(change):
                try:
                    await self._store.delete_ended(topic, log_offset)
                except OSError as exc:
                    log.error("event=queues_not_deleted topic=%s reason=%r next_step=delete_it_again", topic, str(exc))

    def _take(self, changes: Sequence[Placed], following: int, *, mended: bool = False) -> frozenset[str]:
        """Write the files of a batch, then the position. Blocks. Raises OSError, StateDamaged unless `mended`."""
        load = _loaded if mended else _newest
        contents: dict[str, Any] = {}
        names = set[str]()
        for _, change in changes:
            if isinstance(change, JournalChange):
                if (journal := self._files.journals.get(change.table)) is not None:
                    self._take_journal(journal, change)
                    names.add(change.table)
            elif (file := self._files.tables.get(change.table)) is not None:
                content = contents[change.table] if change.table in contents else load(file)
                contents[change.table] = applied(content, change)
                names.add(change.table)
        for name, content in contents.items():
            self._files.tables[name].save(content)
        self._files.position.save({"next": following, "entries": self._kept})
        return frozenset(names)

    def _take_journal(self, journal: JournalFile, change: JournalChange) -> None:
        if change.whole:
            journal.replace(change.entries)
            self._kept[change.table] = len(change.entries)
            return
        if not journal.ready:  # what is behind the position comes again
            journal.replace(self.journal(change.table))
        for entry in change.entries:
            journal.append(entry)
        self._kept[change.table] = self._kept.get(change.table, 0) + len(change.entries)


def open_files(store: MessageStore, disk: Disk, data: Path) -> StateFiles:
    """Return the files of the tables that follow the log."""
    tables = {f"config/{name}": store.state_file(name) for name in CONFIG}
    tables |= {f"rocketbox/{name}": store.state_file(name, folder="rocketbox") for name in OWN}
    tables["namesrv/kvConfig"] = StateFile(disk, data / "namesrv" / "kvConfig.json")
    journals = {f"rocketbox/{name}": store.journal_file(name) for name in JOURNALS}
    return StateFiles(tables, journals, store.state_file("state", folder="rocketbox"), disk)


def _changes(chunks: Iterable[bytes]) -> list[Placed]:
    found = list[Placed]()
    for stored in records_in(chunks):
        try:
            found.append((stored.log_offset, decode(stored.body)))
        except ChangeIllegal as exc:
            log.error("event=state_record_skipped reason=%r", str(exc))
    return found


def _deleted_topics(change: TableChange | JournalChange) -> Sequence[str]:
    if not isinstance(change, TableChange) or change.table != TOPICS:
        return ()
    return change.gone.get("topicConfigTable", ())


def _loaded(file: StateFile) -> dict[str, Any]:
    try:
        content = file.load()
    except StateDamaged as exc:
        log.error("event=table_damaged table=%s reason=%r", file.path.stem, str(exc))
        return {}
    return content if isinstance(content, dict) else {}


def _newest(file: StateFile) -> dict[str, Any]:
    content = file.load_newest()
    return content if isinstance(content, dict) else {}


def _damaged(tables: Mapping[str, StateFile]) -> list[str]:
    """Return the names of the tables that cannot be read as they were saved last. Blocks. Raises OSError."""
    found = list[str]()
    for name, file in tables.items():
        try:
            file.load_newest()
        except StateDamaged as exc:
            log.error("event=table_damaged table=%s reason=%r", name, str(exc))
            found.append(name)
    return found


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
