"""The one writer of a shard where the disk fails: at every byte of a commit, and while it goes on to the next file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from uplink_spark.centre.zone_files import landing
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece, ShardWriter, open_zone
from uplink_spark.errors import LandingError
from uplink_spark.testing import MadeRecord, encode_log, files_end_at, landed_entries, landed_log, raw_piece
from uplink_spark.wire.durable import sync_folder
from uplink_spark.zone.manifest import LANDING_NAME, ManifestEntry, encode_mark, manifest_path, pack_path

NOW = 1_700_000_000_000
SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(60)])


def piece(number: int) -> NewPiece:
    header, container = raw_piece(RAW[number * SIZE :][:SIZE], number * SIZE, codec="zlib")
    return NewPiece(header, container, ((header.start, header.end),))


class Shard:
    """A writer and the cover it shows its entries to."""

    def __init__(self, root: Path) -> None:
        self.root, self.cover, self.writer = root, ShardCover(), ShardWriter(root, 0)
        open_zone(root)
        self.writer.open(self.cover)

    def land(self, *numbers: int) -> list[int]:
        entries = self.writer.commit([piece(number) for number in numbers], NOW)
        for entry in entries:
            self.cover.note(entry)
        return [entry.seq for entry in entries]

    @property
    def file(self) -> Path:
        return self.root / manifest_path(0, self.writer.first_seq)

    def held(self) -> list[tuple[int, int]]:
        epochs = self.cover.boxes["box-17"].epochs
        return [part for cover in epochs.values() for part in cover.data]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    made = Shard(tmp_path / "zone")
    yield made
    made.writer.close()


def reopened(shard: Shard) -> Shard:
    shard.writer.close()
    return Shard(shard.root)


def test_a_disk_that_is_full_at_any_byte_of_the_manifest_leaves_nothing_of_the_commit(shard: Shard) -> None:
    for number in range(8):  # the manifest becomes longer than the pack of one piece
        shard.land(number)
    before = shard.file.read_bytes()
    shard.land(8)
    grown = shard.file.stat().st_size - len(before)
    expected = shard.writer.next_seq
    assert len(piece(9).container) < len(before)
    for short in range(0, grown, 5):
        length = shard.file.stat().st_size
        with files_end_at(length + short), pytest.raises(OSError, match="too large"):
            shard.land(9)
        assert shard.file.stat().st_size == length
        assert shard.writer.next_seq == expected
    assert shard.land(9) == [expected]
    again = reopened(shard)
    assert again.held() == [(0, 10 * SIZE)]
    assert sorted(landed_log(shard.root, "box-17")) == [n * SIZE for n in range(10)]
    again.writer.close()


def test_a_mark_that_does_not_fit_takes_its_entries_back_so_that_a_repeat_lands_once(shard: Shard) -> None:
    for number in range(8):
        shard.land(number)
    size = shard.file.stat().st_size
    shard.land(8)
    entry_bytes = shard.file.stat().st_size - size
    length = shard.file.stat().st_size
    with files_end_at(length + entry_bytes - len(encode_mark(0)) // 2), pytest.raises(OSError, match="too large"):
        shard.land(9)
    assert shard.land(9, 10) == [9, 10]
    again = reopened(shard)
    assert again.writer.next_seq == 11
    assert [entry.seq for entry in landed_entries(shard.root, "box-17")] == list(range(11))
    again.writer.close()


def test_entries_taken_back_are_gone_from_the_disk_before_their_pack_is_replaced(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        shard.land(number)
    done, cut, sync = list[tuple[str, int]](), os.ftruncate, os.fsync

    def noted_cut(fd: int, length: int) -> None:
        done.append(("cut", fd))
        cut(fd, length)

    def noted_sync(fd: int) -> None:
        done.append(("sync", fd))
        sync(fd)

    monkeypatch.setattr(os, "ftruncate", noted_cut)
    monkeypatch.setattr(os, "fsync", noted_sync)
    with files_end_at(shard.file.stat().st_size + 10), pytest.raises(OSError, match="too large"):
        shard.land(8)
    assert done[-2:] == [("cut", done[-1][1]), ("sync", done[-1][1])]


def test_a_pack_that_does_not_fit_gives_back_the_room_it_took(shard: Shard) -> None:
    shard.land(0)
    with files_end_at(10), pytest.raises(OSError, match="too large"):
        shard.land(1)
    assert not list(shard.root.rglob("*.tmp"))
    assert shard.land(1) == [1]


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_sync_that_fails_anywhere_in_a_commit_leaves_nothing_of_it_and_a_repeat_lands_once(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    shard.land(0)
    real, left = getattr(os, call), [0]

    def failing(fd: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, call, failing)
    failures, number = 0, 1
    while number == 1 + failures:
        left[0], before = failures + 1, shard.file.read_bytes()
        try:
            shard.land(number)
        except OSError:
            failures += 1
            assert (shard.file.read_bytes(), shard.writer.next_seq) == (before, number)
            left[0] = 0
            assert shard.land(number) == [number]
        number += 1
    assert failures == {"fsync": 2, "fdatasync": 1}[call]  # the pack and its folder; the manifest
    again = reopened(shard)
    assert again.held() == [(0, number * SIZE)]
    assert sorted(landed_log(shard.root, "box-17")) == [n * SIZE for n in range(number)]
    again.writer.close()


@pytest.mark.parametrize("obstacle", ["manifest", "state"])
def test_a_next_file_that_cannot_be_made_is_tried_again_and_costs_no_descriptor(
    shard: Shard, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 3)
    for number in range(3):
        shard.land(number)
    path = shard.root / manifest_path(0, 3, "log" if obstacle == "manifest" else "state")
    path.mkdir()  # nothing can be opened or renamed there
    descriptors = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            shard.land(3)
        others = os.open(shard.root, os.O_RDONLY)  # would get the number of a descriptor that was closed too early
        with pytest.raises(OSError, match="directory"):
            shard.land(3)
        os.close(others)  # still ours
    assert set(os.listdir("/proc/self/fd")) == descriptors
    path.rmdir()
    assert shard.land(3) == [3]
    again = reopened(shard)
    assert again.held() == [(0, 4 * SIZE)]
    assert sorted(landed_log(shard.root, "box-17")) == [n * SIZE for n in range(4)]
    again.writer.close()


def test_no_entry_goes_into_a_next_file_whose_name_is_not_durable(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 2)
    shard.land(0)
    shard.land(1)
    manifest = shard.file.parent
    failing = [True]

    def fails(path: Path) -> None:
        if path == manifest and failing[0] and (manifest / f"{2:020d}.log").exists():
            raise OSError(5, "Input/output error")
        sync_folder(path)

    monkeypatch.setattr("uplink_spark.centre.zone_files.landing.sync_folder", fails)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            shard.land(2)
    assert shard.writer.first_seq == 0
    failing[0] = False
    assert shard.land(2) == [2]
    assert sorted(landed_log(shard.root, "box-17")) == [0, SIZE, 2 * SIZE]


def test_a_head_cut_short_by_a_power_cut_is_written_again(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 2)
    for number in range(3):
        shard.land(number)
    path, whole = shard.file, shard.file.read_bytes()
    for length in (0, 1, 11):
        shard.writer.close()
        path.write_bytes(whole[:length])
        shard = Shard(shard.root)
        assert (shard.writer.next_seq, shard.held()) == (3, [(0, 3 * SIZE)])  # the pack is there
    assert shard.land(3) == [3]
    shard.writer.close()


def test_packs_above_the_last_entry_are_removed_at_the_start_and_no_others(shard: Shard) -> None:
    shard.land(0)
    kept = shard.root / pack_path(0, NOW, 0)
    orphan, half = kept.with_name(f"{1:020d}.pack"), kept.with_name(kept.name + ".tmp")
    orphan.write_bytes(b"of a commit that was not finished")
    half.write_bytes(b"half")
    again = reopened(shard)
    assert sorted(kept.parent.iterdir()) == [kept]
    again.writer.close()


def test_the_clock_that_goes_back_does_not_take_landed_time_back(shard: Shard) -> None:
    shard.land(0)
    assert shard.writer.commit([piece(1)], NOW - 86_400_000)[0].landed_ms == NOW
    again = reopened(shard)
    assert again.writer.commit([piece(2)], 0)[0].landed_ms == NOW
    again.writer.close()


def test_a_second_writer_is_told_who_holds_the_shard(shard: Shard, tmp_path: Path) -> None:
    child = os.fork()  # a lock of fcntl does not keep its own process out
    if not child:
        try:
            ShardWriter(shard.root, 0).open(ShardCover())
        except LandingError as error:
            os._exit(0 if f"held by pid {os.getppid()} on" in str(error) and "stop that gateway" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_entries_below_the_oldest_file_need_a_state_that_is_whole(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 2)
    for number in range(3):
        shard.land(number)
    shard.writer.close()
    state = shard.root / manifest_path(0, 2, "state")
    whole = state.read_bytes()
    state.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (shard.root / manifest_path(0, 0)).unlink()
    with pytest.raises(
        LandingError, match=r"entries below 2 are missing and no state is intact; restore manifest/0000/0+2"
    ):
        Shard(shard.root)
    state.write_bytes(whole)
    again = Shard(shard.root)
    assert again.held() == [(0, 3 * SIZE)]
    again.writer.close()


def test_a_manifest_that_is_damaged_above_its_tail_is_named(shard: Shard) -> None:
    shard.land(0)
    whole = shard.file.read_bytes()
    shard.writer.close()
    shard.file.write_bytes(b"RBM2" + whole[4:])
    with pytest.raises(LandingError, match=r"manifest/0000/0+\.log: the head says .* restore it from a copy"):
        Shard(shard.root)


def test_a_zone_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LandingError, match="is it mounted and writable"):
        open_zone(tmp_path / "file")
    zone = tmp_path / "zone"
    made = open_zone(zone, shards=4)
    assert open_zone(zone, shards=9) == made  # what the first start wrote stays
    (zone / LANDING_NAME).write_bytes(b"not a zone")
    with pytest.raises(LandingError, match=str(zone)):
        open_zone(zone)


def packs(root: Path) -> list[Path]:
    return sorted(root.glob("pack/**/*.pack"))


@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("part", ["length", "sum", "body"])
def test_a_flipped_bit_in_an_entry_costs_no_receipted_pack(shard: Shard, entry: int, part: str) -> None:
    ends = [len(shard.file.read_bytes())]
    for number in range(3):
        shard.land(number)
        ends.append(len(shard.file.read_bytes()))
    shard.writer.close()
    whole, kept = bytearray(shard.file.read_bytes()), packs(shard.root)
    damaged = bytearray(whole)
    damaged[ends[entry] + {"length": 2, "sum": 5, "body": 20}[part]] ^= 4
    shard.file.write_bytes(damaged)
    with pytest.raises(LandingError, match=rf"from seq {entry} on .* restore it from a copy"):
        Shard(shard.root)
    assert shard.file.read_bytes() == damaged
    assert packs(shard.root) == kept
    shard.file.write_bytes(whole)
    again = Shard(shard.root)
    assert again.held() == [(0, 3 * SIZE)]
    again.writer.close()


def told(root: Path) -> list[ManifestEntry]:
    """What readers are told, but for when it landed."""
    return [replace(entry, landed_ms=0) for entry in landed_entries(root, "box-17")]


@pytest.mark.parametrize("left", [0, 100, 300])
def test_a_manifest_that_lost_its_end_gets_it_again_from_its_packs_so_that_no_seq_means_two_things(
    shard: Shard, left: int
) -> None:
    shard.land(0)
    shard.land(1, 2)  # as readers have seen it and boxes have receipts of it
    shard.land(4)
    known = told(shard.root)
    shard.writer.close()
    os.truncate(shard.file, left)
    again = Shard(shard.root)
    assert told(shard.root) == known
    assert again.land(3) == [4]
    again.writer.close()
    assert Shard(shard.root).held() == [(0, 5 * SIZE)]


def test_a_manifest_whose_packs_are_gone_too_is_named_and_no_receipted_pack_goes(shard: Shard) -> None:
    for number in range(3):
        shard.land(number)
    shard.writer.close()
    packs(shard.root)[1].unlink()
    kept = packs(shard.root)
    os.truncate(shard.file, 0)
    with pytest.raises(LandingError, match=r"0+2\.pack .* ends at seq 1; restore manifest/0000/0+\.log"):
        Shard(shard.root)
    assert packs(shard.root) == kept


def test_a_pack_of_a_commit_that_did_not_end_makes_room_where_its_entries_find_none(shard: Shard) -> None:
    shard.land(0)
    sure = shard.file.read_bytes()
    shard.land(1)
    shard.writer.close()
    shard.file.write_bytes(sure)
    with files_end_at(len(sure)):
        again = Shard(shard.root)
        assert (again.held(), len(packs(shard.root))) == ([(0, SIZE)], 1)
    assert again.land(1) == [1]
    again.writer.close()


def test_a_start_needs_no_pack_that_retention_removed_or_a_disk_damaged(shard: Shard) -> None:
    shard.land(0)
    shard.writer.close()
    (pack,) = packs(shard.root)
    pack.write_bytes(pack.read_bytes()[:-1])
    Shard(shard.root).writer.close()
    pack.unlink()
    again = Shard(shard.root)
    assert again.held() == [(0, SIZE)]
    again.writer.close()


def test_a_file_of_the_manifest_that_lost_its_end_below_the_newest_is_named(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 2)
    for number in range(3):
        shard.land(number)
    shard.writer.close()
    (shard.root / manifest_path(0, 2, "state")).unlink()  # so that the older file counts
    first = shard.root / manifest_path(0, 0)
    os.truncate(first, first.stat().st_size - 60)
    with pytest.raises(LandingError, match=r"manifest/0000/0+\.log: ends at seq 1, the next file begins at 2; restore"):
        Shard(shard.root)


@pytest.mark.slow
def test_every_torn_tail_of_a_commit_is_made_whole_from_its_pack(shard: Shard) -> None:
    shard.land(0)
    sure = shard.file.read_bytes()
    shard.land(1, 2)
    known = told(shard.root)
    shard.writer.close()
    written = shard.file.read_bytes()[: -len(encode_mark(3))]
    for length in range(len(sure), len(written)):
        for torn in (written[:length], sure + bytes(length - len(sure)) + written[length:]):
            shard.file.write_bytes(torn)
            again = Shard(shard.root)
            assert again.held() == [(0, 3 * SIZE)]
            again.writer.close()
            assert told(shard.root) == known


def test_a_writer_whose_lock_the_disk_gave_away_writes_nothing_more(shard: Shard) -> None:
    shard.land(0)
    other = Shard(shard.root)  # a lock of fcntl does not keep its own process out, as a server that forgot it
    other.land(1)
    before = landed_log(shard.root, "box-17")
    with pytest.raises(LandingError, match="has given the lock to another gateway"):
        shard.land(2)
    assert landed_log(shard.root, "box-17") == before
    assert other.land(2) == [2]
    other.writer.close()
    assert Shard(shard.root).writer.next_seq == 3


def test_a_zone_at_whose_path_another_folder_is_gets_nothing_until_it_is_back(shard: Shard, tmp_path: Path) -> None:
    shard.land(0)
    shard.root.rename(tmp_path / "away")
    with pytest.raises(OSError, match=r"lock is no longer what it was at the start: .*put it back and"):
        shard.land(1)
    other = Shard(shard.root)
    with pytest.raises(OSError, match="no longer what it was"):
        shard.land(1)
    other.writer.close()
    assert not list(shard.root.glob("pack/*/*/*"))
    shard.root.rename(tmp_path / "other")
    (tmp_path / "away").rename(shard.root)
    assert shard.land(1) == [1]
