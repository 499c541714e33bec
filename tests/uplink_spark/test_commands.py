"""The commands of the centre over a landing zone that was written by the real writer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from uplink_spark.__main__ import main
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.commands.gateway import now_ms
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, gap_piece, log_piece, raw_piece
from uplink_spark.zone.manifest import FILE_ENTRIES

RECORDS = [MadeRecord(queue_offset=n) for n in range(10)]
SIZE = 97


@pytest.fixture
def landing(tmp_path: Path) -> MadeLanding:
    made = MadeLanding(tmp_path / "landing")
    raw = encode_log(RECORDS)
    made.land(raw_piece(raw[: 4 * SIZE], 0), raw_piece(raw[6 * SIZE :], 6 * SIZE), now_ms=now_ms())
    made.land(gap_piece(970, 2000, {"id": [7, 1], "class": "missing", "reason": "operator", "bytes": 1030}),
              now_ms=now_ms())  # fmt: skip
    return made


def run(landing: MadeLanding, *arguments: str) -> int:
    return main([arguments[0], "--landing", str(landing.root), *arguments[1:]])


def test_boxes_shows_who_is_there_and_what_is_pending(landing: MadeLanding, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(landing, "boxes") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["BOX", "EPOCH", "LANDED", "TO", "LAG", "LAST", "GAPS", "STATE"]
    assert row.split()[:2] == ["box-17", "12345678"]
    assert row.split()[-1] == "live"
    assert run(landing, "boxes", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["landed_to"], facts["pending"], facts["gaps"], facts["lag"]) == (2000, 2 * SIZE, 1, None)


def test_manifest_and_gaps_list_entries(landing: MadeLanding, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(landing, "manifest", "--json") == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [0, 1, 2]
    assert run(landing, "gaps") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-3:] == ["missing", "operator", "?"]


def test_check_is_content_with_a_good_zone_and_finds_a_flipped_byte(
    landing: MadeLanding, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(landing, "check", "--deep") == 0
    assert "manifest 0000: 3 entries, seq 0..2, no hole; 2 packs" in capsys.readouterr().out
    pack = sorted((landing.root / "pack").glob("*/*/*.pack"))[0]
    data = bytearray(pack.read_bytes())
    data[-3] ^= 1
    pack.write_bytes(bytes(data))
    assert run(landing, "check") == 0  # headers only
    assert run(landing, "check", "--deep") == 10
    out = capsys.readouterr().out
    assert "damaged 1" in out
    assert "seq 1: pack/0000/" in out


def test_check_finds_a_missing_pack_and_an_orphan(landing: MadeLanding, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = sorted((landing.root / "pack").glob("*/*/*.pack"))
    first.rename(first.with_name(f"{1:020d}.pack"))
    assert run(landing, "check") == 10
    assert "orphans 1; damaged 2" in capsys.readouterr().out
    assert last.exists()


def test_export_gives_the_raw_log_and_says_where_it_ends(
    landing: MadeLanding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(landing, "export", "--box", "box-17", "--from", "50", "--to", str(4 * SIZE), "--out", str(out)) == 0
    assert out.read_bytes() == encode_log(RECORDS)[50 : 4 * SIZE]
    assert run(landing, "export", "--box", "box-17", "--from", "0", "--to", "970", "--out", str(out)) == 2
    assert f"bytes from log offset {4 * SIZE} are not in the landing zone" in capsys.readouterr().err


def write_consumer(landing: MadeLanding, seq: int, updated_ms: int) -> None:
    folder = landing.root / "consumers"
    folder.mkdir(exist_ok=True)
    (folder / "bronze.json").write_text(json.dumps({"offsets": {"0": seq}, "updated_ms": updated_ms}))


def test_lag_counts_what_a_consumer_has_not_read(landing: MadeLanding, capsys: pytest.CaptureFixture[str]) -> None:
    write_consumer(landing, 1, now_ms())
    assert run(landing, "lag", "--consumer", "bronze", "--json") == 0
    assert json.loads(capsys.readouterr().out)["lag_entries"] == 2
    assert run(landing, "lag", "--consumer", "nobody") == 1
    assert "there are: bronze" in capsys.readouterr().err


def packs(landing: MadeLanding) -> int:
    return len(list((landing.root / "pack").glob("*/*/*.pack")))


def test_clean_removes_only_what_is_old_and_read_by_all_that_live(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing, old = MadeLanding(tmp_path / "landing"), now_ms() - 10 * 86_400_000
    for n in range(3):
        landing.land(log_piece([MadeRecord()], n * 1000), now_ms=old)
    landing.land(log_piece([MadeRecord()], 5000), now_ms=now_ms())
    write_consumer(landing, 2, now_ms())
    assert run(landing, "clean", "--dry-run") == 0
    assert "would remove 2 packs" in capsys.readouterr().out
    assert packs(landing) == 4
    assert run(landing, "clean") == 0
    assert packs(landing) == 2
    write_consumer(landing, 2, now_ms() - 31 * 86_400_000)  # silent: pins nothing
    assert run(landing, "clean") == 0
    assert packs(landing) == 1


def test_manifest_files_follow_their_packs_and_the_state_carries_the_coverage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.landing.FILE_ENTRIES", 2)
    assert FILE_ENTRIES == 65536
    landing, old = MadeLanding(tmp_path / "landing"), now_ms() - 10 * 86_400_000
    for n in range(5):
        landing.land(log_piece([MadeRecord()], n * SIZE), now_ms=old)
    landing.land(log_piece([MadeRecord()], 5 * SIZE), now_ms=now_ms())
    landing.close()
    folder = landing.root / "manifest" / "0000"
    assert len(list(folder.glob("*.log"))) == 3
    assert run(landing, "clean") == 0
    assert [path.name for path in folder.glob("*.log")] == [f"{4:020d}.log"]
    again = MadeLanding(tmp_path / "landing")
    again.land(log_piece([MadeRecord()], 6 * SIZE), now_ms=now_ms())
    assert list(again.covers[0].boxes["box-17"].epochs[0x0123456789ABCDEF].data) == [(0, 7 * SIZE)]


def test_a_state_that_is_half_written_costs_a_longer_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uplink_spark.centre.zone_files.landing.FILE_ENTRIES", 2)
    landing = MadeLanding(tmp_path / "landing")
    for n in range(5):
        landing.land(log_piece([MadeRecord()], n * SIZE))
    landing.close()
    for state in (landing.root / "manifest" / "0000").glob("*.state"):
        state.write_bytes(state.read_bytes()[:-2])
    again = MadeLanding(tmp_path / "landing")
    again.land(log_piece([MadeRecord()], 5 * SIZE))
    assert list(again.covers[0].boxes["box-17"].epochs[0x0123456789ABCDEF].data) == [(0, 6 * SIZE)]


def test_a_folder_that_is_no_landing_zone_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boxes", "--landing", str(tmp_path)]) == 2
    assert "no landing zone at" in capsys.readouterr().err


def test_retire_is_written_down(landing: MadeLanding, capsys: pytest.CaptureFixture[str]) -> None:
    CentreRecords(landing.root, 1).save("box-17", 5, ((7, 0),))
    assert main(["retire", "box-17", "--landing", str(landing.root)]) == 0
    assert "box-17 is retired" in capsys.readouterr().out
