import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from uplink_spark.centre.zone_files import landing as landing_module
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece
from uplink_spark.centre.zone_files.object_store import ObjectStore
from uplink_spark.centre.zone_files.objects import ObjectShardWriter, open_object_zone
from uplink_spark.errors import LandingError
from uplink_spark.spark.packs import read_batches, ref_of
from uplink_spark.spark.rows import EVERYTHING
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import MessageRows
from uplink_spark.spark_source import StreamReader
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone import shard_log
from uplink_spark.zone.files import LocalFiles, RemoteFiles
from uplink_spark.zone.reader import ZoneReader, status_paths
from uplink_spark.zone.shard_log import ShardLog


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifest files of four entries instead of 65,536."""
    monkeypatch.setattr(landing_module, "FILE_ENTRIES", 4)


def land(landing: MadeLanding, count: int, start: int = 0, landed_ms: int = 1_700_000_001_000) -> int:
    for n in range(count):
        piece = log_piece([MadeRecord()], start)
        landing.land(piece, now_ms=landed_ms + n)
        start = piece[0].end
    return start


def seqs(zone: ZoneReader, start: int, end: int) -> list[int]:
    return [entry.seq for entry in zone.entries({0: start}, {0: end})]


@pytest.mark.usefixtures("small_files")
def test_entries_are_followed_from_file_to_file_without_listing_again(landing: MadeLanding) -> None:
    zone = ZoneReader(str(landing.root))
    assert zone.ends() == {0: 0}
    end = land(landing, 3)
    assert zone.ends() == {0: 3}
    land(landing, 20, end)
    assert zone.ends() == {0: 23}
    assert len(list((landing.root / "manifest/0000").glob("*.log"))) == 6
    assert seqs(zone, 0, 23) == list(range(23))  # older files are read again if the cache let them go
    assert seqs(zone, 5, 9) == [5, 6, 7, 8]
    assert seqs(zone, 22, 23) == [22]
    assert seqs(ZoneReader(str(landing.root)), 0, 0) == []


class CountedFiles(RemoteFiles):
    """Counts the reads of manifest files, and how many ran at the same time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads, self.at_once, self.together, self._lock = 0, 0, False, threading.Barrier(8)

    def read(self, path: str, at: int) -> bytes | None:
        if path.startswith("manifest/"):
            self.reads += 1
            if self.together and self.at_once < 8:
                with suppress(threading.BrokenBarrierError):
                    self._lock.wait(5)
                    self.at_once = 8
        return super().read(path, at)


@pytest.mark.usefixtures("small_files")
def test_small_files_behind_requests_are_read_together_and_once(landing: MadeLanding) -> None:
    land(landing, 40)
    zone = ZoneReader(str(landing.root))
    files = CountedFiles(f"file://{landing.root}")
    (log,) = zone.shards = [ShardLog(files, 0)]
    assert zone.ends() == {0: 40}
    files.reads, files.together = 1, True
    assert seqs(zone, 0, 40) == list(range(40))
    assert (files.reads, files.at_once) == (10, 8)  # nine files beside the newest
    assert [entry.seq for entry in log.entries(0, 40)] == list(range(40))
    assert files.reads == 10


@pytest.mark.usefixtures("small_files")
def test_what_is_kept_is_bounded_by_entries(landing: MadeLanding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_log, "CACHED_ENTRIES", 10)
    land(landing, 30)
    zone = ZoneReader(str(landing.root))
    zone.ends()
    assert seqs(zone, 0, 30) == list(range(30))
    assert sum(len(file) for file in zone.shards[0]._cache.values()) <= 10


@pytest.mark.usefixtures("small_files")
def test_a_position_by_landed_time_is_found_by_bisection_over_files(landing: MadeLanding) -> None:
    land(landing, 18, landed_ms=5_000)
    zone = ZoneReader(str(landing.root))
    for n in range(18):
        assert zone.at_landed(5_000 + n) == {0: n}
    assert zone.at_landed(0) == {0: 0}
    assert zone.at_landed(9_999) == {0: 18}


@pytest.mark.usefixtures("small_files")
def test_what_retention_removed_is_named_with_what_to_do(landing: MadeLanding) -> None:
    land(landing, 18)
    zone = ZoneReader(str(landing.root))
    zone.ends()
    sorted((landing.root / "manifest/0000").glob("*.log"))[0].unlink()
    assert ZoneReader(str(landing.root)).begins() == {0: 4}
    with pytest.raises(LandingError, match="retention removed it while this reader still needed it"):
        seqs(zone, 0, 18)


