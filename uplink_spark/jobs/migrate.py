"""Take a table with the commit list of an earlier program over into Delta: once, without copying a row.

    python -m uplink_spark.jobs.migrate --table DIR                     a bronze table
    python -m uplink_spark.jobs.migrate --table DIR --bronze BRONZE     a per_minute table, after its bronze table

The files stay where they are; Delta's log lists them with the statistics of their footers. May be killed anywhere and
run again. Earlier programs refuse the table from the first moment on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from uplink_spark.jobs.bronze import schemas_of_table, stop_at
from uplink_spark.jobs.silver import INPUT, PER_MINUTE
from uplink_spark.jobs.table.commit_list import CommitList, ListedFile, ListState
from uplink_spark.jobs.table.commits import Conflict, NewFile, Position, TableError
from uplink_spark.jobs.table.delta import Schemas, Table
from uplink_spark.jobs.table.file_statistics import statistics_of
from uplink_spark.jobs.table.location import FolderLocation
from uplink_spark.jobs.waiting import run_job

READERS = 16  # footers at a time: a shared disk answers many
TAKEN_AT = 1  # the version of Delta's log that lists everything taken over


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was taken over; version 0: it had been before."""

    version: int  # of the commit list
    files: int
    rows: int


def migrate(root: str, bronze_root: str | None = None) -> Migrated:
    """Take a table over. Raises TableError where that cannot be."""
    table = Table(root, taking_over=True)
    old = _list_of(table)
    if not old.exists():
        raise TableError(f"{table.root} has no commit list of an earlier program: there is nothing to take over")
    if old.is_taken():
        return Migrated(0, 0, 0)
    found = old.state()
    schemas, inputs, end = _plan(old, found, bronze_root)
    found = _closed(old, found)
    stop_at("M1")
    have = table.declare(schemas, inputs)
    files: list[NewFile] = []
    if have.version < TAKEN_AT:
        with ThreadPoolExecutor(READERS) as pool:
            files = list(pool.map(partial(_described, old.root), found.files))
        stop_at("M2")
        table.append(have, files, end or dict(found.end), found.origin)
    stop_at("M3")
    old.note_taken()
    return Migrated(found.version, len(found.files), sum(file.rows for file in files))


def _list_of(table: Table) -> CommitList:
    if not isinstance(table.location, FolderLocation):
        raise TableError(
            f"table {table.root}: earlier programs wrote tables into folders only; take it over in its folder, then "
            "copy its files and last its _delta_log into the bucket"
        )
    return CommitList(table.location.path)


def _plan(old: CommitList, found: ListState, bronze_root: str | None) -> tuple[Schemas, list[str], Position]:
    """Return columns, inputs and, where it is not the list's own, the position. Raises TableError."""
    columns = old.columns(found.schema)
    if "bronze_version" in dict(columns):
        if bronze_root is None:
            raise TableError(f"{old.root} is a per_minute table: name the table it reads with --bronze")
        _check_columns(old, columns, PER_MINUTE)
        return {"data": PER_MINUTE}, [INPUT], {INPUT: _read_so_far(old, found, bronze_root)}
    _check_columns(old, columns, schemas_of_table()["data"])
    return schemas_of_table(), sorted(found.end, key=int), {}


def _check_columns(old: CommitList, columns: Sequence[tuple[str, str]], schema: pa.Schema) -> None:
    known = {column.name: column.dataType.simpleString() for column in from_arrow_schema(schema)}
    for name, kind in columns:
        if known.get(name) != kind:
            raise TableError(
                f"{old.root} has a column {name} {kind} that this program does not write: take it over with the "
                "program that wrote it, or write to a new table"
            )


def _read_so_far(old: CommitList, found: ListState, bronze_root: str) -> int:
    """Return the version of the taken-over bronze table that stands for what the per_minute table has read."""
    bronze = Table(bronze_root)
    before = _list_of(bronze)
    if not bronze.exists() or not before.exists():
        raise TableError(f"{bronze.root} is not a bronze table that was taken over: run migrate for it first")
    done = found.end.get(INPUT, 0)
    unread = [version for version in before.versions(done) if version["op"] == "append"]
    if unread or done > before.state().version:
        raise TableError(
            f"{old.root} has read version {done} of {bronze.root}, which went to {before.state().version}: "
            "write per_minute to a new table"
        )
    return TAKEN_AT


def _closed(old: CommitList, found: ListState) -> ListState:
    """Return the last state of the list: nobody can add to it any more."""
    while not found.closed:
        try:
            old.close(found.version + 1)
        except Conflict:
            pass  # a job of an earlier program committed meanwhile, or another migrate closed it
        found = old.state()
    return found


def _described(root: Path, file: ListedFile) -> NewFile:
    path = root / file.path
    try:
        footer, size = pq.read_metadata(path), path.stat().st_size
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{path} belongs to the table and cannot be read: {error}") from error
    day = file.path.split("/")[1].removeprefix("landed_day=")
    return NewFile(file.path, footer.num_rows, size, file.part, day, statistics_of(footer))


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.migrate", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--table", required=True, help="folder of the table")
    made.add_argument("--bronze", help="of a per_minute table: folder of its bronze table, taken over before")
    given = made.parse_args(arguments)

    def job() -> None:
        done = migrate(given.table, given.bronze)
        told = f"versions={done.version} files={done.files} rows={done.rows}" if done.version else "nothing to do"
        print(f"migrate table={given.table} {told}")

    return run_job("migrate", job)


if __name__ == "__main__":
    sys.exit(main())
