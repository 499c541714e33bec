"""A table in Delta's open format: tasks write its Parquet files, the driver lists them in Delta's log.

    <table>/_delta_log/            Delta's log: columns, files with statistics, how far each input is read
    <table>/part=data|ranges|gaps/landed_day=<day>/*.parquet

Rows, ranges and gaps are one Delta table, divided by the column `part`: one commit lists all three, so every version
that any engine reads is consistent. How far an input is read is an application transaction of the same commit
(`txn`, Delta protocol, "Transaction Identifiers"): the table itself, not a Spark checkpoint, says what it contains,
and of two writers that read the same input one fails.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from uplink_spark.jobs.table.columns import COMMENTS
from uplink_spark.jobs.table.commit_list import CommitList
from uplink_spark.jobs.table.commits import EMPTY, Conflict, DataFile, NewFile, Position, Snapshot, TableError
from uplink_spark.jobs.table.file_statistics import COLUMNS as STATISTICS
from uplink_spark.jobs.table.location import FolderLocation, Stamp, locate, reason
from uplink_spark.jobs.table.log import APP, CARE, LOG, Commit, commit_name, lines_apart, read_commit

PARTITIONS = ("part", "landed_day")  # columns of a file's place, not in it
INPUTS, ORIGIN, PARTS = f"{APP}.inputs", f"{APP}.origin", f"{APP}.parts"
END = f"{APP}.end"  # in each commit of rows: how far every input is read, as the `txn` actions of all commits say
CHECKPOINT_EVERY = 100
KEEP_LOG_DAYS = 30
NOT_READ = frozenset(("deletionVectors", "columnMapping"))  # features of Delta's readers
WRITTEN = frozenset(  # features of Delta's writers that a commit of the library takes
    (
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz"),
        *("v2Checkpoint", "variantType", "variantType-preview", "variantShredding-preview"),
    )
)
Schemas = Mapping[str, pa.Schema]  # part of the table -> columns of its files


class Table:
    """A table in a folder that all drivers and executors share, or in an object store."""

    def __init__(self, root: str, *, taking_over: bool = False) -> None:
        self.location = locate(root)
        self.root = self.location.text  # path or URL, as other parts take it
        self._newest: DeltaTable | None = None
        self._stamp: Stamp | None = None  # of the newest commit of that view
        self._known: dict[int, tuple[Position, dict[str, str]]] = {}  # END and ORIGIN of the version looked at last
        self._taking_over = taking_over  # what an earlier program wrote may be half in Delta's log

    def prepare(self) -> None:
        """Make the folder. Raises TableError where that cannot be, or where a landing zone is."""
        self.location.prepare()

    def exists(self) -> bool:
        """Return whether there is a table. Raises TableError for one of an earlier program."""
        if isinstance(self.location, FolderLocation) and not self._taking_over:
            old = CommitList(self.location.path)
            if old.exists() and not old.is_taken():
                raise TableError(
                    f"table {self.root} has the commit list of an earlier program: take it over once with "
                    f"python -m uplink_spark.jobs.migrate --table {self.root}"
                )
        return self.location.has(LOG)

    def _delta(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.location.url, version, storage_options=self._options())

    def _options(self) -> dict[str, str] | None:
        return dict(self.location.options) if self.location.options else None

    def open(self, version: int | None = None) -> DeltaTable | None:
        """Return Delta's view of the newest or one version, None where there is no table. Raises TableError.

        The view of the newest version follows the table at the next call.
        """
        if self._newest is not None and not self._is_there(self._newest):
            self._newest = None
            self._known.clear()
        if self._newest is None and not self.exists():
            return None
        try:
            if version is not None and (self._newest is None or self._newest.version() != version):
                return self._delta(version)
            if self._newest is None:
                self._newest = self._delta()
            elif version is None:
                self._newest.update_incremental()  # reads what is new: an opening reads the list of all files
            self._check_readable(self._newest)
            self._stamp = self.location.stamp(commit_name(self._newest.version()))
            return self._newest
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            asked = "" if version is None else f" version {version}"
            raise TableError(f"table {self.root}{asked} cannot be opened: {reason(error)}") from error

    def _check_readable(self, opened: DeltaTable) -> None:
        """Its files are read as they are: raises TableError where rows of them are deleted or columns renamed apart."""
        protocol = opened.protocol()
        features = protocol.reader_features or (["columnMapping"] if protocol.min_reader_version == 2 else [])
        if found := sorted(NOT_READ & set(features)):
            raise TableError(
                f"table {self.root} has the feature {found[0]}, which another engine has set: rows that it deleted "
                "would come back, columns that it renamed would be null; drop the feature there, or start a new table"
            )

    def _check_writable(self, opened: DeltaTable) -> None:
        """Raises TableError before a task has written anything, where the library would refuse the commit."""
        if found := sorted(set(opened.protocol().writer_features or ()) - WRITTEN):
            raise TableError(
                f"table {self.root} has the features {', '.join(found)}, which another engine has set and this program "
                "cannot write: drop them there (ALTER TABLE … DROP FEATURE), or start a new table"
            )

    def _is_there(self, opened: DeltaTable) -> bool:
        """Whether the log still has the same version: a table set back to an older copy is read anew, also where
        another program has gone on from that copy."""
        return self._stamp is not None and self.location.stamp(commit_name(opened.version())) == self._stamp

    def fingerprint(self, version: int) -> str | None:
        """Return what tells a version from that of another table; None where the log no longer has it."""
        text = self.location.read(commit_name(version))
        return None if text is None else hashlib.sha256(text).hexdigest()[:16]

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the newest state, or that of one version. Raises TableError."""
        opened = self.open(version)
        try:
            return EMPTY if opened is None else self._snapshot(opened)
        except (DeltaError, OSError) as error:
            raise TableError(f"table {self.root} cannot be opened: {reason(error)}") from error

    def _snapshot(self, opened: DeltaTable) -> Snapshot:
        version = opened.version()
        end, origin = self._noted(opened)
        return Snapshot(version, end, origin, lambda: self._files(version))

    def _noted(self, opened: DeltaTable) -> tuple[Position, dict[str, str]]:
        """Return END and ORIGIN of the newest commit of rows in the version's line. What the last look found is not
        sought again: another program may commit often, and a job reads each of its commits once.
        """
        version = opened.version()
        found = self._sought(opened)
        self._known = {version: found}
        return found

    def _sought(self, opened: DeltaTable) -> tuple[Position, dict[str, str]]:
        """The library is asked where the log no longer has such a commit: for each input it reads all commits since
        the checkpoint.
        """
        at = base = opened.version()
        origin: dict[str, str] = {}
        while at not in self._known and (commit := read_commit(self.location, at)) is not None:
            origin = origin or json.loads(commit.notes.get(ORIGIN, "{}"))
            if END in commit.notes:
                return json.loads(commit.notes[END]), json.loads(commit.notes[ORIGIN])
            if commit.is_of_rows():  # of an earlier program
                break
            if commit.restores():
                at = base = self._restored(commit)
                origin = {}
            else:
                at -= 1
        if at in self._known:
            return self._known[at]
        there = opened if base == opened.version() else self._delta(base)
        found = {name: there.transaction_version(f"{APP}/{name}") for name in _inputs(there)}
        end = {name: seq for name, seq in found.items() if seq is not None}
        return end, origin if end else {}

    def _restored(self, commit: Commit) -> int:
        """Return the version whose files a RESTORE brought back: what that one says of its inputs holds again."""
        files, asked = self._paths(commit.version), str((commit.notes.get("operationParameters") or {}).get("version"))
        for before in [int(asked)] if asked.isdigit() else range(commit.version - 1, -1, -1):  # else it names a time
            if self._paths(before) == files:
                return before
        raise TableError(
            f"version {commit.version} of table {self.root} is a RESTORE by another engine, and no version before it "
            "has the same files: some were gone; RESTORE a version whose files are all there, or start a new table"
        )

    def _paths(self, version: int) -> set[str]:
        return {file.path for file in self._files(version)}

    def _files(self, version: int) -> list[DataFile]:
        opened = self.open(version)
        return [] if opened is None else list(_listed(opened))

    def declare(self, schemas: Schemas, inputs: Sequence[str]) -> Snapshot:
        """Make the table, or add the columns it lacks; return it as it is then. Raises TableError.

        A program that knows fewer columns writes what it knows: the others are null in its rows.
        """
        opened = self.open()
        while opened is None:
            self._create(schemas, inputs)
            opened = self.open()
        self._check_writable(opened)
        there = {column.name: column for column in opened.schema().fields}
        lacking: list[Field] = []
        for column in _fields(schemas):
            found = there.get(column.name)
            if found is None:
                lacking.append(column)
            elif found.type != column.type:
                raise TableError(
                    f"table {self.root} is another one: its column {column.name} is {_type(found)}, not "
                    f"{_type(column)}; write to a new table"
                )
        known = _inputs(opened)
        if lacking or not set(inputs) <= set(known):
            self._add(opened, lacking, [*known, *(name for name in inputs if name not in known)])
            return self.declare(schemas, inputs)
        return self._snapshot(opened)

    def _create(self, schemas: Schemas, inputs: Sequence[str]) -> None:
        try:
            known = creation(schemas, inputs) | {"storage_options": self._options()}
            DeltaTable.create(self.location.url, Schema(_fields(schemas)), mode="error", **known)
        except (DeltaError, OSError) as error:  # another driver made it meanwhile
            if self.open() is None:
                raise TableError(f"table {self.root} cannot be made: {reason(error)}") from error

    def _add(self, opened: DeltaTable, columns: list[Field], inputs: Sequence[str]) -> None:
        before = opened.version()
        try:
            if columns:
                opened.alter.add_columns(columns)
            opened.alter.set_table_properties({INPUTS: ",".join(inputs)}, raise_if_not_exists=False)
        except (DeltaError, OSError) as error:  # another driver added them meanwhile
            if self.snapshot().version == before:
                raise TableError(f"table {self.root} takes no new columns: {reason(error)}") from error

    def columns(self, part: str = "data") -> list[str]:
        """Return the names of the columns that files of a part have."""
        return [column.name for column in self.fields(part)]

    def fields(self, part: str = "data") -> list[Field]:
        return [column for column in self._columns() if part in str(column.metadata.get(PARTS, "")).split(",")]

    def foreign(self) -> list[Field]:
        """Return the columns that another program added: a file may have them, whatever its part."""
        return [one for one in self._columns() if PARTS not in one.metadata and one.name not in PARTITIONS]

    def _columns(self) -> list[Field]:
        opened = self.open()
        return [] if opened is None else opened.schema().fields

    def append(self, have: Snapshot, files: Sequence[NewFile], end: Position, origin: Mapping[str, str]) -> None:
        """Commit files that contain the input from `have.end` to `end`. Raises Conflict where another did, TableError.

        Two appends to one version always conflict, whichever inputs they read: `origin` is of all of them.
        """
        done = [*((f"{APP}/{name}", seq) for name, seq in end.items()), (APP, have.version + 1)]
        now_ms = time.time_ns() // 1_000_000
        actions = [_add_action(file, now_ms, new_rows=True) for file in files]
        self._commit(have, actions, done, {ORIGIN: json.dumps(origin), END: json.dumps({**have.end, **end})})

    def replace(
        self, have: Snapshot, old: Sequence[DataFile], new: Sequence[NewFile], *, rows_leave: bool = False
    ) -> None:
        """Commit files for others with the same rows, or (rows_leave) take rows out. Raises Conflict, TableError.

        Of two such commits to one version one fails; appends do not count.
        """
        now_ms = time.time_ns() // 1_000_000
        actions = [_remove_action(file, now_ms, rows_leave=rows_leave) for file in old]
        actions += [_add_action(file, now_ms, new_rows=False) for file in new]
        self._commit(have, actions, [(CARE, have.version + 1)], {ORIGIN: json.dumps(have.origin)})

    def _commit(
        self, have: Snapshot, actions: list[Any], done: Sequence[tuple[str, int]], notes: dict[str, str]
    ) -> None:
        opened = self.open(have.version)
        if opened is None:
            raise TableError(f"table {self.root} is gone")
        self._check_writable(opened)
        now_ms = time.time_ns() // 1_000_000
        transactions = [Transaction(name, version, now_ms) for name, version in done]
        clean = (have.version + 1) % CHECKPOINT_EVERY == 0  # the library lists the whole log for it
        told: dict[str, Any] = {
            "commit_properties": CommitProperties(notes, app_transactions=transactions),
            "post_commithook_properties": PostCommitHookProperties(cleanup_expired_logs=clean),
        }
        try:
            opened.create_write_transaction(actions, "append", opened.schema(), list(PARTITIONS), **told)
        except CommitFailedError as error:
            if self.snapshot().version > have.version:
                raise Conflict(f"{self.root} has a version after {have.version}") from error
            raise TableError(f"table {self.root} cannot be committed to: {reason(error)}") from error
        except OSError as error:  # it may have landed all the same: the next look at the table tells
            raise TableError(f"table {self.root} cannot be committed to: {reason(error)}; run again") from error
        self._sync(have.version + 1)

    def _sync(self, first: int) -> None:
        """Delta's log on a folder is written without a sync: a power cut must not take back what was told."""
        if not self.location.remote:
            self.location.sync([commit_name(version) for version in range(first, self.snapshot().version + 1)])

    def appended(self, after: int) -> Iterator[tuple[int, list[DataFile]]]:
        """Yield the versions after one, in order, with the files that brought new rows: of compaction there are none,
        nor of another engine's DELETE, UPDATE or MERGE, which writes files anew with the rows that stay. What a RESTORE
        took back is left out.

        Raises TableError where the log no longer has a version, or where a RESTORE took back rows that were read.
        """
        files: dict[int, list[DataFile]] = {}

        def before(version: int) -> int:
            commit = self._commit_of(version)
            files[version] = commit.new_files()
            return self._restored(commit) if commit.restores() else version - 1

        fresh, taken_back = lines_apart(self.snapshot().version, after, before)
        if lost := [version for version in taken_back if files[version]]:
            raise TableError(
                f"another engine's RESTORE of {self.root} took back version {min(lost)}, whose rows were read: RESTORE "
                f"what reads it to its last version whose {END} is below {min(lost)}, or rebuild that in a new folder"
            )
        for version in fresh:
            yield version, files.pop(version)

    def _commit_of(self, version: int) -> Commit:
        commit = read_commit(self.location, version)
        if commit is None:
            raise TableError(
                f"version {version} of {self.root} has left its log, which keeps {KEEP_LOG_DAYS} days; rebuild what "
                "reads it in a new folder"
            )
        return commit

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        return [f"{self.location.url}/{file.path}" for file in files]


