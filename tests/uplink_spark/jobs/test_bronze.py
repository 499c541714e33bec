"""The bronze job: every landed record once, whatever is killed, repeated or raced."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from uplink_spark.errors import LandingError
from uplink_spark.jobs import tables
from uplink_spark.jobs.bronze import Bronze, BronzeConfig, main, new_items, run_bronze, tasks_of
from uplink_spark.jobs.table.commits import TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.testing import Fleet, in_table, landed_items, source_of
from uplink_spark.testing import MadeLanding, gap_piece
from uplink_spark.zone.manifest import ManifestEntry, decode_entry, kept_path

T0 = 1_700_000_000_000
REPO = Path(__file__).parents[3]


@pytest.mark.slow
def test_each_record_is_in_the_table_once_also_without_the_checkpoint_or_with_an_old_one(
    spark: Any, fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    for n in range(4):
        fleet.land(f"box-{n % 2}", 5)
    run_bronze(spark, config, once=True)
    assert in_table(config.table) == fleet.expected
    shutil.copytree(config.checkpoint, tmp_path / "old")
    run_bronze(spark, config, once=True)  # adds nothing
    fleet.land("box-1", 3)
    run_bronze(spark, config, once=True)
    assert in_table(config.table) == fleet.expected
    table = Table(config.table)
    assert [table.snapshot(version).end for version in range(3)] == [{}, {"0": 4}, {"0": 5}]
    pinned = (fleet.landing.root / "consumers/bronze.json").read_text()
    assert '"offsets": {"0": 5}' in pinned
    shutil.rmtree(config.checkpoint)
    fleet.land("box-1", 4)
    run_bronze(spark, config, once=True)  # S4: lost
    assert in_table(config.table) == fleet.expected
    shutil.rmtree(config.checkpoint)
    (tmp_path / "old").rename(config.checkpoint)
    fleet.land("box-1", 4)
    run_bronze(spark, config, once=True)  # S4: old, with other batch borders
    assert in_table(config.table) == fleet.expected


def put_back(copy: Path, root: str) -> None:
    shutil.rmtree(root)
    shutil.copytree(copy, root)


@pytest.mark.slow
def test_an_old_copy_of_the_table_put_back_is_told_and_nothing_is_lost_or_twice(
    spark: Any, fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    fleet.land("box-1", 5)
    Bronze(config).write(landed_items(fleet.landing.root))
    shutil.copytree(config.table, tmp_path / "copy")
    fleet.land("box-2", 3)
    run_bronze(spark, config, once=True)
    put_back(tmp_path / "copy", config.table)
    fleet.land("box-1", 2)
    with pytest.raises(TableError, match=r"the table is at seq 1, checkpoint .* at 2: .*delete"):
        run_bronze(spark, config, once=True)
    run_bronze(spark, replace(config, checkpoint=str(tmp_path / "new")), once=True)
    assert in_table(config.table) == fleet.expected


@pytest.mark.slow
def test_after_a_restore_the_next_run_reads_again_what_the_restored_version_lacks(
    fleet: Fleet, config: BronzeConfig
) -> None:
    job = ["--landing", config.landing, "--table", config.table, "--once", "--master", "local[2]"]
    for n in range(3):
        fleet.land("box-1", 5 + n)
        Bronze(config).write(landed_items(fleet.landing.root))
    DeltaTable(config.table).restore(1)
    assert sum(in_table(config.table).values()) == 5
    assert main(job) == 0
    assert in_table(config.table) == fleet.expected
    DeltaTable(config.table).restore(2)
    fleet.land("box-2", 4)
    assert main(job) == 0
    assert in_table(config.table) == fleet.expected


def test_a_table_that_a_restore_set_back_behind_what_the_zone_keeps_is_told(fleet: Fleet, config: BronzeConfig) -> None:
    for _ in range(3):
        fleet.land("box-1", 2)
        Bronze(config).write(landed_items(fleet.landing.root))
    DeltaTable(config.table).restore(1)
    kept = fleet.landing.root / kept_path(0)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text('{"v": 1, "shard": 0, "seq": 2}')
    with pytest.raises(TableError, match=r"ends at seq 1 of shard 0, .* begins at 2: retention removed what is"):
        Bronze(config).end()


@pytest.mark.slow
def test_a_job_at_work_notices_an_old_copy_put_back_also_where_another_has_gone_on_from_it(
    fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    bronze = Bronze(config)
    fleet.land("box-1", 5)
    bronze.write(landed_items(fleet.landing.root))
    shutil.copytree(config.table, tmp_path / "copy")
    for _ in range(2):
        fleet.land("box-2", 3)
        bronze.write(landed_items(fleet.landing.root))
    put_back(tmp_path / "copy", config.table)
    fleet.land("box-1", 2)
    items = landed_items(fleet.landing.root)
    with pytest.raises(TableError, match="the table is at seq 1, the batch begins at 3"):
        bronze.write(items[3:])
    Bronze(config).write(items[:2])
    Bronze(config).write(items[:4])  # as many versions as the job has seen, of other rows
    assert Table(config.table).snapshot().version == 3
    fleet.land("box-3", 1)
    bronze.write(landed_items(fleet.landing.root)[3:])
    assert in_table(config.table) == fleet.expected


@pytest.mark.slow
def test_of_two_drivers_with_the_same_batch_one_commits(spark: Any, fleet: Fleet, config: BronzeConfig) -> None:
    fleet.land("box-1", 3)
    fleet.land("box-2", 3)
    items = landed_items(fleet.landing.root)
    steps: list[str] = []

    def rival(step: str) -> None:
        steps.append(step)
        if step == "S2" and len(steps) == 1:
            Bronze(config, step=steps.append).write(items[:1])

    Bronze(config, step=rival).write(items)  # finds version 1 taken, adds only what is lacking
    assert in_table(config.table) == fleet.expected
    table = Table(config.table)
    assert [table.snapshot(version).end for version in (1, 2)] == [{"0": 1}, {"0": 2}]
    files = len(list(Path(config.table).glob("part=data/*/*.parquet")))
    assert files > len(Table(config.table).snapshot().part("data"))  # the loser's files lie there unlisted


@pytest.mark.slow
def test_declared_losses_are_rows_beside_the_data_within_the_same_batch(
    spark: Any, fleet: Fleet, config: BronzeConfig
) -> None:
    fleet.land("box-1", 3)
    end = fleet.end("box-1")
    gap: dict[str, object] = {
        "class": "missing",
        "reason": "disk_full",
        "since": T0,
        "until": T0 + 9,
        "declared": T0 + 10,
        "records": 12,
        "queues": [["Vitals", 0, 3, 9, 7], ["Alarm", 1, 0, 4, 5]],
    }
    fleet.landing.land(gap_piece(end, end + 1000, gap, source=source_of("box-1")), now_ms=T0 + 5000)
    unknown = gap | {"queues": [], "reason": "never_receipted"}
    del unknown["records"]
    fleet.landing.land(gap_piece(end + 1000, end + 1500, unknown, source=source_of("box-1")), now_ms=T0 + 5000)
    Bronze(config).write(landed_items(fleet.landing.root))
    rows = tables.gaps(spark, config.table).orderBy("from_offset", "topic").collect()
    seen = [(r["class"], r["topic"], r["first_queue_offset"], r["last_queue_offset"], r["records"]) for r in rows]
    assert seen == [("missing", "Alarm", 0, 4, 5), ("missing", "Vitals", 3, 9, 7), ("missing", None, None, None, None)]
    states = [tuple(row)[2:] for row in tables.coverage(spark, config.table).orderBy("from_offset").collect()]
    assert states == [(0, end, "landed"), (end, end + 1500, "gap")]


@pytest.mark.slow
def test_packs_that_are_lost_at_the_centre_stop_the_job_or_become_declared_losses(
    spark: Any, fleet: Fleet, config: BronzeConfig
) -> None:
    for n in range(3):
        fleet.land("box-1", 2 + n)
    items = landed_items(fleet.landing.root)
    lost = decode_entry(items[1][1])
    Path(config.landing, lost.pack).unlink()
    with pytest.raises(LandingError, match="failOnDataLoss=false"):
        Bronze(config).write(items)
    assert Table(config.table).snapshot().version == 0
    Bronze(replace(config, fail_on_loss=False)).write(items)
    assert sum(in_table(config.table).values()) == 2 + 4
    (gap,) = tables.gaps(spark, config.table).collect()
    assert (gap["class"], gap["reason"], gap["records"]) == ("damaged", "pack_lost", 3)
    states = [tuple(row)[2:] for row in tables.coverage(spark, config.table).orderBy("from_offset").collect()]
    end = fleet.end("box-1")
    assert states == [(0, lost.start, "landed"), (lost.start, lost.end, "gap"), (lost.end, end, "landed")]


def test_a_table_takes_nothing_from_another_landing_zone(fleet: Fleet, config: BronzeConfig, tmp_path: Path) -> None:
    fleet.land("box-1", 3)
    Bronze(config).write(landed_items(config.landing))
    rows, other = in_table(config.table), Fleet(MadeLanding(tmp_path / "other"))
    other.land("box-1", 2)
    other.land("box-1", 2)
    other.landing.close()
    with pytest.raises(TableError, match="is the right file system mounted there"):
        Bronze(replace(config, landing=str(other.landing.root))).write(landed_items(other.landing.root))
    assert in_table(config.table) == rows


@pytest.mark.slow
def test_a_job_names_the_other_landing_zone_also_where_that_is_shorter(
    spark: Any, fleet: Fleet, config: BronzeConfig, tmp_path: Path
) -> None:
    for _ in range(3):
        fleet.land("box-1", 3)
    Bronze(config).write(landed_items(config.landing))
    MadeLanding(tmp_path / "other").close()
    with pytest.raises(TableError, match="is the right file system mounted there"):
        run_bronze(spark, replace(config, landing=str(tmp_path / "other")), once=True)


def test_a_table_notices_that_its_landing_zone_was_set_back(fleet: Fleet, config: BronzeConfig, tmp_path: Path) -> None:
    fleet.land("box-1", 3)
    fleet.land("box-1", 3)
    fleet.landing.close()
    copy = Path(shutil.copytree(config.landing, tmp_path / "copy"))
    again = Fleet(MadeLanding(Path(config.landing)))
    again.land("box-2", 4)
    again.landing.close()
    Bronze(config).write(landed_items(config.landing))
    shutil.rmtree(config.landing)
    copy.rename(config.landing)
    rows = in_table(config.table)
    with pytest.raises(TableError, match=r"seq 2: box-2 5 log 0\..* now: ends at seq 2\. Was it set back"):
        Bronze(config).write(landed_items(config.landing))
    back = Fleet(MadeLanding(Path(config.landing)))
    back.land("box-3", 1)  # takes the seq of what the table has
    back.land("box-3", 1)
    back.landing.close()
    with pytest.raises(TableError, match=r"now: seq 2: box-3 5 log 0\..*start a new table"):
        Bronze(config).write(landed_items(config.landing))
    assert in_table(config.table) == rows


def entry(seq: int, landed_ms: int = T0, raw_bytes: int = 100) -> ManifestEntry:
    return ManifestEntry(
        seq, "log", "b", 1, 1, f"pack/0000/{seq}", 0, 10, seq, seq + 1, 1, raw_bytes, T0, T0, landed_ms, T0, 1
    )


def test_entries_the_table_has_are_left_out_and_a_hole_stops_the_job() -> None:
    items = [(0, entry(seq).encode()) for seq in range(3, 7)]
    assert [found.seq for _, found, _ in new_items({"0": 5}, items)] == [5, 6]
    assert [found.seq for _, found, _ in new_items({}, items)] == [3, 4, 5, 6]
    assert new_items({"0": 7}, items) == []
    with pytest.raises(TableError, match="the table is at seq 2, the batch begins at 3"):
        new_items({"0": 2}, items)
    with pytest.raises(TableError, match="the table is at seq 4, the batch begins at 5"):
        new_items({}, [items[0], items[2]])


def test_a_task_holds_pieces_of_one_landed_day_and_about_the_size_asked_for() -> None:
    day = 86_400_000
    entries = [entry(seq, T0 + day * (seq // 4), 40) for seq in range(8)]
    tasks = tasks_of([(0, one, one.encode()) for one in entries], 100)
    assert [[ref.origin.seq for ref in task] for task in tasks] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_landing_zone_that_never_appears_ends_the_job_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--landing", str(tmp_path / "none"), "--table", str(tmp_path / "t"), "--once", "--wait", "0"])
    told = capsys.readouterr()
    assert code == 1
    assert told.err.startswith(f"bronze: no landing zone at {tmp_path / 'none'}: it has no file LANDING")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("zone", "is a landing zone: give the table a folder of its own"),
        ("file/bronze", "cannot be written: Not a directory"),
        ("s3://key:secret@bucket/bronze", "table s3://…: credentials do not belong into a URL"),
    ],
)
def test_a_place_where_no_table_can_be_ends_the_job_before_spark_starts(
    table: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    MadeLanding(tmp_path / "zone").close()
    (tmp_path / "file").touch()
    assert main(["--landing", "zone", "--table", table, "--once"]) == 1
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


# -- killed processes --------------------------------------------------------------------------------------------------

WITHOUT_SPARK = """
import sys
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.testing import landed_items
landing, table = sys.argv[1:]
Bronze(BronzeConfig(landing, table, "", partition_bytes=4096)).write(landed_items(landing))
"""


def commit_process(config: BronzeConfig, *, stop_at: str = "") -> subprocess.Popen[str]:
    """The job's commit path in a process of its own; its stream adds nothing to what is committed."""
    command = [sys.executable, "-c", WITHOUT_SPARK, config.landing, config.table]
    return subprocess.Popen(command, cwd=REPO, env=os.environ | {"UPLINK_STOP_AT": stop_at}, text=True)


