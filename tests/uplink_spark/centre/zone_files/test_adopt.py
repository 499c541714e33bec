"""Whole packs without entries: which there are, what entries they get, and what is no pack."""

from __future__ import annotations

from pathlib import Path

import pytest

from uplink_spark.centre.zone_files.adopt import entries_of, packs_from
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.errors import PieceDamaged
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, gap_piece, raw_piece
from uplink_spark.zone.manifest import ManifestEntry, Placement, entry_of

SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(20)])
PLACE = Placement(7, "pack/0000/2023-11-14/x.pack", 0, 0, 0, 1_700_000_000_000)


def piece(first: int, last: int) -> bytes:
    return raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE)[1]


def taken(pack: Path, place: Placement, cover: ShardCover) -> list[ManifestEntry]:
    with open(pack, "rb") as file:
        return entries_of(str(pack), file, place, cover.draft())


def test_of_one_seq_the_newest_attempt_comes_last_and_other_files_are_no_packs(tmp_path: Path) -> None:
    for name in ("2026-01-02/0007.pack", "2026-01-01/0007.pack", "2026-01-01/0006.pack", "2026-01-01/0009.pack.tmp"):
        path = tmp_path / "pack/0000" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (path.parent / "notes.pack").touch()
    found = packs_from(tmp_path, 0, 7)
    assert {seq: [path.parent.name for path in paths] for seq, paths in found.items()} == {
        7: ["2026-01-01", "2026-01-02"]
    }
    assert packs_from(tmp_path, 1, 0) == {}


def test_entries_are_those_the_commit_would_have_made(tmp_path: Path) -> None:
    pack, cover = tmp_path / "0007.pack", ShardCover()
    parts = [piece(0, 2), piece(4, 6), piece(0, 8), piece(1, 5)]
    gap = gap_piece(8 * SIZE, 9 * SIZE, {"id": [7, 1], "class": "missing", "reason": "operator"})
    pack.write_bytes(b"".join([*parts, gap.container]))
    entries = taken(pack, PLACE, cover)
    assert [(e.seq, e.start // SIZE, e.end // SIZE, e.kind) for e in entries] == [
        (7, 0, 2, "log"), (8, 4, 6, "log"), (9, 2, 4, "log"), (10, 6, 8, "log"), (11, 8, 9, "gap"),
    ]  # fmt: skip
    assert (entries[2].offset, entries[3].offset) == (len(parts[0] + parts[1]),) * 2
    assert (entries[4].gap or {})["reason"] == "operator"
    for entry in entries[:3]:
        cover.note(entry)
    rest = taken(pack, Placement(10, PLACE.pack, entries[2].offset, 0, 0, PLACE.landed_ms), cover)
    assert rest == entries[3:]  # of a piece with two parts the second


@pytest.mark.parametrize("left", [1, 9, -1])
def test_a_pack_that_is_not_whole_has_no_entries_and_is_named(tmp_path: Path, left: int) -> None:
    pack = tmp_path / "0007.pack"
    pack.write_bytes(piece(0, 2) + piece(2, 9)[:left])
    with pytest.raises(PieceDamaged, match=str(pack)):
        taken(pack, PLACE, ShardCover())


def test_what_is_held_to_inside_a_record_is_not_taken(tmp_path: Path) -> None:
    pack, cover = tmp_path / "0007.pack", ShardCover()
    header, container = raw_piece(RAW[: 2 * SIZE], 0)
    cover.note(entry_of(header, len(container), Placement(0, "p", 0, 0, SIZE + 5, 1)))
    pack.write_bytes(container)
    assert SOURCE.box in cover.boxes
    with pytest.raises(PieceDamaged, match="inside a record"):
        taken(pack, PLACE, cover)
