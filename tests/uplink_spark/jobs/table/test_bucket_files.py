"""Files are put into tasks by their bytes, and read with the columns and rows that are asked for."""

from pathlib import Path

import pyarrow as pa

from tests.uplink_spark.jobs.small_table import COLUMNS, add
from uplink_spark.jobs.table.bucket_files import TASK_BYTES, group_by_bytes, read_paths
from uplink_spark.jobs.table.commits import DataFile
from uplink_spark.jobs.table.delta import Table

DAY = "2026-11-03"


def test_tasks_have_about_so_many_bytes_and_a_large_file_is_alone() -> None:
    sizes = (TASK_BYTES // 2, TASK_BYTES // 2, 1, 2 * TASK_BYTES, 1)
    files = [DataFile(path=str(n), bytes=size, rows=1, part="data", day=DAY) for n, size in enumerate(sizes)]
    assert group_by_bytes(files) == [["0", "1"], ["2"], ["3"], ["4"]]
    assert group_by_bytes([]) == []


def test_columns_that_a_file_lacks_are_null_and_rows_are_chosen(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    paths = [add(table, DAY), add(table, DAY, 7)]
    wanted = pa.schema([COLUMNS.field("seq"), ("later", pa.string())])
    found = pa.Table.from_batches(read_paths(table.root, paths, wanted, [("seq", ">=", 3)]), wanted)
    assert found.to_pydict() == {"seq": [3, 4, 3, 4, 5, 6], "later": [None] * 6}
