"""Delta's log as the commit list of a table: one winner, the table knows where it stands, other engines read it."""

import json
import os
import shutil
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from tests.uplink_spark.jobs.small_table import COLUMNS, add
from uplink_spark.jobs.table.commits import Conflict, TableError
from uplink_spark.jobs.table.delta import CHECKPOINT_EVERY, KEEP_LOG_DAYS, Table
from uplink_spark.jobs.table.location import Location
from uplink_spark.jobs.table.log import LOG, Commit, read_commit
from uplink_spark.jobs.table.parquet import write_file

DAY = "2026-11-03"


def test_where_the_table_stands_is_in_each_of_its_versions(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    assert (table.snapshot().version, table.snapshot().end) == (0, {})
    paths = [add(table, DAY), add(table, DAY, 7)]
    found = Table(str(tmp_path)).snapshot()
    assert (found.version, found.end, found.origin) == (2, {"0": 2}, {"0": "seq 1"})
    assert {file.path: (file.rows, file.day, file.boxes) for file in found.part("data")} == {
        paths[0]: (5, DAY, ("a", "a")),
        paths[1]: (7, DAY, ("a", "a")),
    }
    assert list(table.snapshot(1).files) == paths[:1]
    assert table.snapshot(1).end == {"0": 1}


def test_the_change_feed_has_new_rows_and_those_that_left_but_nothing_of_compaction(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for day, count in ((DAY, 5), ("2026-11-04", 7)):
        add(table, day, count)
    (first,) = (file for file in table.snapshot().files.values() if file.day == DAY)
    rows = pa.record_batch([["a"] * 5, ["T"] * 5, list(range(5))], schema=COLUMNS)
    joined = write_file(table.root, DAY, COLUMNS, [rows], part="data")
    table.replace(table.snapshot(), [first], [joined])
    (joined_now,) = (file for file in table.snapshot().files.values() if file.day == DAY)
    table.replace(table.snapshot(), [joined_now], [], rows_leave=True)
    feed = pa.table(DeltaTable(str(tmp_path)).load_cdf(starting_version=1))
    changes = Counter(zip(feed["_change_type"].to_pylist(), feed["_commit_version"].to_pylist(), strict=True))
    assert changes == {("insert", 1): 5, ("insert", 2): 7, ("delete", 4): 5}
    assert DeltaTable(str(tmp_path)).protocol().min_reader_version == 1


def test_the_files_of_a_snapshot_are_those_of_its_version(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    path = add(table, DAY)
    before = table.snapshot()
    add(table, DAY)
    assert table.snapshot().version == 2
    assert list(before.files) == [path]


def test_a_table_made_anew_in_its_place_is_noticed(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    add(table, DAY)
    shutil.rmtree(tmp_path / LOG)
    assert table.snapshot().version == 0
    add(Table(str(tmp_path)), DAY)
    assert table.snapshot().end == {"0": 1}


def test_a_table_set_back_to_an_older_copy_goes_on_from_there(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for _ in range(3):
        add(table, DAY)
    for version in (2, 3):
        (tmp_path / LOG / f"{version:020d}.json").unlink()
    assert (table.snapshot().version, table.snapshot().end) == (1, {"0": 1})
    add(table, DAY)
    assert sorted(path.name for path in (tmp_path / LOG).glob("*.json"))[-1] == f"{2:020d}.json"


def test_of_writers_of_a_version_one_wins_and_the_others_are_told(tmp_path: Path) -> None:
    first = Table(str(tmp_path))
    have = first.declare({"data": COLUMNS}, ["0", "1"])
    outcomes: list[int] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        table = Table(str(tmp_path))
        barrier.wait()
        try:
            table.append(have, [], {str(number % 2): number + 1}, {"by": str(number)})  # of two inputs
            outcomes.append(number)
        except Conflict:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    found = first.snapshot()
    assert (found.version, found.end, found.origin) == (1, {str(winner % 2): winner + 1}, {"by": str(winner)})


def test_drivers_that_make_the_table_at_once_have_one(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)
    versions: list[int] = []

    def make() -> None:
        barrier.wait()
        versions.append(Table(str(tmp_path)).declare({"data": COLUMNS}, ["0"]).version)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions == [0] * 4


def test_columns_and_inputs_are_added_and_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    wider = COLUMNS.append(pa.field("site", pa.string()))
    assert table.declare({"data": wider, "gaps": COLUMNS}, ["0", "1"]).end == {"0": 1}
    assert table.columns() == [*COLUMNS.names, "site"]
    have = table.declare({"data": COLUMNS}, ["0"])  # an earlier program writes what it knows
    table.append(have, [], {"1": 4}, {})
    assert table.snapshot().end == {"0": 1, "1": 4}
    with pytest.raises(TableError, match="its column topic is string, not binary; write to a new table"):
        table.declare({"data": pa.schema([("topic", pa.binary())])}, ["0"])


def test_columns_have_comments_and_parts(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    column = next(found for found in DeltaTable(tmp_path).schema().fields if found.name == "box")
    assert column.metadata == {"comment": "name of the box", "rocketbox.parts": "data"}
    assert table.columns("gaps") == []


def test_rows_that_compaction_wrote_again_are_not_new(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    paths = [add(table, DAY), add(table, DAY)]
    DeltaTable(tmp_path).optimize.compact()
    paths.append(add(table, DAY))
    found = [(version, [file.path for file in files]) for version, files in table.appended(0)]
    assert found == [(1, paths[:1]), (2, paths[1:2]), (3, []), (4, paths[2:])]
    assert [version for version, _ in table.appended(3)] == [4]
    assert table.snapshot().origin == {"0": "seq 2"}


def test_rows_that_a_delete_or_an_update_wrote_again_are_not_new(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    paths = [add(table, DAY)]
    DeltaTable(tmp_path).delete("seq = 1")
    DeltaTable(tmp_path).update(updates={"topic": "'other'"}, predicate="seq = 2")
    paths.append(add(table, DAY))
    found = [(version, [file.path for file in files]) for version, files in table.appended(0)]
    assert found == [(1, paths[:1]), (2, []), (3, []), (4, paths[1:])]


def test_after_a_restore_the_table_stands_where_the_restored_version_stood(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for _ in range(4):
        add(table, DAY)
    for version in (2, 4, 3):  # the one before last is undone
        DeltaTable(tmp_path).restore(version)
        stands = table.snapshot()
        assert (stands.end, stands.origin) == ({"0": version}, {"0": f"seq {version - 1}"})
    DeltaTable(tmp_path).alter.set_table_description("a commit of others")
    assert (table.snapshot().end, Table(str(tmp_path)).snapshot().origin) == ({"0": 3}, {"0": "seq 2"})
    add(table, DAY)
    assert (table.snapshot().end, len(table.snapshot().files)) == ({"0": 4}, 4)
    DeltaTable(tmp_path).restore(0)
    assert (table.snapshot().end, table.snapshot().origin) == ({}, {})


def test_a_restore_to_a_time_stands_where_the_version_of_then_stood(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for at in range(1, 4):
        add(table, DAY)
        os.utime(tmp_path / LOG / f"{at:020d}.json", (at * 1000, at * 1000))
    os.utime(tmp_path / LOG / f"{0:020d}.json", (1, 1))
    DeltaTable(tmp_path).restore(datetime.fromtimestamp(2500, UTC))
    assert table.snapshot().end == {"0": 2}


def test_a_restore_without_files_that_are_gone_is_told(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    paths = [add(table, DAY) for _ in range(3)]
    table.replace(table.snapshot(), [table.snapshot().files[path] for path in paths[:1]], [], rows_leave=True)
    DeltaTable(tmp_path).restore(3)
    log = tmp_path / LOG / f"{5:020d}.json"
    log.write_text("".join(line for line in log.open() if not line.startswith('{"add"')))  # as Spark leaves them out
    with pytest.raises(TableError, match=r"version 5 of table .* is a RESTORE .*, and no version before"):
        Table(str(tmp_path)).snapshot()


def test_of_a_writer_and_a_restore_at_once_the_writer_looks_again(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for _ in range(3):
        add(table, DAY)
    have = table.snapshot()
    DeltaTable(tmp_path).restore(1)
    with pytest.raises(Conflict):
        table.append(have, [], {"0": 4}, {"0": "seq 3"})


def test_what_a_restore_took_back_is_not_new_and_no_reader_has_it_unnoticed(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    paths = [add(table, DAY) for _ in range(4)]
    DeltaTable(tmp_path).restore(2)  # version 5
    paths.append(add(table, DAY))
    found = [(version, [file.path for file in files]) for version, files in table.appended(0)]
    assert found == [(1, paths[:1]), (2, paths[1:2]), (5, []), (6, paths[4:])]
    assert [version for version, _ in table.appended(2)] == [5, 6]
    with pytest.raises(TableError, match=r"RESTORE of .* took back version 3, whose rows were read: RESTORE what"):
        list(table.appended(4))
    DeltaTable(tmp_path).restore(4)  # version 7: undone
    assert [version for version, _ in table.appended(4)] == [7]
    with pytest.raises(TableError, match="took back version 6"):
        list(table.appended(6))


def test_a_restore_that_brings_deleted_rows_back_changes_nothing_that_was_read(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    DeltaTable(tmp_path).delete("seq = 1")
    DeltaTable(tmp_path).restore(1)
    assert [(version, files) for version, files in table.appended(1)] == [(3, [])]
    assert [(version, files) for version, files in table.appended(2)] == [(3, [])]


def test_what_the_end_was_is_known_after_commits_of_other_programs(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    for _ in range(3):
        add(table, DAY)
    for day in ("2026-11-01", "2026-11-02", "2026-11-04", "2026-11-05"):
        DeltaTable(tmp_path).delete(f"landed_day = '{day}'")
        DeltaTable(tmp_path).alter.set_table_description(day)
    assert table.snapshot().origin == {"0": "seq 2"}
    assert table.snapshot().end == {"0": 3}


def test_each_commit_of_another_program_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(location: Location, version: int) -> Commit | None:
        read.append(version)
        return read_commit(location, version)

    monkeypatch.setattr("uplink_spark.jobs.table.delta.read_commit", noted)
    table = Table(str(tmp_path))
    add(table, DAY)
    add(table, DAY)
    for look in range(3):
        DeltaTable(tmp_path).alter.set_table_description(f"look {look}")
        read.clear()
        assert (table.snapshot().end, table.snapshot().origin) == ({"0": 2}, {"0": "seq 1"})
        assert read == [3 + look]
    DeltaTable(tmp_path).restore(1)
    assert table.snapshot().end == {"0": 1}
    for version in (4, 5, 6):
        (tmp_path / LOG / f"{version:020d}.json").unlink()
    assert (table.snapshot().version, table.snapshot().end) == (3, {"0": 2})


def test_the_end_is_that_of_the_newest_commit_of_rows_also_of_an_earlier_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    with monkeypatch.context() as earlier:
        earlier.setattr("uplink_spark.jobs.table.delta.END", "unknown")
        add(table, DAY)
    assert (Table(str(tmp_path)).snapshot().end, table.snapshot().origin) == ({"0": 2}, {"0": "seq 1"})
    path = add(table, DAY)
    table.replace(table.snapshot(), [table.snapshot().files[path]], [], rows_leave=True)
    assert (Table(str(tmp_path)).snapshot().end, table.snapshot().origin) == ({"0": 3}, {"0": "seq 2"})


@pytest.mark.slow
@pytest.mark.parametrize(("days", "every"), [(60, 10), pytest.param(365, CHECKPOINT_EVERY, marks=pytest.mark.soak)])
def test_however_many_commits_a_month_of_log_is_left(
    tmp_path: Path, days: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.jobs.table.delta.CHECKPOINT_EVERY", every)
    table = Table(str(tmp_path))
    now = time.time()
    for day in range(days):
        add(table, DAY)
        made = now - (days - day) * 86_400
        for version in {0, table.snapshot().version} if day == 0 else {table.snapshot().version}:
            for path in (tmp_path / LOG).glob(f"{version:020d}*"):
                os.utime(path, (made, made))
    while table.snapshot().version % every:
        add(table, DAY)
    left = sorted(int(path.name[:20]) for path in (tmp_path / LOG).glob("*.json"))
    assert len(left) <= KEEP_LOG_DAYS + 2 * every
    assert left[0] > 20
    found = Table(str(tmp_path)).snapshot()
    assert (found.end, len(found.files)) == ({"0": found.version}, found.version)
    with pytest.raises(TableError, match=r"version 2\d of .* has left its log, which keeps 30 days"):
        list(table.appended(10))


def test_the_log_is_as_delta_has_it(tmp_path: Path) -> None:
    add(Table(str(tmp_path)), DAY)
    lines = (tmp_path / LOG / f"{1:020d}.json").read_text().splitlines()
    actions = {name: body for line in lines for name, body in json.loads(line).items()}
    assert actions["add"]["partitionValues"] == {"part": "data", "landed_day": DAY}
    assert json.loads(actions["add"]["stats"])["maxValues"] == {"box": "a", "topic": "T", "seq": 4}
    told = [json.loads(line)["txn"] for line in lines if "txn" in line]
    assert {(action["appId"], action["version"]) for action in told} == {("rocketbox/0", 1), ("rocketbox", 1)}


def test_a_file_that_no_commit_lists_is_no_part_of_the_table(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    listed = add(table, DAY)
    batch = pa.record_batch({"box": ["z"], "topic": ["T"], "seq": [1]}, COLUMNS)
    write_file(str(tmp_path), DAY, COLUMNS, [batch], part="data")
    assert list(table.snapshot().files) == [listed]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 5


def test_a_table_whose_deleted_rows_are_noted_beside_its_files_is_refused(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    DeltaTable(tmp_path).alter.add_feature([TableFeatures.DeletionVectors], allow_protocol_versions_increase=True)
    for opened in (table, Table(str(tmp_path))):
        with pytest.raises(TableError, match="has the feature deletionVectors, which another engine has set"):
            opened.snapshot()


@pytest.mark.parametrize("feature", [TableFeatures.RowTracking, TableFeatures.IcebergCompatV1])
def test_a_table_with_a_feature_that_is_not_written_is_read_and_refused_before_a_file_is_written(
    tmp_path: Path, feature: TableFeatures
) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    DeltaTable(tmp_path).alter.add_feature([feature], allow_protocol_versions_increase=True)
    assert table.snapshot().end == {"0": 1}
    with pytest.raises(TableError, match=r"has the features \w+, which another engine has set and .* DROP FEATURE"):
        table.declare({"data": COLUMNS}, ["0"])
    with pytest.raises(TableError, match=r"has the features \w+, which another engine has set"):
        table.replace(table.snapshot(), list(table.snapshot().files.values()), [])


def test_a_log_that_is_damaged_is_an_error_that_names_the_table(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    add(table, DAY)
    (tmp_path / LOG / f"{1:020d}.json").write_text("{")
    with pytest.raises(TableError, match="cannot be opened"):
        table.snapshot()