@pytest.mark.slow
def test_writers_killed_at_each_step_leave_each_row_once(fleet: Fleet, config: BronzeConfig) -> None:
    for n in range(6):
        fleet.land(f"box-{n % 3}", 50)
    for stop_at, versions in (("S2", 0), ("S3", 1), ("S3", 2), ("S2", 2)):
        fleet.land("box-1", 20)
        process = commit_process(config, stop_at=stop_at)
        assert process.wait(60) == -signal.SIGKILL
        assert Table(config.table).snapshot().version == versions
    assert len(list(Path(config.table).glob("part=data/*/*.parquet"))) > len(
        Table(config.table).snapshot().part("data")
    )
    assert commit_process(config).wait(60) == 0
    assert in_table(config.table) == fleet.expected


@pytest.mark.slow
def test_writers_killed_at_random_moments_and_two_at_a_time_leave_each_row_once(
    fleet: Fleet, config: BronzeConfig
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(6):
        for _ in range(dice.randrange(1, 30)):
            fleet.land(f"box-{dice.randrange(4)}", dice.randrange(1, 100))
        processes = [commit_process(config), commit_process(config)]
        time.sleep(dice.uniform(0.6, 2.0))
        for process in processes:
            process.kill()
            process.wait()
    assert commit_process(config).wait(60) == 0
    assert in_table(config.table) == fleet.expected


def bronze_process(config: BronzeConfig, *, stop_at: str = "", master: str = "local[2]") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "uplink_spark.jobs.bronze", "--once", "--landing", config.landing]
    command += ["--table", config.table, "--checkpoint", config.checkpoint, "--master", master]
    environment = os.environ | {"UPLINK_STOP_AT": stop_at}
    return subprocess.Popen(
        command, cwd=REPO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.soak
def test_drivers_killed_at_random_moments_leave_each_row_once(fleet: Fleet, config: BronzeConfig) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(20):
        for _ in range(dice.randrange(1, 8)):
            fleet.land(f"box-{dice.randrange(4)}", dice.randrange(1, 400))
        process = bronze_process(config, stop_at=dice.choice(["", "", "S2", "S3"]))
        time.sleep(dice.uniform(5, 25))
        process.kill()
        process.communicate()
        if dice.random() < 0.2:
            shutil.rmtree(config.checkpoint, ignore_errors=True)
    process = bronze_process(config)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert f"rows={sum(fleet.expected.values())}" in out
    assert in_table(config.table) == fleet.expected
