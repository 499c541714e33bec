"""Small files of ranges and gaps are joined while the table grows, without a row more or less."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tests.uplink_spark.jobs.small_table import COLUMNS
from uplink_spark.jobs import rollup
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.table.commits import DataFile, NewFile, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.testing import Fleet, in_table, landed_items

DAY = "2026-11-03"


def add_ranges(table: Table, count: int, *, day: str = DAY) -> None:
    have = table.declare({"ranges": COLUMNS, "data": COLUMNS}, ["0"])
    files: list[NewFile] = []
    for number in range(count):
        batch = pa.record_batch({"box": ["a"], "topic": ["T"], "seq": [number]}, COLUMNS)
        files.append(write_file(table.root, day, COLUMNS, [batch], part="ranges"))
    table.append(have, files, {"0": have.end.get("0", 0) + 1}, {})


def seqs(table: Table) -> list[int]:
    opened = table.open()
    assert opened is not None
    return sorted(opened.to_pyarrow_table()["seq"].to_pylist())


def test_small_files_of_a_day_become_one_and_others_stay(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add_ranges(table, 5)
    add_ranges(table, 3, day="2026-11-04")
    before = seqs(table)
    assert rollup.roll_up(table, {"ranges": COLUMNS}, most=4) == 5
    assert sorted(file.day for file in table.snapshot().files.values()) == [DAY, *["2026-11-04"] * 3]
    assert seqs(table) == before
    assert rollup.roll_up(table, {"ranges": COLUMNS}, most=4) == 0


def test_files_that_another_driver_joined_first_are_joined_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(str(tmp_path))
    add_ranges(table, 5)

    def write_late(*given: object, **named: object) -> NewFile:
        monkeypatch.undo()
        rollup.roll_up(Table(str(tmp_path)), {"ranges": COLUMNS}, most=4)
        return write_file(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rollup, "write_file", write_late)
    assert rollup.roll_up(table, {"ranges": COLUMNS}, most=4) == 0
    assert seqs(table) == list(range(5))


def test_a_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add_ranges(table, 4)
    wider = COLUMNS.append(pa.field("site", pa.string()))
    table.declare({"ranges": wider}, ["0"])
    assert rollup.roll_up(table, {"ranges": wider}, most=4) == 4
    assert seqs(table) == list(range(4))


def test_what_another_program_wrote_into_a_column_of_its_own_stays(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add_ranges(table, 4)
    other = DeltaTable(str(tmp_path))
    other.alter.add_columns([Field("note", PrimitiveType("string"))])
    other.update({"note": "'seen'"}, predicate="seq < 2")
    assert rollup.roll_up(table, {"ranges": COLUMNS}, most=2) == 3
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["seq", "note"]).to_pylist()
    assert sorted((row["seq"], row["note"]) for row in rows) == [(0, "seen"), (1, "seen"), (2, None), (3, None)]


def test_files_that_do_not_hold_what_the_log_says_stop_the_job(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add_ranges(table, 4)
    path = tmp_path / next(iter(table.snapshot().files))
    other = write_file(str(tmp_path), DAY, COLUMNS, [], part="ranges")
    (tmp_path / other.path).replace(path)
    with pytest.raises(TableError, match="would change rows"):
        rollup.roll_up(table, {"ranges": COLUMNS}, most=4)


def test_large_files_and_data_are_left_to_compaction() -> None:
    small = [DataFile(f"r{n}", 1, 100, "ranges", DAY) for n in range(3)]
    large = [DataFile("big", 1, rollup.SMALL_BYTES, "ranges", DAY)]
    data = [DataFile(f"d{n}", 1, 100, "data", DAY) for n in range(9)]
    assert rollup.small_groups([*small, *large, *data], 3) == [small]
    assert rollup.small_groups(small, 4) == []


@pytest.mark.slow
def test_a_job_of_many_short_triggers_leaves_few_files_of_ranges(
    fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "MOST", 5)
    monkeypatch.setattr(rollup.roll_up, "__kwdefaults__", {"most": 5})
    bronze = Bronze(config)
    for _ in range(23):
        fleet.land("box-1", 1)
        bronze.write(landed_items(fleet.landing.root))
    found = bronze.table.snapshot()
    assert len(found.part("ranges")) <= 10
    assert sum(file.rows for file in found.part("ranges")) == 23
    assert in_table(config.table) == fleet.expected
    assert found.end == {"0": 23}
