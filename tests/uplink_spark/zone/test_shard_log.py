from pathlib import Path

import pytest

from tests.uplink_spark.zone.test_reader import land
from uplink_spark.centre.zone_files import landing as landing_module
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import ShardWriter
from uplink_spark.errors import LandingError
from uplink_spark.testing import MadeLanding
from uplink_spark.zone import rollup, shard_log
from uplink_spark.zone.files import LocalFiles, RemoteFiles
from uplink_spark.zone.manifest import encode_items, kept_path
from uplink_spark.zone.rollup import chain_of, rolled_folder
from uplink_spark.zone.shard_log import SegmentPlan, ShardLog


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifest files of 7 entries, rolled up 3 at a time."""
    monkeypatch.setattr(landing_module, "FILE_ENTRIES", 7)
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 3)


class CountedFiles(LocalFiles):
    """Notes which files were read and which folders were listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.seen: list[str] = []

    def read(self, path: str, at: int) -> bytes | None:
        data = super().read(path, at)
        if data is not None:
            self.seen.append(path.rpartition("/")[2].lstrip("0"))
        return data

    def names(self, folder: str) -> list[str]:
        self.seen.append(folder)
        return super().names(folder)


def seqs(log: ShardLog, start: int, end: int) -> list[int]:
    found = [entry.seq for entry in log.entries(start, end)]
    assert [seq for table in log.tables(start, end) for seq in table.seq.tolist()] == found
    return found


def test_entries_are_read_from_the_rolled_up_files_and_the_rest_from_the_manifest(landing: MadeLanding) -> None:
    land(landing, 20)
    assert chain_of(path.name for path in (landing.root / rolled_folder(0)).iterdir()) == [
        (at, at + 3) for at in range(0, 18, 3)
    ]
    files = CountedFiles(landing.root)
    log = ShardLog(files, 0)
    assert (log.refresh(), log.oldest, log.begins()) == (20, 0, 0)
    assert seqs(log, 0, 20) == list(range(20))
    assert [name for name in files.seen if name.endswith(".log")] == ["14.log"]
    assert seqs(log, 4, 19) == list(range(4, 19))
    assert log.name_of(5) == "seq 5: box-17 123456789abcdef log 485..582"
    assert log.name_of(20) is None
    land(landing, 5, 20 * 970)
    assert seqs(log, 0, log.refresh()) == list(range(25))


@pytest.mark.parametrize("damage", ["gone", "torn", "flipped"])
@pytest.mark.parametrize("which", [slice(1, 4), slice(-1, None)])  # the newest: its manifest file is known by then
def test_what_is_rolled_up_may_be_gone_or_damaged(landing: MadeLanding, damage: str, which: slice) -> None:
    land(landing, 20)
    log = ShardLog(LocalFiles(str(landing.root)), 0)
    assert log.refresh() == 20
    for path in sorted((landing.root / rolled_folder(0)).iterdir())[which]:
        if damage == "gone":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(data[:40] if damage == "torn" else data[:-9] + bytes((data[-9] ^ 1,)) + data[-8:])
    assert seqs(log, 0, 20) == list(range(20))
    assert seqs(ShardLog(LocalFiles(str(landing.root)), 0), 0, 20) == []  # nothing before its first look
    for n in range(20):
        assert log.seq_at_landed(1_700_000_001_000 + n) == n


def test_a_writer_rolls_up_what_an_earlier_one_left(landing: MadeLanding) -> None:
    land(landing, 20)
    for path in sorted((landing.root / rolled_folder(0)).iterdir())[-2:]:
        path.unlink()
    landing.close()
    writer = ShardWriter(landing.root, 0)
    writer.open(ShardCover())
    writer.close()
    chain = chain_of(path.name for path in (landing.root / rolled_folder(0)).iterdir())
    assert chain == [(0, 3), (3, 6), (6, 9), (9, 12), (14, 20)]  # at least the newest file
    log = ShardLog(LocalFiles(str(landing.root)), 0)
    assert seqs(log, 0, log.refresh()) == list(range(20))


class BucketFiles(CountedFiles):
    """As an object store: reading costs a request, objects are final."""

    read_ahead, final = 16, True


