"""Files of a table for others: by whoever is first, never twice."""

from __future__ import annotations

from collections.abc import Sequence

from uplink_spark.jobs.table.commits import Conflict, DataFile, NewFile, TableError
from uplink_spark.jobs.table.delta import Table


def swap(table: Table, old: Sequence[DataFile], new: Sequence[NewFile], *, leave: bool = False) -> None:
    """Commit new files for old ones. Raises TableError where an old one is gone. leave: rows leave with them."""
    while True:
        now = table.snapshot()
        gone = [file.path for file in old if file.path not in now.files]
        if gone:
            raise FilesGone(f"{gone[0]} has left the table (another compact or expire); run again")
        try:
            table.replace(now, old, new, rows_leave=leave)
        except Conflict:
            continue
        return


class FilesGone(TableError):
    """Another program has taken the files out of the table."""
