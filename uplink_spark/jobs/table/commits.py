"""What the jobs say of a table: the files that belong to it, where its input ends, and why it cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from uplink_spark.errors import UplinkError

Position = dict[str, int]  # shard of the landing zone (silver: `bronze`) -> next seq (silver: last version read)


class TableError(UplinkError):
    """The table cannot be used as asked; the text says why and what to do."""


class Conflict(UplinkError):
    """Another writer committed first: read again."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that a task wrote and no commit lists yet."""

    path: str  # below the table
    rows: int
    bytes: int
    part: str  # data, ranges, gaps: which rows of the table it holds
    day: str  # landed day, ISO
    stats: str  # JSON of Delta's per-file statistics


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that the table lists, and what a reader needs to leave it out."""

    path: str  # below the table
    rows: int
    bytes: int
    part: str = "data"
    day: str = ""
    boxes: tuple[str, str] | None = None  # smallest and largest, None: not known
    topics: tuple[str, str] | None = None
    landed_until_ms: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """The table as of a version; version 0 has the columns and no rows, unless an earlier program's rows."""

    version: int
    end: Position
    origin: dict[str, str] = field(default_factory=dict)  # what `end` was in the input, so another one is noticed
    read_files: Callable[[], list[DataFile]] = list  # lists them when first asked for

    @cached_property
    def files(self) -> dict[str, DataFile]:
        return {file.path: file for file in self.read_files()}

    def part(self, name: str) -> list[DataFile]:
        return [file for file in self.files.values() if file.part == name]


EMPTY = Snapshot(0, {})
