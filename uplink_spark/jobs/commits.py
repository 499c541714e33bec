"""The commit list of a table: which Parquet files belong to it, and which input they came from.

    <table>/_commits/<20 digits>.json              one version, created exclusively
    <table>/_commits/<20 digits>.checkpoint.json   all live files up to that version, every 100 versions
    <table>/_schemas/<n>.json                      columns, only ever added at the end

A version that exists is never changed. A file that no version lists is no part of the table, whatever is in the
folder: a task that ran twice, a driver that died. The `to` of the newest version is where the writer continues, so the
table itself, not a Spark checkpoint, says what it contains.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uplink_spark.errors import UplinkError
from uplink_spark.wire.durable import sync_folder
from uplink_spark.zone.manifest import LANDING_NAME

COMMITS, SCHEMAS, LAYOUT = "_commits", "_schemas", 1
CHECKPOINT_EVERY = 100
Position = dict[str, int]


class TableError(UplinkError):
    """The table cannot be used as asked; the text says why and what to do."""


class Conflict(UplinkError):
    """Another writer created this version first: read again."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file and what a reader needs to leave it out."""

    path: str  # below the table
    rows: int
    bytes: int
    part: str = "data"  # data, ranges, gaps: which rows of the table it holds
    boxes: tuple[str, str] | None = None  # smallest and largest
    topics: tuple[str, ...] | None = None  # None: more than are worth listing
    store: tuple[int, int] | None = None  # ms, smallest and largest
    landed: tuple[int, int] | None = None

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> DataFile:
        known = {name: values[name] for name in DataFile.__dataclass_fields__ if name in values}
        for name in ("boxes", "topics", "store", "landed"):
            known[name] = None if known.get(name) is None else tuple(known[name])
        return DataFile(**known)


