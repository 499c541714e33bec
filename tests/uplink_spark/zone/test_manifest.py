"""The manifest: entries come back as written, nothing behind the last mark is seen, the tail follows over files."""

from __future__ import annotations

from pathlib import Path

import pytest

from uplink_spark.errors import ManifestDamaged
from uplink_spark.testing import MadeLanding, MadeRecord, gap_piece, log_piece
from uplink_spark.wire.batch import open_piece
from uplink_spark.zone import manifest
from uplink_spark.zone.manifest import ManifestEntry, ManifestTail, encode_items, encode_mark, file_head, read_items


def entry(seq: int) -> ManifestEntry:
    return ManifestEntry(
        seq, "log", "b", 1, 2, "pack/0000/x.pack", 0, 10, seq * 100, seq * 100 + 100, 1, 100, 5, 6, 7, 8, 1
    )


def reader(root: Path) -> manifest.ReadFrom:
    def read(path: str, at: int) -> bytes | None:
        file = root / path
        return file.read_bytes()[at:] if file.exists() else None

    return read


def test_an_entry_reads_back_as_written() -> None:
    full = ManifestEntry(
        3, "log", "b", 1, 2, "p", 4, 10, 300, 400, 1, 100, 5, 6, 7, 8, 1, {"T": (1, 5)}, ("E",), {"class": "missing"}, 1
    )
    assert manifest.decode_entry(full.encode()) == full
    assert len(entry(1).encode()) < 202


def test_entries_behind_the_last_mark_are_not_seen() -> None:
    data = encode_items([entry(0), entry(1)]) + encode_mark(2) + encode_items([entry(2)])
    part = read_items(data, 0)
    assert ([e.seq for e in part.entries], part.next_seq, [e.seq for e in part.pending]) == ([0, 1], 2, [2])


def test_each_torn_tail_ends_at_the_last_whole_item() -> None:
    head = encode_items([entry(0)]) + encode_mark(1)
    data = head + encode_items([entry(1)])
    for length in range(len(head), len(data)):
        part = read_items(data[:length], 0)
        assert (len(part.entries), part.pending, part.whole) == (1, (), len(head))
        assert (part.fault is None) == (length == len(head))


def test_a_seq_out_of_turn_is_damage() -> None:
    with pytest.raises(ManifestDamaged, match="seq 5 where 0 belongs"):
        read_items(encode_items([entry(5)]), 0)


def test_the_tail_follows_from_file_to_file_without_listing() -> None:
    files = {"manifest/0000/00000000000000000000.log": file_head(0, 0) + encode_items([entry(0), entry(1)])}

    def read(path: str, at: int) -> bytes | None:
        return files[path][at:] if path in files else None

    tail = ManifestTail(0, files, read)
    assert tail.poll() == []  # no mark yet
    files["manifest/0000/00000000000000000000.log"] += encode_mark(2)
    assert [e.seq for e in tail.poll()] == [0, 1]
    files["manifest/0000/00000000000000000002.log"] = file_head(0, 2) + encode_items([entry(2)]) + encode_mark(3)
    assert [e.seq for e in tail.poll()] == [2]
    assert tail.poll() == []
    assert [e.seq for e in ManifestTail(0, files, read, seq=2).poll()] == [2]


def test_a_landed_piece_is_found_through_its_entry(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    records = [MadeRecord(queue_offset=n) for n in range(3)]
    first, second = log_piece(records), log_piece(records, 300)
    landing.land(first, second)
    landing.land(gap_piece(600, 900, {"id": [7, 1], "class": "missing", "reason": "operator"}))
    entries = ManifestTail(0, ["00000000000000000000.log"], reader(landing.root)).poll()
    assert [(e.seq, e.kind, e.start, e.end) for e in entries] == [
        (0, "log", 0, 291),
        (1, "log", 300, 591),
        (2, "gap", 600, 900),
    ]
    found = (landing.root / entries[1].pack).read_bytes()[entries[1].offset :][: entries[1].stored_bytes]
    assert found == second[1]
    assert open_piece(found).header == second[0]
    assert entries[2].gap == {"id": [7, 1], "class": "missing", "reason": "operator"}
