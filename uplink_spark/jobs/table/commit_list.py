"""The commit list that tables of earlier programs have, read for the last time: `migrate` takes it over into Delta.

    <table>/_commits/<20 digits>.json              one version, created exclusively
    <table>/_commits/<20 digits>.checkpoint.json   all live files up to that version
    <table>/_commits/delta                         the table is in Delta's log now
    <table>/_schemas/<n>.json                      columns

A version of a layout that earlier programs do not know ends the list: whoever writes with one of them is told to
update, and no commit can come between the last one read and the one that takes over.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uplink_spark.jobs.table.commits import Conflict, Position, TableError
from uplink_spark.wire.durable import sync_folder

COMMITS, SCHEMAS, TAKEN = "_commits", "_schemas", "delta"
LAYOUT, CLOSED = 1, 2


@dataclass(frozen=True, slots=True)
class ListedFile:
    path: str  # below the table
    part: str  # data, ranges, gaps


@dataclass(frozen=True, slots=True)
class ListState:
    """What the list says at its end."""

    version: int
    end: Position
    origin: Mapping[str, str]
    files: tuple[ListedFile, ...]
    schema: int
    closed: bool


class CommitList:
    """The commit list in the folder of a table."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def exists(self) -> bool:
        return (self.root / COMMITS).is_dir()

    def is_taken(self) -> bool:
        return (self.root / COMMITS / TAKEN).exists()

    def state(self) -> ListState:
        """Return the newest state. Raises TableError where versions are missing."""
        number, body = self._checkpoint()
        files = {file["path"]: ListedFile(file["path"], file["part"]) for file in body["files"]}
        end, origin, schema = body["to"], body.get("origin", {}), body["schema"]
        for version in self.versions(number):
            for path in version["remove"]:
                files.pop(path, None)
            files |= {file["path"]: ListedFile(file["path"], file["part"]) for file in version["add"]}
            end, schema, origin = version["to"], max(schema, version["schema"]), version.get("origin") or origin
            number += 1
        closed = self._read(self._name(number + 1)) is not None
        return ListState(number, end, origin, tuple(files.values()), schema, closed)

    def versions(self, after: int) -> Iterator[dict[str, Any]]:
        """Yield the commits after a version, in order. Raises TableError."""
        number = after + 1
        while (data := self._read(self._name(number))) is not None:
            body: dict[str, Any] = json.loads(data)
            if body["v"] == CLOSED:
                return
            if body["v"] != LAYOUT:
                raise TableError(f"version {number} of {self.root} has layout {body['v']}: update this program")
            yield body
            number += 1

    def columns(self, number: int) -> list[tuple[str, str]]:
        """Return the (name, Spark type) columns of a declared schema."""
        data = (self.root / SCHEMAS / f"{number}.json").read_bytes()
        return [(name, kind) for name, kind in json.loads(data)]

    def close(self, number: int) -> None:
        """End the list with a version that earlier programs refuse. Raises Conflict where that version exists."""
        self._create(self._name(number), json.dumps({"v": CLOSED}).encode())

    def note_taken(self) -> None:
        """Note that Delta's log has everything of the list."""
        try:
            self._create(TAKEN, b"")
        except Conflict:
            pass

    @staticmethod
    def _name(version: int) -> str:
        return f"{version:020d}.json"

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.root / COMMITS / name).read_bytes()
        except FileNotFoundError:
            return None

    def _create(self, name: str, data: bytes) -> None:
        folder = self.root / COMMITS
        temporary = folder / f".{secrets.token_hex(8)}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, folder / name)
        except FileExistsError:
            raise Conflict(f"{folder / name} exists") from None
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(folder)

    def _checkpoint(self) -> tuple[int, dict[str, Any]]:
        names = sorted(os.listdir(self.root / COMMITS), reverse=True)
        for name in names:
            if name.endswith(".checkpoint.json"):
                return int(name[:20]), json.loads((self.root / COMMITS / name).read_bytes())
        if self._read(self._name(1)) is None:
            raise TableError(f"table {self.root}: version 1 is missing and no checkpoint covers it")
        return 0, {"files": [], "to": {}, "schema": 0}
