"""The status job: each report of a box is in the table once, whatever is killed, repeated, torn or put back."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.uplink_spark.object_server import KEY, SECRET, make_bucket, running_s3, url_of
from uplink_spark.centre.zone_files.object_store import ObjectStore
from uplink_spark.centre.zone_files.objects import ObjectRecords, open_object_zone
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.jobs import care, status, tables
from uplink_spark.jobs.status import StatusJob, parse
from uplink_spark.jobs.table.commits import TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.testing import MadeLanding
from uplink_spark.wire.frames import Hello, Status
from uplink_spark.zone.reader import ZoneReader

T0, DAY, HOUR = 1_700_000_000_000, 86_400_000, 3_600_000
ROOM = 1 << 30


def report(box: str, at_ms: int) -> tuple[Hello, Status, int]:
    hello = Hello(box, ((5, 0),), ((7, 0),), 0, 97, at_ms, 1, "rocketbox 0.1.0")
    said = Status(97, 12, T0, ROOM, 44, 2, "clean", "rocketbox 0.1.0", at_ms, 1, "degraded", ("disk", "clock"))
    return hello, said, at_ms + 500


def in_status(root: str) -> Counter[tuple[str, int]]:
    rows = DeltaTable(root).to_pyarrow_table(columns=["box", "received_ms"])
    return Counter(zip(rows["box"].to_pylist(), rows["received_ms"].to_pylist(), strict=True))


class Reports:
    """Reports of boxes in a landing zone, and what must come out."""

    def __init__(self, landing: MadeLanding) -> None:
        self.root, self.records = str(landing.root), CentreRecords(landing.root, 1)
        self.expected = Counter[tuple[str, int]]()

    def add(self, box: str, at_ms: int) -> None:
        hello, said, received_ms = report(box, at_ms)
        self.records.append_status(hello, said, received_ms)
        self.expected[(box, received_ms)] += 1

    def job(self, table: str) -> StatusJob:
        return StatusJob(ZoneReader(self.root), table)


@pytest.fixture
def reports(landing: MadeLanding) -> Reports:
    return Reports(landing)


def test_each_report_is_in_the_table_once_with_a_file_for_each_day(reports: Reports, tmp_path: Path) -> None:
    root = str(tmp_path / "status")
    for day in range(3):
        for box in ("b", "a"):
            reports.add(box, T0 + day * DAY)
    job = reports.job(root)
    job.take_in(T0 + 2 * DAY + HOUR)
    job.take_in(T0 + 2 * DAY + HOUR)  # nothing is new
    assert Table(root).snapshot().version == 1
    assert [file.day for file in Table(root).snapshot().part("data")] == ["2023-11-14", "2023-11-15", "2023-11-16"]
    reports.add("a", T0 + 2 * DAY + 9000)
    reports.job(root).take_in(T0 + 3 * DAY)
    reports.job(root).take_in(T0 + 9 * DAY)  # names of long ago are forgotten, not read again
    assert in_status(root) == reports.expected
    assert job.rows == 6


def test_a_long_backlog_is_taken_in_many_commits(
    reports: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "status")
    for number in range(12):
        reports.add("a", T0 + number * 6 * HOUR)
    monkeypatch.setattr(status, "BATCH_BYTES", 700)  # two lines and a half
    reports.job(root).take_in(T0 + 72 * HOUR)
    assert in_status(root) == reports.expected
    assert Table(root).snapshot().version >= 6


def test_a_torn_line_is_counted_and_a_line_without_its_end_waits(reports: Reports, tmp_path: Path) -> None:
    root = str(tmp_path / "status")
    reports.add("a", T0)
    (path,) = Path(reports.root).rglob("*.jsonl")
    whole = path.read_text()
    job = reports.job(root)
    path.write_text(whole + '{"box": "a", "epo')
    job.take_in(T0 + HOUR)
    assert (job.rows, job.damaged) == (1, 0)
    path.write_text(whole + '{"box": "a", "epo\n')
    reports.add("b", T0)
    job.take_in(T0 + HOUR)
    assert (job.rows, job.damaged) == (2, 1)
    assert in_status(root) == reports.expected
    assert parse(b"")[0].num_rows == 0


@pytest.mark.slow
def test_of_two_jobs_one_commits_and_an_old_copy_put_back_is_filled_up(
    reports: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "status")
    reports.add("a", T0)
    reports.job(root).take_in(T0 + HOUR)
    shutil.copytree(root, tmp_path / "copy")
    reports.add("b", T0)
    with monkeypatch.context() as patch:
        rival = reports.job(root)

        def be_first(_step: str) -> None:
            patch.undo()
            rival.take_in(T0 + HOUR)

        patch.setattr(status, "stop_at", be_first)
        reports.job(root).take_in(T0 + HOUR)
    assert rival.rows == 1
    assert in_status(root) == reports.expected
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    rival.take_in(T0 + HOUR)
    assert in_status(root) == reports.expected


def test_another_landing_zone_is_refused(reports: Reports, tmp_path: Path) -> None:
    root = str(tmp_path / "status")
    reports.add("a", T0)
    reports.job(root).take_in(T0 + HOUR)
    other = Reports(MadeLanding(tmp_path / "other"))
    with pytest.raises(TableError, match="is the right file system mounted there"):
        other.job(root).take_in(T0 + HOUR)


@pytest.mark.slow
def test_the_command_the_care_and_the_reader(
    spark: Any, reports: Reports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "status")
    for number in range(3):
        reports.add("a", T0 + number)
        assert status.main(["--landing", reports.root, "--table", root, "--once"]) == 0
    assert "rows=1 damaged_lines=0" in capsys.readouterr().out
    lines = [tuple(row) for row in tables.box_status(spark, reports.root).collect()]
    assert care.compact(spark, root, "2023-11-14").files_after == 1
    assert [tuple(row) for row in tables.box_status(spark, root).orderBy("received_ms").collect()] == lines
    assert care.expire(root, 1).rows == 3
    assert tables.box_status(spark, root).count() == 0
    assert status.main(["--landing", reports.root, "--table", reports.root, "--once"]) == 1
    assert "is a landing zone" in capsys.readouterr().err
    with pytest.raises(TableError, match="is not a bronze table"):
        tables.bronze(spark, root)


@pytest.mark.soak
async def test_reports_of_a_zone_in_a_bucket_are_in_a_table_there_once_also_those_that_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with running_s3(tmp_path) as address:
        make_bucket(address, "lake")
        zone, root = url_of(address, "lake", "zone"), url_of(address, "lake", "status")
        store = ObjectStore(zone)
        open_object_zone(store, 1)
        records, expected = ObjectRecords(store, 1), Counter[tuple[str, int]]()
        job = StatusJob(ZoneReader(zone), root)
        for written_ms, at in ((T0 + 60_000, 0), (T0 + 120_000, 1), (T0 + 30_000, 2)):  # the last one was held up
            hello, said, received_ms = report("a", T0 + at)
            records.append_status(hello, said, received_ms)
            await records.write_status(written_ms)
            expected[("a", received_ms)] += 1
            job.take_in(T0 + HOUR)
            job.take_in(T0 + HOUR)
        rows = Table(root).open().to_pyarrow_table(columns=["box", "received_ms"])  # type: ignore[union-attr]
        assert Counter(zip(rows["box"].to_pylist(), rows["received_ms"].to_pylist(), strict=True)) == expected
