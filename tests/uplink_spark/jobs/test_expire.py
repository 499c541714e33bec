"""expire: whole landed days leave the table, their files stay for `vacuum`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.uplink_spark.jobs.small_table import add
from uplink_spark.jobs import expire
from uplink_spark.jobs.table.delta import Table


def ago(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).date().isoformat()


def test_days_before_the_kept_ones_are_left_out_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(str(tmp_path))
    old = [add(table, ago(12)), add(table, ago(11), rows=7)]
    kept = [add(table, ago(9)), add(table, ago(0))]
    words = ["--table", str(tmp_path), "--days", "10"]
    assert expire.main(words) == 0
    assert set(Table(str(tmp_path)).snapshot().files) == set(kept)
    assert all((tmp_path / path).exists() for path in old)  # of readers that began before
    assert expire.main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"expire table={tmp_path} files_left_out=2 rows_left_out=12",
        f"expire table={tmp_path} files_left_out=0 rows_left_out=0",
    ]
    assert Table(str(tmp_path)).snapshot().version == 5


@pytest.mark.parametrize("days", ["-1", "x", "700001"])
def test_days_that_no_calendar_has_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        expire.main(["--table", "/t", "--days", days])
    assert ended.value.code == 2
    assert "--days" in capsys.readouterr().err