@dataclass(frozen=True, slots=True)
class Version:
    """One commit: `start` and `end` name the input it contains."""

    version: int
    op: str  # append: new rows; replace: the same rows in other files; expire: whole days leave
    writer: str
    start: Position
    end: Position
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    schema: int = 1
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)  # when it was made, for `vacuum`
    origin: dict[str, str] = field(default_factory=dict)  # what `end` was in the input, so that another one is noticed

    def to_json(self) -> bytes:
        body = {
            "v": LAYOUT,
            "op": self.op,
            "writer": self.writer,
            "from": self.start,
            "to": self.end,
            "add": [asdict(file) for file in self.add],
            "remove": list(self.remove),
            "schema": self.schema,
            "at": self.at_ms,
            "origin": self.origin,
        }
        return json.dumps(body, sort_keys=True).encode()

    @staticmethod
    def from_json(version: int, data: bytes) -> Version:
        body = json.loads(data)
        if body["v"] > LAYOUT:
            raise TableError(f"version {version} has layout {body['v']}, this program knows {LAYOUT}: update it")
        add = tuple(DataFile.from_json(file) for file in body["add"])
        start, end, remove, origin = body["from"], body["to"], tuple(body["remove"]), body.get("origin", {})
        return Version(version, body["op"], body["writer"], start, end, add, remove, body["schema"], body["at"], origin)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table as of a version; version 0 is the table before its first commit."""

    version: int
    end: Position
    files: dict[str, DataFile]
    schema: int
    origin: dict[str, str] = field(default_factory=dict)

    def part(self, name: str) -> list[DataFile]:
        return [file for file in self.files.values() if file.part == name]


EMPTY = Snapshot(0, {}, {}, 0)


class Table:
    """A table in a folder that all drivers share (POSIX: exclusive creation is link())."""

    def __init__(self, root: str) -> None:
        if "://" in root and not root.startswith("file://"):
            raise TableError(
                f"table {root}: commits need exclusive creation, which this program has for folders only; use a path, "
                "or write to Delta or Iceberg from foreachBatch (docs/spark.md)"
            )
        self.root = Path(root.removeprefix("file://")).absolute()
        self._known = EMPTY

    def prepare(self) -> None:
        """Make the folder. Raises TableError where that cannot be, or where a landing zone is."""
        if (self.root / LANDING_NAME).exists():
            raise TableError(f"{self.root} is a landing zone: give the table a folder of its own")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise TableError(f"table {self.root} cannot be written: {error.strerror}") from error

    def exists(self) -> bool:
        return (self.root / COMMITS).is_dir()

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the newest state, or that of one version. Raises TableError."""
        if version is not None:
            return self._replay(*self._checkpoint_before(version), last=version)
        if not self._known.version:
            self._known = self._replay(*self._checkpoint_before(None))
        else:
            self._known = self._replay(self._known, [self._known.version + 1])
        return self._known

    def versions(self, after: int = 0) -> Iterator[Version]:
        """Yield the commits after a version, in order."""
        number = after + 1
        while (data := self._read(self._name(number))) is not None:
            yield Version.from_json(number, data)
            number += 1

    def commit(self, version: Version) -> None:
        """Create the version exclusively and durably. Raises Conflict when it exists."""
        folder = self.root / COMMITS
        folder.mkdir(parents=True, exist_ok=True)
        self._create(folder / self._name(version.version), version.to_json())
        if version.version % CHECKPOINT_EVERY == 0:
            self._write_checkpoint(self.snapshot(version.version))

    def declare_schema(self, columns: Sequence[tuple[str, str]], newest: int) -> int:
        """Return the number of the table's schema for these (name, type) columns. Raises TableError.

        Columns may be added at the end; a program that knows fewer columns writes what it knows.
        """
        declared = self.schema(newest) if newest else []
        shorter = min(len(declared), len(columns))
        if list(columns[:shorter]) != declared[:shorter]:
            at = next(at for at in range(shorter) if columns[at] != declared[at])
            there, here = (" ".join(pair) for pair in (declared[at], columns[at]))
            raise TableError(
                f"table {self.root} is another one: its column {at + 1} is {there}, not {here}; write to a new table"
            )
        if len(columns) <= len(declared):
            return newest
        folder = self.root / SCHEMAS
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._create(folder / f"{newest + 1}.json", json.dumps([list(pair) for pair in columns]).encode())
        except Conflict:
            if self.schema(newest + 1) != list(columns):
                raise TableError(f"schema {newest + 1} of {self.root} was declared differently; run again") from None
        return newest + 1

    def schema(self, number: int) -> list[tuple[str, str]]:
        """Return the (name, type) columns of a declared schema."""
        path = self.root / SCHEMAS / f"{number}.json"
        try:
            return [(name, kind) for name, kind in json.loads(path.read_bytes())]
        except FileNotFoundError:
            raise TableError(f"table {self.root}: schema {number} is missing ({path})") from None

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        return [str(self.root / file.path) for file in files]

    @staticmethod
    def _name(version: int) -> str:
        return f"{version:020d}.json"

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.root / COMMITS / name).read_bytes()
        except FileNotFoundError:
            return None

    def _create(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            raise Conflict(f"{path} exists") from None
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)

    def _checkpoint_before(self, version: int | None) -> tuple[Snapshot, list[int]]:
        """Return the newest checkpoint at or below a version, and the versions that follow it."""
        try:
            names = os.listdir(self.root / COMMITS)
        except FileNotFoundError:
            return EMPTY, []
        stems = [name.removesuffix(".checkpoint.json") for name in names if name.endswith(".checkpoint.json")]
        points = sorted((int(stem) for stem in stems if stem.isdigit()), reverse=True)
        for point in points:
            if version is None or point <= version:
                body = json.loads((self.root / COMMITS / f"{point:020d}.checkpoint.json").read_bytes())
                files = {file["path"]: DataFile.from_json(file) for file in body["files"]}
                return Snapshot(point, body["to"], files, body["schema"], body.get("origin", {})), [point + 1]
        first = min((int(n[:20]) for n in names if n.endswith(".json") and n[:20].isdigit()), default=1)
        if first != 1:
            raise TableError(f"table {self.root}: version 1 is missing and no checkpoint covers it")
        return EMPTY, [1]

    def _replay(self, base: Snapshot, following: list[int], last: int | None = None) -> Snapshot:
        files, end, schema, number = dict(base.files), base.end, base.schema, base.version
        origin = base.origin
        for version in self.versions(following[0] - 1) if following else ():
            if last is not None and version.version > last:
                break
            for path in version.remove:
                files.pop(path, None)
            files |= {file.path: file for file in version.add}
            end, schema, number = version.end, max(schema, version.schema), version.version
            origin = version.origin or origin  # care keeps what is in the table
        if last is not None and number < last:
            raise TableError(f"table {self.root} has versions up to {number}, not {last}")
        return Snapshot(number, end, files, schema, origin)

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        body = {
            "v": LAYOUT,
            "to": snapshot.end,
            "schema": snapshot.schema,
            "origin": snapshot.origin,
            "files": [asdict(file) for file in snapshot.files.values()],
        }
        path = self.root / COMMITS / f"{snapshot.version:020d}.checkpoint.json"
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        temporary.write_text(json.dumps(body, sort_keys=True))
        os.replace(temporary, path)