def creation(schemas: Schemas, inputs: Iterable[str]) -> dict[str, Any]:
    """Return what Delta is told of a new table: partitions, log retention, statistics, inputs."""
    names = {name for schema in schemas.values() for name in schema.names}
    return {
        "partition_by": list(PARTITIONS),
        "raise_if_key_not_exists": False,
        "commit_properties": CommitProperties(max_commit_retries=0),  # else a second one follows at version 1
        "configuration": {
            INPUTS: ",".join(inputs),
            "delta.checkpointInterval": str(CHECKPOINT_EVERY),
            "delta.enableChangeDataFeed": "true",  # costs nothing: commits add or remove whole files
            "delta.logRetentionDuration": f"interval {KEEP_LOG_DAYS} days",
            "delta.dataSkippingStatsColumns": ",".join(name for name in STATISTICS if name in names),
        },
    }


def _inputs(opened: DeltaTable) -> list[str]:
    return [name for name in opened.metadata().configuration.get(INPUTS, "").split(",") if name]


def _fields(schemas: Schemas) -> list[Field]:
    """Return the columns of all parts, each once, with its comment and its parts."""
    parts: dict[str, list[str]] = {}
    types: dict[str, pa.DataType] = {"part": pa.string(), "landed_day": pa.date32()}
    for part, schema in schemas.items():
        for column in schema:
            parts.setdefault(column.name, []).append(part)
            types[column.name] = column.type
    plain = Schema.from_arrow(pa.schema(list(types.items()))).fields
    return [Field(column.name, column.type, metadata=_notes(column.name, parts)) for column in plain]


