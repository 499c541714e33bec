import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.files import unreadable
from storage_driver.files.disk import RealDisk
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.index.index_file import Index, IndexFile, IndexSize
from storage_driver.index.index_keys import IndexKeys, key_hash, key_hashes
from storage_driver.index.index_slots import HEADER
from storage_driver.record import decode_record
from storage_driver.testing import V2, MemoryDisk
from tests.bad_disk import BadDisk

T0 = 1700000000456


def test_an_index_file_is_what_java_makes(tmp_path: Path) -> None:
    """Default sizes; record V2 and one more under a key of it."""
    index = Index(RealDisk(), tmp_path, IndexSize())
    m = decode_record(V2)
    index.add(IndexKeys.of([(value, m.log_offset, m.stored_ms) for value in key_hashes(m.topic, m.properties)]), T0)
    (path,) = (tmp_path / "index").iterdir()
    assert len(path.name) == 17
    assert path.stat().st_size == 420_000_040
    with path.open("rb") as file:

        def at(position: int, count: int) -> str:
            file.seek(position)
            return file.read(count).hex()

        assert at(0, 40) == "0000018bcfe569c80000018bcfe569c8000000000000010500000000000001050000000300000004"
        assert at(20000060, 20) == "4c8516d3" + "0000000000000105" + "00000000" + "00000000"
        assert at(20000080, 20) == "14878a70" + "0000000000000105" + "00000000" + "00000000"
        assert at(20000100, 20) == "14878a6f" + "0000000000000105" + "00000000" + "00000000"
        assert [at(slot, 4) for slot in (15162228, 17708520, 17708516)] == ["00000001", "00000002", "00000003"]
        index.add(IndexKeys.of([(key_hash("OrderTopic#order-1"), 459, 1700000002500)]), T0)
    with path.open("rb") as file:
        assert at(0, 40) == "0000018bcfe569c80000018bcfe571c4000000000000010500000000000001cb0000000300000005"
        assert at(20000120, 20) == "14878a70" + "00000000000001cb" + "00000002" + "00000002"
        assert at(17708520, 4) == "00000004"
    assert index.find("OrderTopic#order-1", 9, 0, 1 << 60) == [261, 459]
    assert index.find("OrderTopic#order-1", 9, T0 + 1500, 1 << 60) == [459]


def test_the_one_hash_without_an_absolute_value_is_zero() -> None:
    assert key_hash("polygenelubricants") == 0
    assert key_hash("T#polygenelubricants") == 1620724593
    assert key_hash("TopicA#k1") == 1903240649


def test_a_full_file_is_followed_by_the_next_and_both_are_searched() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), IndexSize(10, 20))
    index.add(IndexKeys.of([(key_hash(f"T#k{i % 7}"), i, T0 + i) for i in range(50)]), T0)
    assert [file.count for file in index.files] == [20, 20, 13]
    assert index.find("T#k3", 64, 0, 1 << 60) == list(range(3, 50, 7))
    again = Index(disk, Path("/s"), IndexSize(10, 20))
    again.load(Path("/s/aside"))
    assert again.find("T#k3", 64, 0, 1 << 60) == list(range(3, 50, 7))
    assert again.last_record() == (49, 1)
    again.drop_before(30)
    assert len(again.files) == 2


def test_a_damaged_file_is_set_aside() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), IndexSize(10, 20))
    index.add(IndexKeys.of([(key_hash("T#k"), 1, T0)]), T0)
    index.files[0].file.write([HEADER.pack(T0, T0, 1, 1, 5, 1000)], 0)
    again = Index(disk, Path("/s"), IndexSize(10, 20))
    again.load(Path("/s/aside"))
    assert (again.files, len(again.dropped)) == ([], 1)
    assert [f.name for f in disk.list(Path("/s/aside"))] == [f"index-{index.files[0].path.name}"]


def test_after_a_power_cut_only_synced_entries_count() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), IndexSize(10, 20))
    index.add(IndexKeys.of([(key_hash(f"T#k{i}"), i, T0) for i in range(10)]), T0)
    index.set_back(5, 6)
    assert (index.last_record(), index.files[0].count) == ((4, 1), 6)
    assert index.find("T#k7", 9, 0, 1 << 60) == []
    index.set_back(0, 6)
    assert index.files == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.integers(0, 5000)), max_size=120))
def test_the_index_finds_what_a_dict_finds(rows: list[tuple[str, int]]) -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), IndexSize(7, 30))
    expected: dict[str, list[int]] = {}
    for number, (key, _) in enumerate(rows):
        index.add(IndexKeys.of([(key_hash(f"T#{key}"), number, T0 + number)]), T0)
        expected.setdefault(key, []).append(number)
    for key, numbers in expected.items():
        assert index.find(f"T#{key}", 64, 0, 1 << 60) == numbers[-64:]


def test_chains_of_garbage_end() -> None:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), IndexSize(3, 20))
    index.add(IndexKeys.of([(key_hash(f"T#{i}"), i, T0) for i in range(19)]), T0)
    file: IndexFile = index.files[0]
    file.file.write([b"\x00\x00\x00\x05" * 100], 40 + 12 + 20)
    assert len(index.find("T#3", 64, 0, 1 << 60)) <= 64


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=400), st.integers(1, 200))
def test_slots_written_in_blocks_and_one_by_one_make_the_same_file(numbers: list[int], piece: int) -> None:
    size = IndexSize(40_000, 1000)  # two whole blocks and a part of one
    keys = [(key_hash(f"T#{number}"), at, T0) for at, number in enumerate(numbers)]
    disks = MemoryDisk(folders=("/", "/a")), MemoryDisk(folders=("/", "/b"))
    together, single = Index(disks[0], Path("/a"), size), Index(disks[1], Path("/b"), size)
    for start in range(0, len(keys), piece):
        together.add(IndexKeys.of(keys[start : start + piece]), T0)
    for key in keys:
        single.add(IndexKeys.of([key]), T0)
    raw = [index.files[0].file.read(size.file_bytes, 0) for index in (together, single)]
    assert raw[0] == raw[1]