def test_a_zone_that_is_not_there_or_not_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(LandingError, match="it has no file LANDING"):
        ZoneReader(str(tmp_path))
    url = str(tmp_path / "lake?endpoint_override=h:1&scheme=http")
    with pytest.raises(LandingError) as caught:
        ZoneReader(url)
    assert f"--landing '{url}' --listen" in str(caught.value), "a shell takes it as it is told"
    (tmp_path / "LANDING").write_bytes(b"\x00")
    with pytest.raises(LandingError, match=r"landing zone .*LANDING"):
        ZoneReader(str(tmp_path))
    with pytest.raises(LandingError, match="use a path, file:, s3:"):
        ZoneReader("gopher://x/y")


def test_a_zone_may_be_named_by_a_url(landing: MadeLanding) -> None:
    land(landing, 2)
    assert ZoneReader(f"file://{landing.root}").ends() == {0: 2}


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    moto_server = pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.mark.slow
def test_a_zone_in_an_object_store_is_read_object_by_object(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    boto3 = import_module("boto3")
    boto3.client("s3", endpoint_url=f"http://{s3_endpoint}", region_name="us-east-1").create_bucket(Bucket="fleet")
    url = f"s3://fleet/zone?endpoint_override={s3_endpoint}&scheme=http&region=us-east-1"
    store = ObjectStore(url)
    open_object_zone(store, 1)
    writer = ObjectShardWriter(store, 0)
    writer.open(ShardCover())
    zone = ZoneReader(url)
    assert zone.ends() == {0: 0}
    at = 0
    for n in range(4):  # one manifest object each
        header, container = log_piece([MadeRecord(body=b"%d" % n)], at)
        writer.commit([NewPiece(header, container, ((at, header.end),))], 5_000 + n)
        at = header.end
        assert zone.ends() == {0: n + 1}
    fresh = ZoneReader(url)
    refs = [ref_of(entry, 0) for entry in fresh.entries({0: 1}, fresh.ends())]
    (batch, *more) = read_batches(fresh.files, refs, EVERYTHING)
    assert [body for part in (batch, *more) for body in part["body"].to_pylist()] == [b"1", b"2", b"3"]
    assert fresh.at_landed(5_002) == {0: 2}
    parsed = parse_options({"path": url})
    with pytest.raises(LandingError, match=r"needs seq 9 of shard 0, s3://fleet/zone.* ends at 4"):
        StreamReader(parsed, MessageRows(parsed)).partitions({"0": 0}, {"0": 9})


def test_of_status_no_day_is_listed_that_is_not_asked_for(tmp_path: Path) -> None:
    days = [f"2026-11-{day:02d}" for day in range(1, 31)]
    for day in days:
        (tmp_path / "status/0000" / day).mkdir(parents=True)
        for minute in (1, 2):
            (tmp_path / f"status/0000/{day}/{day}-{minute:014d}.jsonl").touch()
    (tmp_path / "status/0000/2026-10-31-00000000000007.jsonl").touch()  # as earlier gateways named them
    (tmp_path / "status/0000/2026-11-30.jsonl.tmp").touch()

    folders = list[str]()

    class Listed(LocalFiles):
        def names(self, folder: str) -> list[str]:
            folders.append(folder)
            return super().names(folder)

    files = Listed(str(tmp_path))
    last, before = days[-1], days[-2]
    assert status_paths(files, 0, newest=2) == [f"{last}/{last}-{minute:014d}.jsonl" for minute in (1, 2)]
    assert folders == ["status/0000", f"status/0000/{last}"]
    found = status_paths(files, 0, since=f"{before}-{2:014d}")
    assert [path.rpartition("-")[2] for path in found] == [f"{minute:014d}.jsonl" for minute in (2, 1, 2)]
    assert folders[2:] == ["status/0000", f"status/0000/{last}", f"status/0000/{before}"]
    assert status_paths(files, 0)[0] == "2026-10-31-00000000000007.jsonl"
    assert len(status_paths(files, 0)) == 61
    for number in range(3):  # of an earlier gateway on the day of its update
        (tmp_path / f"status/0000/{last}-0000000000000{number}.jsonl").touch()
    assert status_paths(files, 0, newest=1) == [f"{last}/{last}-{2:014d}.jsonl"]
    (tmp_path / "status/0000/2026-12-01.jsonl").touch()
    assert status_paths(files, 0, newest=2)[-1] == "2026-12-01.jsonl"
