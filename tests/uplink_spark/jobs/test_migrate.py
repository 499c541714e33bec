"""A table of an earlier program goes over to Delta: the same rows, once, however often it is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.uplink_spark.jobs.old_table import commit, make_old
from uplink_spark.jobs import migrate, tables
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.silver import PER_MINUTE, take_in
from uplink_spark.jobs.table.commits import TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import Fleet, in_table, landed_items
from uplink_spark.spark.rows import SCHEMA

REPO = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def old_bronze(fleet: Fleet, config: BronzeConfig, versions: int = 3) -> None:
    bronze = Bronze(config)
    for n in range(versions):
        fleet.land(f"box-{n % 2}", 20)
        bronze.write(landed_items(config.landing))
    make_old(config.table, SCHEMA)


def test_rows_stay_and_the_job_goes_on_where_the_table_ends(
    fleet: Fleet, config: BronzeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    old_bronze(fleet, config)
    files = set(Path(config.table).rglob("*.parquet"))
    with pytest.raises(TableError, match=f"python -m uplink_spark.jobs.migrate --table {config.table}"):
        Bronze(config).write([])
    assert migrate.main(["--table", config.table]) == 0
    assert in_table(config.table) == fleet.expected
    assert set(Path(config.table).rglob("*.parquet")) == files
    assert migrate.main(["--table", config.table]) == 0
    fleet.land("box-1", 7)
    Bronze(config).write(landed_items(config.landing))
    assert in_table(config.table) == fleet.expected
    found = Table(config.table).snapshot()
    assert (found.end, found.origin["0"].split(":")[0]) == ({"0": 4}, "seq 3")
    assert {file.boxes for file in found.part("data")} == {("box-0", "box-0"), ("box-1", "box-1")}
    assert capsys.readouterr().out.splitlines() == [
        f"migrate table={config.table} versions=3 files=6 rows=63",  # rows of data and of ranges
        f"migrate table={config.table} nothing to do",
    ]


@pytest.mark.parametrize("step", ["M1", "M2", "M3"])
def test_killed_at_any_step_it_is_run_again(fleet: Fleet, config: BronzeConfig, step: str) -> None:
    old_bronze(fleet, config)
    command = [sys.executable, "-m", "uplink_spark.jobs.migrate", "--table", config.table]
    assert subprocess.run(command, cwd=REPO, env=os.environ | {"UPLINK_STOP_AT": step}).returncode == -signal.SIGKILL
    with pytest.raises(TableError, match="take it over once"):
        Bronze(config).write([])
    assert migrate.migrate(config.table).version == 3
    assert in_table(config.table) == fleet.expected
    assert Table(config.table).snapshot().version == 1


def test_a_commit_of_an_earlier_program_that_comes_between_is_taken_over_too(
    fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_bronze(fleet, config)
    path = next(iter(Path(config.table).rglob("part=data/*/*.parquet")))
    late = path.with_name("late.parquet")
    shutil.copy(path, late)
    relative = late.relative_to(config.table).as_posix()
    plan = migrate._plan

    def meanwhile(*given: Any) -> Any:
        commit(Path(config.table), 4, add=[relative], end={"0": 9})
        return plan(*given)

    monkeypatch.setattr(migrate, "_plan", meanwhile)
    assert migrate.migrate(config.table).version == 4
    assert Table(config.table).snapshot().end == {"0": 9}
    assert relative in Table(config.table).snapshot().files


def test_a_file_that_is_gone_is_named_and_nothing_is_half_taken(fleet: Fleet, config: BronzeConfig) -> None:
    old_bronze(fleet, config)
    path = next(iter(Path(config.table).rglob("part=data/*/*.parquet")))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(TableError, match=r"\.parquet belongs to the table and cannot be read"):
        migrate.migrate(config.table)
    path.with_suffix(".away").rename(path)
    migrate.migrate(config.table)
    assert in_table(config.table) == fleet.expected


def test_sums_per_minute_go_over_after_their_bronze_table(
    spark: Any, fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    silver = str(tmp_path / "silver")
    bronze = Bronze(config)
    for _ in range(2):
        fleet.land("box-1", 10)
        bronze.write(landed_items(config.landing))
        take_in(spark, config.table, silver)
    make_old(config.table, SCHEMA)
    make_old(silver, PER_MINUTE)
    with pytest.raises(TableError, match="name the table it reads with --bronze"):
        migrate.migrate(silver)
    with pytest.raises(TableError, match="take it over once"):
        migrate.migrate(silver, config.table)
    migrate.migrate(config.table)
    migrate.migrate(silver, config.table)
    fleet.land("box-1", 5)
    Bronze(config).write(landed_items(config.landing))
    assert take_in(spark, config.table, silver) == 2
    assert [row["rows"] for row in tables.per_minute(spark, silver).groupBy().sum("rows").toDF("rows").collect()] == [
        25
    ]


def test_sums_that_are_behind_their_bronze_table_are_not_taken_over(
    spark: Any, fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    silver = str(tmp_path / "silver")
    bronze = Bronze(config)
    for n in range(2):
        fleet.land("box-1", 10)
        bronze.write(landed_items(config.landing))
        if n == 0:
            take_in(spark, config.table, silver)
    make_old(config.table, SCHEMA)
    make_old(silver, PER_MINUTE)
    migrate.migrate(config.table)
    with pytest.raises(TableError, match=r"has read version 1 of .*, which went to 2: write per_minute to a new table"):
        migrate.migrate(silver, config.table)


def test_a_folder_without_a_commit_list_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate.main(["--table", str(tmp_path)]) == 1
    assert "there is nothing to take over" in capsys.readouterr().err
