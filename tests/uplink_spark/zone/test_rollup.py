import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.uplink_spark.zone.test_entry_table import ENTRIES
from uplink_spark.errors import ManifestDamaged
from uplink_spark.zone import rollup
from uplink_spark.zone.manifest import encode_items, encode_mark
from uplink_spark.zone.rollup import RollUp, chain_of, decode_rolled, encode_rolled, range_of, rolled_path


class Folder:
    """A place for files that may be full."""

    def __init__(self, root: Path) -> None:
        self.root, self.full = root, False

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self.root / folder).glob("*")]

    def replace(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)

    def delete(self, path: str) -> None:
        (self.root / path).unlink()


def test_a_file_is_named_by_its_range_and_holds_columns_and_items() -> None:
    data = encode_rolled(0, encode_items(ENTRIES) + encode_mark(3))
    assert decode_rolled(data, 0, 3).table.seq.tolist() == [0, 1, 2]
    assert range_of(rolled_path(2, 0, 3)) == (0, 3)
    assert range_of("00000000000000000000.log") is range_of("lock") is range_of("1-2.cols") is None


@given(st.integers(0, 5000), st.integers(1, 255))
def test_damage_is_noticed(at: int, change: int) -> None:
    data = bytearray(encode_rolled(0, encode_items(ENTRIES)))
    data[at % len(data)] ^= change
    with pytest.raises(ManifestDamaged):
        decode_rolled(bytes(data), 0, 3)


@pytest.mark.parametrize("size", [0, 5, 12, 40])
def test_a_file_that_is_cut_is_noticed(size: int) -> None:
    with pytest.raises(ManifestDamaged):
        decode_rolled(encode_rolled(0, encode_items(ENTRIES))[:size], 0, 3)


def test_another_range_and_columns_that_do_not_inflate_are_noticed() -> None:
    data = encode_rolled(0, encode_items(ENTRIES))
    with pytest.raises(ManifestDamaged, match=r"another range than 0\.\.4"):
        decode_rolled(data, 0, 4)
    with pytest.raises(ManifestDamaged, match="do not inflate"):
        decode_rolled(rollup.HEAD.pack(rollup.MAGIC, zlib.crc32(b"xx"), 2) + b"xx", 0, 3)


def test_sizes_that_a_file_only_claims_cost_nothing() -> None:
    claimed = bytes.fromhex("28b52ffde0") + (1 << 44).to_bytes(8, "little") + b"\x01\0\0"
    with pytest.raises(ManifestDamaged, match="of more than"):
        decode_rolled(rollup.HEAD.pack(rollup.MAGIC, zlib.crc32(claimed * 2), len(claimed)) + claimed * 2, 0, 3)


def test_behind_a_hole_another_file_begins_and_large_entries_fill_one_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "ROLLED_BYTES", 50)
    monkeypatch.setattr(rollup, "NOTED_AT_ONCE", 1)
    folder = Folder(tmp_path)
    made = RollUp(0, folder)
    made.begin(0, 0)
    made.note(ENTRIES[1:])
    assert chain_of(folder.names("manifest/0000/rolled")) == [(1, 2), (2, 3)]


def test_ranges_that_overlap_are_used_once() -> None:
    names = [rolled_path(0, *pair) for pair in ((0, 4), (0, 8), (6, 9), (8, 12), (20, 24))]
    assert chain_of([*names, "other"]) == [(0, 8), (8, 12), (20, 24)]


def test_entries_are_collected_until_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 2)
    folder = Folder(tmp_path)
    first = RollUp(0, folder)
    first.begin(0, 0)
    first.note(ENTRIES[:1])
    assert folder.names("manifest/0000/rolled") == []
    folder.full = True
    first.note(ENTRIES[1:2])
    assert folder.names("manifest/0000/rolled") == []
    folder.full = False
    first.note(ENTRIES[2:])
    assert chain_of(folder.names("manifest/0000/rolled")) == [(0, 3)]


def test_a_start_goes_on_behind_the_files_and_removes_what_is_beyond_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 1)
    folder = Folder(tmp_path)
    for pair in ((0, 1), (1, 2), (2, 9)):
        folder.replace(rolled_path(0, *pair), b"")
    again = RollUp(0, folder)
    again.begin(0, 3)
    again.note(ENTRIES)
    assert chain_of(folder.names("manifest/0000/rolled")) == [(0, 1), (1, 2), (2, 3)]
    assert decode_rolled((tmp_path / rolled_path(0, 2, 3)).read_bytes(), 2, 3).table.name_of(0).startswith("seq 2")


def rolled(folder: Folder) -> list[tuple[int, int]]:
    return sorted(pair for pair in map(range_of, folder.names("manifest/0000/rolled")) if pair is not None)


def land(made: RollUp, first: int, end: int) -> None:
    """Note commits of one entry."""
    for seq in range(first, end):
        made.note([replace(ENTRIES[0], seq=seq)])


def test_a_buckets_newest_file_is_replaced_by_one_with_more_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 6)
    monkeypatch.setattr(rollup, "ROLLED_COMMITS", 1)  # counts on a disk alone
    folder = Folder(tmp_path)
    made = RollUp(0, folder, rewritten_commits=2)
    made.begin(0, 0)
    found = []
    for end in range(1, 10):
        land(made, end - 1, end)
        found.append(rolled(folder))
    assert found[:5] == [[], [(0, 2)], [(0, 2)], [(0, 2), (0, 4)], [(0, 2), (0, 4)]]  # readers may have listed 0..2
    assert found[5:] == [[(0, 4), (0, 6)], [(0, 4), (0, 6)], [(0, 6), (6, 8)], [(0, 6), (6, 8)]]
    for first, end in ((0, 6), (6, 8)):
        path = tmp_path / rolled_path(0, first, end)
        assert decode_rolled(path.read_bytes(), first, end).table.seq.tolist() == list(range(first, end))


def test_a_start_goes_on_with_the_newest_file_of_a_bucket_where_it_has_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 6)
    folder = Folder(tmp_path)
    made = RollUp(0, folder, rewritten_commits=2)
    made.begin(0, 0)
    land(made, 0, 11)
    assert rolled(folder) == [(0, 6), (6, 8), (6, 10)]
    again = RollUp(0, folder, rewritten_commits=2)
    again.begin(6, 11)  # the state is of seq 6
    land(again, 6, 12)
    assert rolled(folder)[0] == (0, 6)
    assert chain_of(folder.names("manifest/0000/rolled")) == [(0, 6), (6, 12)]
    later = RollUp(0, folder, rewritten_commits=2)
    later.begin(8, 9)  # set back to an older copy; entries from seq 8 on are there
    assert rolled(folder) == [(0, 6)]
    land(later, 8, 10)
    assert rolled(folder) == [(0, 6), (8, 10)]
