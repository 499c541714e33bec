"""Retention at the centre: what goes, what is pinned, and what readers are told."""

import errno
import json
from pathlib import Path

import pytest

from uplink_spark.centre.fleet import check
from uplink_spark.centre.zone_files import retention
from uplink_spark.centre.zone_files.keeping import DiskKeeping, open_keeping
from uplink_spark.errors import LandingError
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import MessageRows
from uplink_spark.spark_source import BatchReader, StreamReader
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone.manifest import DAY_MS
from uplink_spark.zone.reader import ZoneReader
from uplink_spark.zone.rollup import rolled_path

T0 = 1_700_000_000_000


def land(landing: MadeLanding, days: int) -> None:
    """Land one record a day, its body the day's number; the newest landed at T0 + (days - 1) days."""
    at = 0
    for day in range(days):
        piece = log_piece([MadeRecord(body=b"%d" % day)], at)
        landing.land(piece, now_ms=T0 + day * DAY_MS)
        at = piece[0].end


def clean(root: Path, keep_days: int, today: int) -> retention.Removal:
    (removal,) = retention.clean(open_keeping(str(root)), [0], keep_days, lambda: T0 + today * DAY_MS)
    return removal


def read(root: Path, **options: str) -> list[bytes]:
    parsed = parse_options({"path": str(root), **options})
    reader = BatchReader(parsed, MessageRows(parsed))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [body for batch in batches for body in batch.column("body").to_pylist()]


def consumer(root: Path, name: str, seq: int, today: int) -> None:
    body = {"v": 1, "consumer": name, "offsets": {"0": seq}, "updated_ms": T0 + today * DAY_MS}
    ZoneReader(str(root)).files.replace(f"consumers/{name}.json", json.dumps(body).encode())


@pytest.mark.slow
def test_earliest_is_what_retention_has_left_and_the_zone_is_sound(landing: MadeLanding) -> None:
    land(landing, 6)
    assert read(landing.root) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    clean(landing.root, 3, today=6)  # days 3, 4 and 5 are within three days of day 6
    assert read(landing.root) == [b"3", b"4", b"5"]
    assert read(landing.root, startingTimestamp=str(T0 + 4 * DAY_MS)) == [b"4", b"5"]
    (found,) = check(ZoneReader(str(landing.root)), deep=True)
    assert (found.findings, found.orphans, found.entries) == ([], [], 6)


def test_a_file_of_somebody_elses_among_the_days_stops_nothing(landing: MadeLanding) -> None:
    land(landing, 4)
    (landing.root / "pack/0000/.note").touch()
    assert len(clean(landing.root, 2, today=4).packs) == 2
    (found,) = check(ZoneReader(str(landing.root)), deep=True)
    assert (found.findings, found.orphans) == ([], [])


def test_who_asks_for_less_is_told_or_goes_on_from_the_oldest(landing: MadeLanding) -> None:
    land(landing, 4)
    clean(landing.root, 2, today=4)
    old = {"startingOffsets": '{"0": 1}'}
    with pytest.raises(LandingError, match="begins at seq 2, this query needs 1: retention at the centre removed"):
        read(landing.root, **old)
    assert read(landing.root, **old, failOnDataLoss="false") == [b"2", b"3"]
    parsed = parse_options({"path": str(landing.root)})
    stream = StreamReader(parsed, MessageRows(parsed))
    with pytest.raises(LandingError, match="begins at seq 2, this query needs 0"):
        stream.latestOffset({"0": 0}, stream.getDefaultReadLimit())
    assert stream.initialOffset()["0"] == 2


def test_a_missing_pack_that_retention_did_not_remove_is_damage(landing: MadeLanding) -> None:
    land(landing, 3)
    clean(landing.root, 2, today=3)
    next(landing.root.glob("pack/*/*/*00000001.pack")).unlink()
    with pytest.raises(LandingError, match=r"seq 0:1.*check --deep"):
        read(landing.root)


def test_consumers_pin_what_they_have_not_read_and_silent_ones_do_not(landing: MadeLanding) -> None:
    land(landing, 6)
    consumer(landing.root, "bronze", 2, today=6)
    consumer(landing.root, "gone", 0, today=-25)
    removal = clean(landing.root, 1, today=6)
    assert (removal.held_by, removal.silent, removal.kept) == ("bronze", ("gone",), 2)
    assert read(landing.root) == [b"2", b"3", b"4", b"5"]
    consumer(landing.root, "bronze", 6, today=6)
    assert clean(landing.root, 1, today=6).kept == 5
    consumer(landing.root, "new", 0, today=6)  # what has gone does not come back
    assert clean(landing.root, 1, today=6).kept == 5
    assert read(landing.root) == [b"5"]


def test_killed_between_mark_and_files_readers_begin_at_the_mark_and_the_next_pass_ends_it(
    landing: MadeLanding, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, 4)

    def dies(_path: Path, **_: bool) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dies)
        with pytest.raises(SystemExit):
            clean(landing.root, 2, today=4)
    assert len(list(landing.root.glob("pack/*/*/*.pack"))) == 4
    assert read(landing.root) == [b"2", b"3"]
    clean(landing.root, 2, today=4)
    assert len(list(landing.root.glob("pack/*/*/*.pack"))) == 2
    assert read(landing.root) == [b"2", b"3"]


def test_what_a_failed_commit_left_goes_with_its_day_once_nobody_may_want_its_seq(landing: MadeLanding) -> None:
    land(landing, 4)
    days = sorted(path.name for path in landing.root.glob("pack/0000/*"))
    orphans = [landing.root / f"pack/0000/{days[0]}/{seq:020d}.pack" for seq in (1, 2, 9)]  # before midnight, that is
    for orphan in orphans:
        orphan.write_bytes(b"of a commit that failed; its seq was given to one of the next day")
    consumer(landing.root, "bronze", 2, today=4)
    clean(landing.root, 2, today=4)
    assert [orphan.exists() for orphan in orphans] == [False, True, True]
    consumer(landing.root, "bronze", 4, today=4)
    clean(landing.root, 0, today=5)
    assert [orphan.exists() for orphan in orphans] == [False, False, True]  # 9 may be a commit that is under way
    assert list(landing.root.glob("pack/*/*/*.pack")) == [orphans[2]]


class FullDisk(DiskKeeping):
    """No room for a new file before another one has gone."""

    full = True

    def replace(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, data)

    def delete(self, path: str) -> None:
        super().delete(path)
        self.full = False


def test_on_a_full_disk_rolled_up_entries_of_packs_that_go_make_room_for_the_mark(landing: MadeLanding) -> None:
    land(landing, 4)
    stays, goes = landing.root / rolled_path(0, 2, 3), landing.root / rolled_path(0, 0, 2)
    goes.parent.mkdir()
    for path in (stays, goes):
        path.write_bytes(b"derived")
    retention.clean(FullDisk(str(landing.root)), [0], 2, lambda: T0 + 4 * DAY_MS)
    assert (stays.exists(), goes.exists()) == (True, False)
    assert read(landing.root) == [b"2", b"3"]
    stays.unlink()
    with pytest.raises(OSError, match="No space left"):  # nothing is left to make room
        retention.clean(FullDisk(str(landing.root)), [0], 0, lambda: T0 + 5 * DAY_MS)
    assert read(landing.root) == [b"2", b"3"]
