"""Express records of files that must go: kept as pieces, whole or not at all, within their bound."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from uplink_spark.box import spool as spool_module
from uplink_spark.box.receipts.ledger import Ledger, ReceiptSeen
from uplink_spark.box.spool import Spool, SpoolLane
from uplink_spark.box.state import ShipperState
from uplink_spark.config import UplinkConfig
from uplink_spark.testing import MadeLog, MadeRecord, encode_log, files_end_at
from uplink_spark.wire.batch import open_piece
from uplink_spark.wire.frames import Refusal

NOW = 1_700_000_000_000
RECORDS = [MadeRecord(topic="ALARM" if n % 3 == 0 else "T", queue_offset=n, body=b"%032d" % n) for n in range(60)]
RAW = encode_log(RECORDS)


def state_of(root: Path) -> ShipperState:
    ledger = Ledger(root / "rocketbox")
    ledger.open()
    ledger.switches = [(0, ("ALARM",))]
    config = UplinkConfig(gateway="127.0.0.1", box="box-17")
    log = MadeLog(RAW)
    return ShipperState(log, config, ledger, now_ms=lambda: NOW, clock_ok=lambda: True)


def bodies(spool: Spool) -> list[int]:
    found = []
    for kept in spool.pieces():
        raw = open_piece(kept.container).raw()
        found += [int(raw[at + 88 : at + 120]) for at in _starts(raw)]
    return found


def _starts(raw: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(raw):
        starts.append(at)
        at += int.from_bytes(raw[at : at + 4], "big")
    return starts


async def test_the_express_records_are_kept_and_only_those(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert (spool.size(), list(spool.pieces())) == (0, [])
    spool.keep(state_of(tmp_path), 0, len(RAW))
    assert bodies(spool) == list(range(0, 60, 3))
    assert spool.size() == sum(len(kept.container) for kept in spool.pieces())
    frame = next(spool.pieces()).to_piece().frame
    assert frame[5:] == next(spool.pieces()).container


async def test_what_is_receipted_is_not_kept_again(tmp_path: Path) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    half = RAW.index(b"%032d" % 30) - 88
    state.ledger.receipt("pick", ReceiptSeen(0, half, "pick", 1, 0, 0, NOW))
    spool.keep(state, 0, len(RAW))
    assert bodies(spool) == list(range(30, 60, 3))
    for kept in list(spool.pieces()):
        spool.drop((kept.header.start, kept.header.end))
        spool.drop((kept.header.start, kept.header.end))  # a second receipt
    assert spool.size() == 0


async def test_a_piece_that_is_cut_or_damaged_is_left_out_and_kept_anew(tmp_path: Path) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    spool.keep(state, 0, len(RAW))
    (kept,) = spool.pieces()
    (path,) = (tmp_path / "spool").iterdir()
    path.write_bytes(kept.container[: len(kept.container) // 3])  # the power went during the write
    assert list(spool.pieces()) == []
    spool.keep(state, 0, len(RAW))
    assert bodies(spool) == list(range(0, 60, 3))


async def test_a_full_disk_says_so_before_the_file_goes(tmp_path: Path) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    with files_end_at(50), pytest.raises(OSError, match="too large"):
        spool.keep(state, 0, len(RAW))
    assert list(spool.pieces()) == []


async def test_pieces_do_not_cross_runs_and_the_spool_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    middle = RAW.index(b"%032d" % 30) - 88
    state.source.lineage.runs.append((9, middle))
    monkeypatch.setattr(spool_module, "SPOOL_BYTES", 10)
    spool.keep(state, 0, len(RAW))
    assert bodies(spool) == list(range(0, 30, 3))  # one piece of the first run, then the bound is reached
    monkeypatch.setattr(spool_module, "SPOOL_BYTES", 1 << 20)
    spool.keep(state, 0, len(RAW))
    assert bodies(spool) == list(range(0, 60, 3))
    assert {(kept.header.run, kept.header.run_start) for kept in spool.pieces()} == {(7, 0), (9, middle)}


async def test_a_connection_sends_each_kept_piece_once_until_it_is_receipted_or_refused(tmp_path: Path) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    lane = SpoolLane(spool)
    lane.look()
    assert lane.waiting == []
    half = RAW.index(b"%032d" % 30) - 88
    spool.keep(state, 0, half)
    lane.look()
    first = lane.take()
    assert first is not None
    spool.keep(state, half, len(RAW))  # another file went while the first piece is on its way
    lane.look()
    assert lane.waiting == [(half, len(RAW))]
    second = lane.take()
    assert second is not None
    assert lane.sent(first.header)
    assert lane.sent(second.header)
    assert not lane.sent(replace(first.header, end=1))
    lane.receipted(first.header)
    assert lane.refused(second.header, Refusal(1, "holes", "planted", 0)) is None
    assert lane.waiting == []
    lane.look()
    assert lane.waiting == spool.places() == [(half, len(RAW))]
    assert lane.take() == second
    lane.look()
    assert lane.take() is None  # whoever saw it wait had to wait for the look


@pytest.mark.parametrize("code", ["damaged", "bad_records", "too_big", "codec", "not_yours"])
async def test_a_kept_piece_that_is_never_taken_is_put_aside_and_told(tmp_path: Path, code: str) -> None:
    spool = Spool(tmp_path / "spool")
    spool.keep(state_of(tmp_path), 0, len(RAW))
    (kept,), size = spool.pieces(), spool.size()
    lane, tries, told = SpoolLane(spool), 0, None
    lane.look()
    while (sent := lane.take()) is not None:
        told, tries = lane.refused(sent.header, Refusal(tries, code, "planted", 0)), tries + 1
    assert tries == (3 if code in ("damaged", "bad_records") else 1)  # the first two may be the way's fault
    lane.look()
    assert lane.waiting == spool.places() == SpoolLane(spool).waiting == []
    aside = tmp_path / "spool/refused" / f"{0:020d}-{len(RAW):020d}.piece"
    assert aside.read_bytes() == kept.container
    assert spool.size() == size  # it counts, so that refusals cannot fill the disk
    assert told is not None
    assert f"log 0..{len(RAW)} are refused ({code}: planted): not sent again, the piece is in {aside}; Spark" in told


async def test_a_refused_piece_that_cannot_be_put_aside_rests_until_the_next_connection(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.keep(state_of(tmp_path), 0, len(RAW))
    (tmp_path / "spool/refused").touch()  # somebody's
    lane = SpoolLane(spool)
    lane.look()
    sent = lane.take()
    assert sent is not None
    assert "not sent again on this connection ([Errno" in (
        lane.refused(sent.header, Refusal(0, "codec", "planted", 0)) or ""
    )
    lane.look()
    assert lane.waiting == []
    assert spool.places() == [(0, len(RAW))]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [cut, make_folder])
async def test_a_kept_piece_that_cannot_be_read_is_passed_over(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    spool.keep(state, 0, len(RAW))
    (path,) = (tmp_path / "spool").iterdir()
    spoil(path)
    (tmp_path / "spool/notes.piece").write_text("somebody's")
    lane = SpoolLane(spool)
    lane.look()
    assert lane.take() is None
    lane.look()
    assert lane.waiting == []


async def test_what_can_be_read_is_kept_around_a_bad_sector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, spool = state_of(tmp_path), Spool(tmp_path / "spool")
    read = state.source.read_log

    def bad(start: int, max_bytes: int) -> bytes:
        data = read(start, max_bytes)
        if start < 4096 < start + len(data) or 4096 <= start < 8192:  # its second block
            raise OSError(errno.EIO, "Input/output error")
        return data

    monkeypatch.setattr(state.source, "read_log", bad)
    spool.keep(state, 0, len(RAW))
    starts = [(n, at, at + int.from_bytes(RAW[at : at + 4], "big")) for n, at in enumerate(_starts(RAW))]
    left = [n for n, at, end in starts if end <= 4096 or at >= 8192]
    assert bodies(spool) == [n for n in left if n % 3 == 0]
