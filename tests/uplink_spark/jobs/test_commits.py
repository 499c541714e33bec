import json
import os
import threading
from pathlib import Path

import pytest

from uplink_spark.jobs.commits import Conflict, DataFile, Table, TableError, Version

COLUMNS = [("box", "string"), ("topic", "string")]


def file(name: str, rows: int = 1) -> DataFile:
    return DataFile(f"data/landed_day=2026-11-03/{name}", rows, 100, "data", ("a", "b"), ("T",), (1, 2), (3, 4))


def append(table: Table, *files: DataFile, end: int) -> Version:
    have = table.snapshot()
    version = Version(have.version + 1, "append", "test", have.end, {"0": end}, files, (), 1)
    table.commit(version)
    return version


def test_a_commit_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    made = append(table, file("a.parquet"), end=7)
    assert list(Table(str(tmp_path)).versions()) == [made]
    assert Table(str(tmp_path)).snapshot().end == {"0": 7}


def test_of_two_writers_of_a_version_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    version = Version(1, "append", "test", {}, {"0": 1})
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        table = Table(str(tmp_path))
        barrier.wait()
        try:
            table.commit(Version(1, "append", f"writer-{number}", {}, {"0": number}))
            outcomes.append(f"writer-{number}")
        except Conflict:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    assert [made.writer for made in Table(str(tmp_path)).versions()] == [winner]
    assert version.version == 1
    assert not list(tmp_path.glob("_commits/.*"))


def test_the_newest_state_comes_from_the_checkpoint_and_what_follows(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for number in range(1, 206):
        append(table, file(f"{number}.parquet"), end=number)
    names = sorted(os.listdir(tmp_path / "_commits"))
    assert [name for name in names if "checkpoint" in name] == [
        f"{100:020d}.checkpoint.json",
        f"{200:020d}.checkpoint.json",
    ]
    for number in range(1, 200):
        (tmp_path / "_commits" / f"{number:020d}.json").unlink()
    fresh = Table(str(tmp_path)).snapshot()
    assert (fresh.version, fresh.end, len(fresh.files)) == (205, {"0": 205}, 205)
    assert Table(str(tmp_path)).snapshot(200).end == {"0": 200}


def test_a_replaced_file_is_no_part_of_later_versions(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    append(table, file("a.parquet"), file("b.parquet"), end=2)
    old = tuple(table.snapshot().files)
    table.commit(Version(2, "replace", "compact", {"0": 2}, {"0": 2}, (file("c.parquet", 2),), old, 1))
    assert [name.rpartition("/")[2] for name in table.snapshot().files] == ["c.parquet"]
    assert len(table.snapshot(1).files) == 2


def test_what_the_end_was_is_known_after_care_and_from_a_checkpoint(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for number in range(1, 101):
        origin = {"zone": "ab", "0": f"seq {number - 1}: x"} if number < 100 else {}
        table.commit(Version(number, "append", "bronze", {}, {"0": min(99, number)}, origin=origin))
    assert table.snapshot().origin == Table(str(tmp_path)).snapshot().origin == {"zone": "ab", "0": "seq 98: x"}
    (tmp_path / "_commits" / f"{99:020d}.json").unlink()
    assert Table(str(tmp_path)).snapshot().origin["0"] == "seq 98: x"


def test_an_open_table_sees_the_commits_of_others(tmp_path: Path) -> None:
    mine, theirs = Table(str(tmp_path)), Table(str(tmp_path))
    append(mine, end=1)
    append(theirs, end=2)
    assert mine.snapshot().end == {"0": 2}


def test_columns_are_only_added_at_the_end(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    assert table.declare_schema(COLUMNS, 0) == 1
    assert table.declare_schema(COLUMNS, 1) == 1
    wider = [*COLUMNS, ("site", "string")]
    assert table.declare_schema(wider, 1) == 2
    assert table.declare_schema(COLUMNS, 2) == 2  # an older program writes what it knows
    with pytest.raises(TableError, match="its column 2 is topic string, not topic binary; write to a new table"):
        table.declare_schema([("box", "string"), ("topic", "binary")], 2)
    assert table.schema(2) == wider


def test_a_table_of_a_newer_program_is_refused_with_what_to_do(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    append(table, end=1)
    path = tmp_path / "_commits" / f"{1:020d}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"v": 9}))
    with pytest.raises(TableError, match="has layout 9, this program knows 1: update it"):
        Table(str(tmp_path)).snapshot()


def test_a_missing_first_version_is_an_error_not_an_empty_table(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    append(table, end=1)
    append(table, end=2)
    (tmp_path / "_commits" / f"{1:020d}.json").unlink()
    with pytest.raises(TableError, match="version 1 is missing"):
        Table(str(tmp_path)).snapshot()


def test_a_table_on_an_object_store_is_refused_with_the_reason() -> None:
    with pytest.raises(TableError, match="exclusive creation"):
        Table("s3://bucket/table")
