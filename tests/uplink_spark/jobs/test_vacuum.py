"""vacuum: what no recent version lists and no task can own goes, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from tests.uplink_spark.jobs.small_table import add
from uplink_spark.jobs import vacuum
from uplink_spark.jobs.table.delta import Table

DAY = "2026-11-03"


def leave(root: Path, name: str, hours: float) -> str:
    """Leave a file that no version lists, written so many hours ago."""
    path = f"part=data/landed_day={DAY}/{name}"
    (root / path).write_bytes(b"left")
    written = time.time() - hours * 3600
    os.utime(root / path, (written, written))
    return path


def test_only_unlisted_files_that_are_old_enough_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = add(Table(str(tmp_path)), DAY)
    os.utime(tmp_path / listed, (1, 1))
    old, young = leave(tmp_path, "old.parquet", 25), leave(tmp_path, "young.parquet", 23)
    assert vacuum.main(["--table", str(tmp_path), "--days", "0"]) == 0
    assert {path for path in (listed, old, young) if (tmp_path / path).exists()} == {listed, young}
    assert vacuum.main(["--table", str(tmp_path), "--days", "0", "--min-age-hours", "22"]) == 0
    assert not (tmp_path / young).exists()
    assert capsys.readouterr().out == f"vacuum table={tmp_path} removed=1\n" * 2