def _notes(name: str, parts: Mapping[str, list[str]]) -> dict[str, Any]:
    comment = {"comment": COMMENTS[name]} if name in COMMENTS else {}
    return comment | ({PARTS: ",".join(parts[name])} if name in parts else {})


def _type(column: Field) -> str:
    return str(json.loads(column.to_json())["type"])


def _add_action(file: NewFile, now_ms: int, *, new_rows: bool) -> AddAction:
    return AddAction(file.path, file.bytes, {"part": file.part, "landed_day": file.day}, now_ms, new_rows, file.stats)


def _remove_action(file: DataFile, now_ms: int, *, rows_leave: bool) -> RemoveAction:
    return RemoveAction(
        file.path,
        data_change=rows_leave,
        deletion_timestamp=now_ms,
        partition_values={"part": file.part, "landed_day": file.day},
        size=file.bytes,
    )


def _listed(opened: DeltaTable) -> Iterator[DataFile]:
    found = pa.table(opened.get_add_actions(flatten=True))
    names = ("path", "num_records", "size_bytes", "partition.part", "partition.landed_day")
    ends = ("min.box", "max.box", "min.topic", "max.topic", "max.landed_time")
    columns = [
        found[name].to_pylist() if name in found.column_names else [None] * found.num_rows for name in names + ends
    ]
    for path, rows, size, part, day, low, high, first, last, landed in zip(*columns, strict=True):
        until = None if landed is None else round((landed.timestamp() * 1000) + 1)
        boxes, topics = _pair(low, high), _pair(first, last)
        yield DataFile(path, rows or 0, size, part, day.isoformat(), boxes, topics, until)


def _pair(low: str | None, high: str | None) -> tuple[str, str] | None:
    return None if low is None or high is None else (low, high)
