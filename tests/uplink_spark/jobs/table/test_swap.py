"""Files are exchanged by whoever is first, and never twice."""

from pathlib import Path

import pytest

from tests.uplink_spark.jobs.small_table import COLUMNS, add
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.table.swap import FilesGone, swap

DAY = "2026-11-03"


def test_files_leave_once_also_when_a_commit_came_between(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "table"))
    add(table, DAY)
    add(table, DAY)
    old = table.snapshot().part("data")
    new = write_file(table.root, DAY, COLUMNS, [], part="data")
    later = add(Table(table.root), DAY, 7)  # another program's
    swap(table, old, [new])
    assert {file.path for file in table.snapshot().part("data")} == {new.path, later}
    with pytest.raises(FilesGone, match=r"has left the table .* run again"):
        swap(table, old, [new])
    assert table.snapshot().end == {"0": 3}