@pytest.mark.slow
def test_a_bucket_with_rolled_up_entries_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_module, "FILE_ENTRIES", 1)  # an object a commit
    landing = MadeLanding(tmp_path / "zone")
    end = land(landing, 20)
    files = BucketFiles(landing.root)
    log = ShardLog(files, 0)
    assert log.refresh() == 20
    assert files.seen == [rolled_folder(0), "15-00000000000000000018.cols", "18.log", "19.log"]
    assert seqs(log, 0, 20) == list(range(20))
    before = len(files.seen)
    assert (log.refresh(), seqs(log, 12, 20), len(files.seen)) == (20, list(range(12, 20)), before)
    land(landing, 1, end)
    assert (log.refresh(), files.seen[before:]) == (21, ["20.log"])
    (landing.root / kept_path(0)).parent.mkdir()
    (landing.root / kept_path(0)).write_text('{"seq": 4}')
    sorted((landing.root / rolled_folder(0)).iterdir())[0].unlink()
    assert seqs(ShardLogOpened(landing.root).log, 4, 21) == list(range(4, 21))
    sorted((landing.root / rolled_folder(0)).iterdir())[0].unlink()  # now something is missing above seq 4
    opened = ShardLogOpened(landing.root)
    assert "manifest/0000" in opened.files.seen
    assert seqs(opened.log, 4, 21) == list(range(4, 21))


@pytest.mark.slow
def test_newest_rolled_up_entries_of_a_bucket_may_be_lost_after_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_module, "FILE_ENTRIES", 1)
    monkeypatch.setattr(shard_log, "CACHED_ENTRIES", 3)  # what was read at first is not kept
    landing = MadeLanding(tmp_path / "zone")
    land(landing, 20)
    opened = ShardLogOpened(landing.root)
    assert seqs(opened.log, 0, 6) == list(range(6))
    sorted((landing.root / rolled_folder(0)).iterdir())[-1].unlink()
    assert seqs(opened.log, 0, 20) == list(range(20))


@pytest.mark.slow
def test_what_a_reader_has_listed_may_be_replaced_by_a_file_with_more_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_module, "FILE_ENTRIES", 1)
    landing = MadeLanding(tmp_path / "zone")
    land(landing, 20)
    opened, folder = ShardLogOpened(landing.root), landing.root / rolled_folder(0)
    monkeypatch.setattr(shard_log, "CACHED_ENTRIES", 1)  # what was read at first is not kept
    assert seqs(opened.log, 0, 3) == [0, 1, 2]
    entries = list(ShardLogOpened(landing.root).log.entries(15, 20))
    (folder / f"{15:020d}-{20:020d}.cols").write_bytes(rollup.encode_rolled(15, encode_items(entries)))
    (folder / f"{15:020d}-{18:020d}.cols").unlink()
    before = len(opened.files.seen)
    assert seqs(opened.log, 14, 20) == list(range(14, 20))
    assert "manifest/0000" not in opened.files.seen[before:]
    assert opened.log.refresh() == 20


class ShardLogOpened:
    """A log of a bucket after its first look."""

    def __init__(self, root: Path) -> None:
        self.files = BucketFiles(root)
        self.log = ShardLog(self.files, 0)
        self.log.refresh()


def test_entries_that_retention_removed_are_an_error(landing: MadeLanding) -> None:
    land(landing, 20)
    log = ShardLog(LocalFiles(str(landing.root)), 0)
    log.refresh()
    for path in (*(landing.root / rolled_folder(0)).iterdir(), *(landing.root / "manifest/0000").glob("*.log")):
        path.unlink()
    with pytest.raises(LandingError, match="retention removed it while this reader still needed it"):
        seqs(log, 0, 20)


@pytest.mark.slow
def test_files_through_pyarrow_are_read_ahead(landing: MadeLanding) -> None:
    land(landing, 20)
    log = ShardLog(RemoteFiles(f"file://{landing.root}"), 0)
    assert seqs(log, 0, log.refresh()) == list(range(20))


def test_a_plan_says_which_file_a_seq_is_in() -> None:
    plan = SegmentPlan([(3, 6), (6, 10), (14, 15)], [0, 7, 12])
    sources = [(start, plan.source_of(start)) for start in plan.starts]
    assert sources == [
        (0, (0, 0)),
        (3, (3, 6)),
        (6, (6, 10)),
        (10, (7, 0)),
        (12, (12, 0)),
        (14, (14, 15)),
        (15, (12, 0)),
    ]
    assert [plan.stop_of(seq) for seq in (0, 2, 9, 15, 99)] == [3, 3, 10, None, None]
    assert [plan.begin_of(key) for key in ((0, 0), (7, 0), (12, 0), (9, 0))] == [0, 10, 12, 9]
    assert plan.sources(4, 11, 16) == [(3, 6), (6, 10), (7, 0)]
    assert SegmentPlan([], []).starts == []
    assert SegmentPlan([(0, 4)], []).starts == [0]