def test_slots_kept_in_memory_are_given_back_and_read_again() -> None:
    index = Index(MemoryDisk(folders=("/", "/s")), Path("/s"), IndexSize(10, 200))
    for at in range(20):
        index.add(IndexKeys.of([(key_hash("T#k"), at, T0)]), T0)
        if at % 3 == 0:
            index.rest()
    assert index.find("T#k", 64, 0, 1 << 60) == list(range(20))


@pytest.mark.parametrize("failing", range(6))
def test_a_round_that_fails_anywhere_leaves_nothing_false_behind(failing: int) -> None:
    size, disk = IndexSize(40_000, 1000), MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), size)
    keys = [(key_hash(f"T#{number % 23}"), number, T0) for number in range(150)]
    index.add(IndexKeys.of(keys[:50]), T0)
    disk.fail_at = len(disk.steps) + failing
    with contextlib.suppress(OSError):
        index.add(IndexKeys.of(keys[50:100]), T0)
    disk.fail_at = None
    done = index.files[0].count - 1
    index.add(IndexKeys.of(keys[done:]), T0)
    for number in range(23):
        assert index.find(f"T#{number}", 64, 0, 1 << 60) == list(range(number, 150, 23))


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60), st.integers(1, 60))
def test_after_a_power_cut_every_key_is_found_again(pick: random.Random, before: int, behind: int) -> None:
    """Slots, units and the header behind the last sync are there or not, sector by sector; the log adds them again."""
    size, disk = IndexSize(10, 200), MemoryDisk(folders=("/", "/s"))
    index = Index(disk, Path("/s"), size)
    keys = [(key_hash(f"T#{number % 40}"), 100 * (number + 1), T0) for number in range(before + behind)]
    index.add(IndexKeys.of(keys[:before]), T0)
    index.sync()
    disk.sync_all(Path("/s"))
    count = index.files[-1].count
    for key in keys[before:]:
        index.add(IndexKeys.of([key]), T0)
    left = Index(disk.after_power_cut(pick), Path("/s"), size)
    left.load(Path("/s/aside"))
    left.set_back(keys[before][1], count)
    left.add(IndexKeys.of(keys[before:]), T0)
    for number in range(min(40, len(keys))):
        expected = [log_offset for value, log_offset, _ in keys if value == key_hash(f"T#{number}")]
        assert left.find(f"T#{number}", 64, 0, 1 << 60) == expected


@pytest.mark.parametrize("block", range(8))
def test_a_key_is_found_and_more_are_added_where_a_block_of_the_file_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Slots and units: what was in the block is looked for without them, or is gone alone."""
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    bad, size = BadDisk(), IndexSize(3000, 4000)
    index = Index(ZeroingDisk(bad, tmp_path), tmp_path, size)
    index.add(IndexKeys.of([(key_hash(f"T#k{i}"), i, T0 + i) for i in range(1000)]), T0)
    index.sync()
    (path,) = (tmp_path / "index").iterdir()
    (tmp_path / "abort").write_bytes(b"readable")
    bad.bad[f"index/{path.name}"] = [(4096 * block, 4096 * (block + 1))]
    again = Index(ZeroingDisk(bad, tmp_path), tmp_path, size)
    again.load(tmp_path / "aside")
    if not block:
        assert (len(again.dropped), again.files) == (1, [])
        return
    in_block = {n for n in range(1, 1001) if _touches(HEADER.size + 4 * size.slots + 20 * n, 20, block)}
    for count in (1000, 1300):  # few keys read slot by slot, many in blocks
        found = {i for i in range(count) if again.find(f"T#k{i}", 9, 0, 1 << 60) == [i]}
        assert {number for number in range(1, 1001) if number - 1 not in found} <= in_block
        assert set(range(1000, count)) <= found
        again.add(IndexKeys.of([(key_hash(f"T#k{i}"), i, T0 + i) for i in range(count, count + 300)]), T0)
    assert again.find("T#k1599", 9, 0, 1 << 60) == [1599]


def test_keys_beside_one_that_is_put_into_a_block_that_cannot_be_read_are_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the slot is written into would be zeros else: no keys."""
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    bad, size = BadDisk(), IndexSize(60_000, 4000)  # so many slots that each is written by itself
    index = Index(ZeroingDisk(bad, tmp_path), tmp_path, size)
    index.add(IndexKeys.of([(key_hash(f"T#k{i}"), i, T0 + i) for i in range(900)]), T0)
    index.sync()
    (path,) = (tmp_path / "index").iterdir()
    block = (HEADER.size + 4 * (key_hash("T#k900") % size.slots)) // 4096
    bad.bad[f"index/{path.name}"] = [(4096 * block, 4096 * (block + 1))]
    again = Index(ZeroingDisk(bad, tmp_path), tmp_path, size)
    again.load(tmp_path / "aside")
    for number in range(900, 1000, 20):
        again.add(IndexKeys.of([(key_hash(f"T#k{i}"), i, T0 + i) for i in range(number, number + 20)]), T0)
    assert not any(bad.bad.values())
    assert [i for i in range(1000) if again.find(f"T#k{i}", 9, 0, 1 << 60) != [i]] == []


def _touches(at: int, count: int, block: int) -> bool:
    return at < 4096 * (block + 1) and 4096 * block < at + count
