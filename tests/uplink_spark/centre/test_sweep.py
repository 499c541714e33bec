"""Sweeping a made-up stick where no gateway runs: all of it or none of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from uplink_spark.centre import sweep as sweep_module
from uplink_spark.centre.sweep import SweepResult, sweep_box
from uplink_spark.centre.zone_files.landing import open_zone
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.errors import LandingError
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, landed_log, raw_piece
from uplink_spark.wire.identity import Run
from uplink_spark.wire.stick_files import INDEX, RECEIPTS, StickFile, StickIndex, StickRefused

NOW = 1_700_000_000_000
SECRET = bytes(range(32))
SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(12)])


def piece(first: int, last: int) -> bytes:
    return raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE, codec="zlib")[1]


def stick(tmp_path: Path, *pieces: bytes, runs: tuple[Run, ...] = ((7, 0),), durable: int = len(RAW)) -> Path:
    """Write DIR/box-17 with these pieces under a good index."""
    folder = tmp_path / "stick/box-17"
    (folder / "e").mkdir(parents=True, exist_ok=True)
    files = []
    for number, container in enumerate(pieces):
        name = f"e/{number}.piece"
        (folder / name).write_bytes(container)
        files.append(StickFile(name, len(container), hashlib.sha256(container).digest()))
    index = StickIndex("box-17", ((SOURCE.epoch, 0),), runs, durable, tuple(files))
    (folder / INDEX).write_bytes(index.encode(SECRET))
    return folder


def sweep(tmp_path: Path, folder: Path, secret: bytes | None = SECRET) -> SweepResult:
    open_zone(tmp_path / "zone")
    return sweep_box(tmp_path / "zone", folder, secret=secret, now_ms=lambda: NOW)


def landed(tmp_path: Path) -> list[int]:
    return [at // SIZE for at in sorted(landed_log(tmp_path / "zone", "box-17"))]


def test_pieces_that_overlap_land_each_record_once_and_each_has_its_receipt(tmp_path: Path) -> None:
    swept = sweep(tmp_path, stick(tmp_path, piece(0, 4), piece(2, 8), piece(4, 6)))
    assert (swept.pieces, swept.new) == (3, 2)
    assert [(row.start // SIZE, row.end // SIZE, row.dup) for row in swept.receipts] == [
        (0, 4, 0),
        (2, 8, 0),
        (4, 6, 1),
    ]
    assert landed(tmp_path) == list(range(8))
    assert (tmp_path / "stick/box-17" / RECEIPTS).exists()
    again = sweep(tmp_path, stick(tmp_path, piece(0, 4), piece(2, 8)))
    assert (again.pieces, again.new) == (2, 0)


def test_more_than_a_commit_is_several_and_later_pieces_know_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_module, "COMMIT_BYTES", 1)
    swept = sweep(tmp_path, stick(tmp_path, piece(0, 4), piece(2, 8), piece(0, 12)))
    assert [row.dup for row in swept.receipts] == [0, 0, 0]
    assert landed(tmp_path) == list(range(12))
    assert len(list((tmp_path / "zone/pack").glob("*/*/*.pack"))) == 3


def test_one_piece_that_is_refused_keeps_the_stick_from_landing_and_is_named(tmp_path: Path) -> None:
    other = raw_piece(RAW[4 * SIZE : 8 * SIZE], 4 * SIZE, codec="zlib")[1]
    cut = other[:-1] + bytes([other[-1] ^ 1])
    folder = stick(tmp_path, piece(0, 4), cut)
    with pytest.raises(StickRefused, match=r"e/1\.piece: damaged"):
        sweep(tmp_path, folder)
    assert landed(tmp_path) == []
    assert not (folder / RECEIPTS).exists()


def test_without_its_secret_a_stick_lands_and_gets_no_receipts(tmp_path: Path) -> None:
    folder = stick(tmp_path, piece(0, 4))
    assert sweep(tmp_path, folder, secret=None).new == 1
    assert not (folder / RECEIPTS).exists()


def test_a_retired_box_and_another_history_are_refused_before_anything_lands(tmp_path: Path) -> None:
    sweep(tmp_path, stick(tmp_path, piece(0, 4), runs=((7, 0), (9, 4 * SIZE))))
    with pytest.raises(StickRefused, match=f"differs from the centre's from log offset {4 * SIZE} on; connect it once"):
        sweep(tmp_path, stick(tmp_path, piece(4, 8), runs=((7, 0), (8, 4 * SIZE))))
    CentreRecords(tmp_path / "zone", 1).retire("box-17")
    with pytest.raises(StickRefused, match="box box-17 is retired"):
        sweep(tmp_path, stick(tmp_path, piece(4, 8), runs=((7, 0), (9, 4 * SIZE))))
    assert landed(tmp_path) == [0, 1, 2, 3]


def test_an_index_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StickRefused, match="the index names no epoch or no run; export again"):
        sweep(tmp_path, stick(tmp_path, piece(0, 4), runs=()))


def test_a_mistyped_landing_zone_is_told_and_not_made(tmp_path: Path) -> None:
    folder = stick(tmp_path, piece(0, 4))
    with pytest.raises(LandingError, match=r"no landing zone at .*typo"):
        sweep_box(tmp_path / "typo", folder, secret=SECRET, now_ms=lambda: NOW)
    assert not (tmp_path / "typo").exists()
