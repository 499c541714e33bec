"""compact, vacuum and expire: the rows stay the same, no listed file goes missing, whoever else is at work."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from uplink_spark.jobs import care, compact, expire, tables, vacuum
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.table.commits import Conflict, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.table.swap import swap
from uplink_spark.jobs.testing import Fleet, in_table, landed_items

pytestmark = pytest.mark.slow
DAY = "2023-11-14"


def filled(fleet: Fleet, config: BronzeConfig, versions: int = 3) -> Bronze:
    bronze = Bronze(config)
    for n in range(versions):
        fleet.land(f"box-{2 - n % 3}", 20, topic=f"T{n % 2}")
        bronze.write(landed_items(fleet.landing.root))
    return bronze


def test_compaction_keeps_every_row_in_one_sorted_file_of_each_part(
    spark: Any, fleet: Fleet, config: BronzeConfig
) -> None:
    filled(fleet, config)
    table = Table(config.table)
    before = sorted(map(tuple, tables.bronze(spark, config.table).collect()), key=repr)
    states = sorted(map(tuple, tables.coverage(spark, config.table).collect()))
    done = care.compact(spark, config.table, DAY)
    assert (done.files_before, done.files_after, done.rows) == (6, 2, 60)
    assert in_table(config.table) == fleet.expected
    (path,) = table.paths(table.snapshot().part("data"))
    rows = pq.read_table(path, columns=["box", "topic", "store_time"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["box"], row["topic"], row["store_time"]))
    assert sorted(map(tuple, tables.bronze(spark, config.table).collect()), key=repr) == before
    assert sorted(map(tuple, tables.coverage(spark, config.table).collect())) == states
    assert tables.bronze(spark, config.table, version=2).count() == 40
    again = care.compact(spark, config.table, DAY)
    assert (again.files_before, again.files_after, table.snapshot().version) == (2, 2, 5)


def test_compaction_keeps_what_another_program_wrote_into_a_column_of_its_own(
    spark: Any, fleet: Fleet, config: BronzeConfig
) -> None:
    filled(fleet, config)
    other = DeltaTable(config.table)
    other.alter.add_columns([Field("checked_by", PrimitiveType("string"))])
    other.update({"checked_by": "'audit'"}, predicate="part = 'data' AND topic = 'T1'")

    def noted() -> list[tuple[str, str | None]]:
        rows = DeltaTable(config.table).to_pyarrow_table(columns=["part", "topic", "checked_by"]).to_pylist()
        return sorted((row["topic"], row["checked_by"] or "") for row in rows if row["part"] == "data")

    before = noted()
    assert before.count(("T1", "audit")) == 20
    care.compact(spark, config.table, DAY)
    assert noted() == before
    assert in_table(config.table) == fleet.expected


def test_of_two_that_replace_the_same_files_one_commits(fleet: Fleet, config: BronzeConfig) -> None:
    filled(fleet, config)
    table = Table(config.table)
    have = table.snapshot()
    old = have.part("data")
    batches = [pq.read_table(path).combine_chunks().to_batches()[0] for path in table.paths(old)]
    new = [write_file(config.table, DAY, batches[0].schema, batches, part="data") for _ in range(2)]
    table.replace(have, old, new[:1])
    with pytest.raises(Conflict):
        table.replace(have, old, new[1:])
    with pytest.raises(TableError, match="has left the table"):
        swap(table, old, new[1:])
    assert in_table(config.table) == fleet.expected


def test_rows_that_arrive_during_compaction_stay(
    spark: Any, fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze = filled(fleet, config)

    def arrive(_step: str) -> None:
        fleet.land("box-9", 5)
        bronze.write(landed_items(fleet.landing.root))

    monkeypatch.setattr(care, "stop_at", arrive)
    care.compact(spark, config.table, DAY)
    assert in_table(config.table) == fleet.expected
    assert len(Table(config.table).snapshot().part("data")) == 3


def test_compaction_killed_before_its_commit_changes_nothing_and_may_be_run_again(
    spark: Any, fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(fleet, config)

    def die(_step: str) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(care, "stop_at", die)
        with pytest.raises(SystemExit):
            care.compact(spark, config.table, DAY)
    assert Table(config.table).snapshot().version == 3
    assert care.compact(spark, config.table, DAY).files_after == 2
    assert in_table(config.table) == fleet.expected


def test_vacuum_removes_what_no_recent_version_lists_and_nothing_else(
    spark: Any, fleet: Fleet, config: BronzeConfig
) -> None:
    filled(fleet, config)
    care.compact(spark, config.table, DAY)
    kept = Path(config.table, "_spark/offsets/0")
    kept.parent.mkdir(parents=True)
    kept.touch()
    stray = Path(config.table, f"part=data/landed_day={DAY}/stray.parquet")
    stray.write_bytes(b"left by a killed task")
    assert care.vacuum(config.table, 7) == []  # all of it is younger than 24 hours
    assert care.vacuum(config.table, 0) == []
    assert len(care.vacuum(config.table, 0, min_age_hours=0)) == 7
    assert not stray.exists()
    assert kept.exists()
    assert in_table(config.table) == fleet.expected


def test_expiry_takes_whole_days_out_and_leaves_the_ranges(spark: Any, fleet: Fleet, config: BronzeConfig) -> None:
    bronze = filled(fleet, config, 1)
    fleet.land("box-1", 7, later_ms=3 * 86_400_000)
    bronze.write(landed_items(fleet.landing.root))
    now = 1_700_000_000_000 + 4 * 86_400_000
    done = care.expire(config.table, 2, now_ms=now)
    assert (done.files_before, done.files_after, done.rows) == (2, 1, 20)
    assert sum(in_table(config.table).values()) == 7
    assert tables.ranges(spark, config.table).count() == 2
    assert care.expire(config.table, 2, now_ms=now).rows == 0
    assert Table(config.table).snapshot().version == 3


def test_the_commands_say_what_they_did(fleet: Fleet, config: BronzeConfig, capsys: pytest.CaptureFixture[str]) -> None:
    filled(fleet, config)
    assert expire.main(["--table", config.table, "--days", "100000"]) == 0
    assert vacuum.main(["--table", config.table]) == 0
    assert compact.main(["--table", config.table, "--day", "1999-01-01", "--master", "local[2]"]) == 0
    told = capsys.readouterr().out
    assert "files_left_out=0 rows_left_out=0" in told
    assert "removed=0" in told
    assert "compact day=1999-01-01 files=0->0 rows=0" in told
    assert compact.main(["--table", config.table, "--all", "--master", "local[2]"]) == 0
    assert f"compact day={DAY} files=6->2 rows=60" in capsys.readouterr().out
    assert vacuum.main(["--table", config.table + "x"]) == 1
    assert "no table at" in capsys.readouterr().err
