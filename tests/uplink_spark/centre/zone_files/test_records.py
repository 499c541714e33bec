"""The centre's small files: run lists, retired boxes, quarantine, status lines; and what is torn of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from uplink_spark.centre.zone_files import records as records_module
from uplink_spark.centre.zone_files.landing import open_zone
from uplink_spark.centre.zone_files.records import (
    KEPT_EPOCHS,
    QUARANTINE_FILES,
    QUARANTINE_OF_BOX,
    STATUS_DAYS,
    BoxBook,
    CentreRecords,
    day_of,
)
from uplink_spark.testing import SOURCE, MadeLanding, MadeRecord, files_end_at, log_piece
from uplink_spark.wire.frames import Hello, Status
from uplink_spark.zone.manifest import shard_of

NOW = 1_700_000_000_000
DAY = 86_400_000
HELLO = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "test")
STATUS = Status(
    1000, 10, NOW - 5, 1 << 30, 200, 3, "clean", "rocketbox 1", NOW - 7, 1, "degraded", ("disk_filling: disk 87% full",)
)


@pytest.fixture
def records(tmp_path: Path) -> CentreRecords:
    open_zone(tmp_path / "zone")
    return CentreRecords(tmp_path / "zone", 1)


def test_a_box_nobody_wrote_about_has_an_empty_book(records: CentreRecords) -> None:
    assert records.load("box-17") == BoxBook({}, False)


def test_run_lists_are_kept_by_epoch_and_the_newest_sixteen_epochs_alone(records: CentreRecords) -> None:
    for epoch in range(KEPT_EPOCHS + 4):
        records.save("box-17", epoch, ((epoch + 100, 0), (epoch + 200, 5)))
    assert set(records.load("box-17").runs) == set(range(4, KEPT_EPOCHS + 4))
    records.save("box-17", 4, ((1, 0),))  # the oldest was seen again: it is the newest now
    records.save("box-17", 99, ((2, 0),))
    runs = records.load("box-17").runs
    assert runs[4] == ((1, 0),)
    assert 5 not in runs
    assert runs[19] == ((119, 0), (219, 5))
    assert records.load("box-18").runs == {}


def test_a_damaged_run_list_names_the_box_and_is_never_taken_for_an_empty_one(
    records: CentreRecords, tmp_path: Path
) -> None:
    records.save("box-17", 1, ((7, 0),))
    path = tmp_path / "zone/manifest/0000/runs/box-17"
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", whole + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(OSError, match="run list of box-17 is damaged"):
            records.load("box-17")


def test_a_save_on_a_full_disk_leaves_the_list_that_was_accepted(records: CentreRecords) -> None:
    records.save("box-17", 1, ((7, 0),))
    with files_end_at(5), pytest.raises(OSError, match="too large"):
        records.save("box-17", 1, ((7, 0), (8, 10)))
    assert records.load("box-17").runs == {1: ((7, 0),)}


def test_boxes_of_different_shards_lie_in_different_folders(tmp_path: Path) -> None:
    open_zone(tmp_path / "zone", 4)
    records = CentreRecords(tmp_path / "zone", 4)
    for name in ("a", "b", "c", "d", "e", "f"):
        records.retire(name)
        assert (tmp_path / f"zone/manifest/{shard_of(name, 4):04x}/retired/{name}").read_bytes() == b""
        assert records.load(name).retired
    assert not records.load("g").retired


def test_the_newest_piece_is_told_by_its_own_header_and_none_where_it_is_gone_or_damaged(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    records = CentreRecords(tmp_path / "zone", 1)
    first, second = log_piece([MadeRecord()]), log_piece([MadeRecord(queue_offset=1)], 97)
    entry = landing.land(first, second)[1]
    assert records.last_piece(entry) == (SOURCE.epoch, 97, 194, second[0].sha)
    assert records.last_piece(None) is None
    pack = tmp_path / "zone" / entry.pack
    pack.write_bytes(pack.read_bytes()[: entry.offset + 10])
    assert records.last_piece(entry) is None
    pack.unlink()
    assert records.last_piece(entry) is None
    landing.close()


def test_the_quarantine_keeps_the_newest_and_stays_within_its_bounds(
    records: CentreRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "QUARANTINE_FILES", 5)
    monkeypatch.setattr(records_module, "QUARANTINE_BYTES", 100)
    folder = tmp_path / "zone/quarantine"
    paths = [records.quarantine("box-17", bytes([n]) * 10, NOW + n) for n in range(8)]
    assert sorted(path.read_bytes()[0] for path in folder.iterdir()) == [3, 4, 5, 6, 7]
    assert (tmp_path / "zone" / paths[-1]).read_bytes() == b"\7" * 10
    records.quarantine("box-17", b"x" * 75, NOW + 9)
    assert sorted(len(path.read_bytes()) for path in folder.iterdir()) == [10, 10, 75]
    records.quarantine("box-17", b"y" * 500, NOW + 10)  # larger than all of it: kept alone, a person may need it
    assert [path.read_bytes()[:1] for path in folder.iterdir()] == [b"y"]


def test_refused_pieces_of_one_moment_do_not_replace_each_other(
    records: CentreRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "QUARANTINE_FILES", 4)
    for number in range(9):
        records.quarantine("box-17", bytes([number]), NOW)
    kept = [path.read_bytes()[0] for path in sorted((tmp_path / "zone/quarantine").iterdir())]
    assert kept == [5, 6, 7, 8]


def test_status_lines_are_one_object_a_line_in_the_file_of_their_day(records: CentreRecords, tmp_path: Path) -> None:
    folder = tmp_path / "zone/status/0000"
    records.append_status(HELLO, STATUS, NOW)
    records.append_status(HELLO, replace(STATUS, clock_ok=0, verdict='"\n'), NOW + 1)
    lines = (folder / "2023-11-14.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "box": "box-17", "epoch": SOURCE.epoch, "received_ms": NOW, "durable": 1000, "unshipped": 10,
        "oldest_ms": NOW - 5, "disk_free": 1 << 30, "inflow": 200, "gaps": 3, "verdict": "clean",
        "software": "rocketbox 1", "now_ms": NOW - 7, "clock_ok": True,
        "state": "degraded", "conditions": ["disk_filling: disk 87% full"],
    }  # fmt: skip
    assert (len(lines), json.loads(lines[1])["verdict"], json.loads(lines[1])["clock_ok"]) == (2, '"\n', False)


def test_the_newest_thirty_days_of_status_stay(records: CentreRecords, tmp_path: Path) -> None:
    for day in range(STATUS_DAYS + 3):
        records.append_status(HELLO, STATUS, NOW + day * DAY)
    names = sorted(path.name for path in (tmp_path / "zone/status/0000").iterdir())
    assert names == [f"{day_of(NOW + day * DAY)}.jsonl" for day in range(3, STATUS_DAYS + 3)]


def test_one_box_does_not_push_the_refused_pieces_of_others_out_of_quarantine(tmp_path: Path) -> None:
    records = CentreRecords(tmp_path, 1)
    theirs = records.quarantine("box-2", b"theirs", NOW)
    for number in range(3 * QUARANTINE_FILES):
        newest = records.quarantine("box-1", b"%d" % number, NOW + number)
    kept = [path.name for path in (tmp_path / "quarantine").iterdir()]
    assert len(kept) == QUARANTINE_OF_BOX + 1
    assert (tmp_path / theirs).read_bytes() == b"theirs"
    assert (tmp_path / newest).exists()


def test_nothing_is_read_or_kept_where_another_folder_is_at_the_path_of_the_zone(
    records: CentreRecords, tmp_path: Path
) -> None:
    records.save("box-17", 1, ((7, 0),))
    (tmp_path / "zone").rename(tmp_path / "away")
    open_zone(tmp_path / "zone")
    for call in (lambda: records.load("box-17"), lambda: records.retire("box-17")):
        with pytest.raises(OSError, match="zone is no longer what it was at the start"):
            call()
    (tmp_path / "zone").rename(tmp_path / "other")
    (tmp_path / "away").rename(tmp_path / "zone")
    assert records.load("box-17").runs == {1: ((7, 0),)}
