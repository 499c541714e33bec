"""Delta's log of a table, commit by commit: which rows each brought, and the line of versions that a RESTORE leaves.

A RESTORE of another engine is a commit like any other, whose files are those of an earlier version. The versions
between are in the log and no longer in the table: a version's line is itself, the one before it, and so on, and before
a RESTORE comes the version that it restored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from uplink_spark.jobs.table.commits import DataFile
from uplink_spark.jobs.table.location import Location

LOG = "_delta_log"
APP = "rocketbox"  # application of the `txn` actions: rocketbox/<input>
CARE = f"{APP}/care"


class Commit(NamedTuple):
    """One version of the log."""

    version: int
    notes: dict[str, Any]  # its commitInfo
    actions: list[dict[str, Any]]

    def restores(self) -> bool:
        return self.notes.get("operation") == "RESTORE"

    def is_of_rows(self) -> bool:
        """Whether it says how far an input is read."""
        names = [str(action.get("txn", {}).get("appId", "")) for action in self.actions]
        return any(name.startswith(f"{APP}/") and name != CARE for name in names)

    def new_files(self) -> list[DataFile]:
        """Return the files with rows that no version before had."""
        anew = self.restores() or any(one["remove"]["dataChange"] for one in self.actions if "remove" in one)
        added = [action["add"] for action in self.actions if "add" in action]
        return [_file_of(add) for add in added if add["dataChange"] and not anew]


def read_commit(location: Location, version: int) -> Commit | None:
    """Return a version, None where the log no longer has it."""
    text = location.read(commit_name(version))
    if text is None:
        return None
    actions = [json.loads(line) for line in text.splitlines()]
    notes: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return Commit(version, notes, actions)


def commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def lines_apart(newer: int, older: int, before: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return which versions, oldest first, are in the line of one version alone, and which in that of the other."""
    mine: list[int] = []
    others: list[int] = []
    while newer != older:
        if newer > older:
            mine.append(newer)
            newer = before(newer)
        else:
            others.append(older)
            older = before(older)
    return mine[::-1], others[::-1]


def _file_of(add: Mapping[str, Any]) -> DataFile:
    values = add["partitionValues"]
    rows = json.loads(add.get("stats") or "{}").get("numRecords", 0)
    return DataFile(add["path"], rows, add["size"], values["part"], values["landed_day"])
