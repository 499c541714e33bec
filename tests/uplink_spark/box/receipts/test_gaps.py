"""The gap log: what was declared is there after any crash, and a disk that fills up costs the newest gap alone."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.files import unreadable
from tests.bad_disk import BadDisk
from uplink_spark.box.receipts.gaps import Gap, GapLog, decode_gaps
from uplink_spark.testing import files_end_at


def gap(number: int, start: int = 0, end: int = 10) -> Gap:
    return Gap(
        5, 7, 0, start, end, {"id": [7, number], "class": "missing", "reason": "quota_bytes", "bytes": end - start}
    )


def opened(path: Path) -> GapLog:
    log = GapLog(path)
    log.open()
    return log


def test_an_item_is_its_length_its_crc_and_its_map_in_deterministic_cbor() -> None:
    body = bytes.fromhex(
        "a7 617601 63656e6405 63676170 a3 626964820201 65636c617373676d697373696e67 66726561736f6e6178"
        "6372756e02 6565706f636801 65737461727404 6672737461727403"
    )
    made = Gap(1, 2, 3, 4, 5, {"id": [2, 1], "class": "missing", "reason": "x"})
    assert made.encode() == struct.pack(">II", len(body), zlib.crc32(body)) + body


@settings(max_examples=25)
@given(st.lists(st.integers(1, 1 << 40), max_size=6), st.data())
def test_any_cut_of_the_file_leaves_the_whole_items_in_front_of_it(numbers: list[int], drawn: st.DataObject) -> None:
    gaps = [gap(number) for number in numbers]
    encoded = [one.encode() for one in gaps]
    file = b"".join(encoded)
    cut = drawn.draw(st.integers(0, len(file)))
    whole = [end for end in (sum(map(len, encoded[: n + 1])) for n in range(len(encoded))) if end <= cut]
    found = list(decode_gaps(file[:cut]))
    assert [end for end, _ in found] == whole
    assert [one for _, one in found] == gaps[: len(whole)]


@pytest.mark.parametrize("number", range(4))
def test_of_a_file_that_is_damaged_in_the_middle_the_losses_behind_it_are_kept(tmp_path: Path, number: int) -> None:
    path, gaps = tmp_path / "gaps.log", [gap(n) for n in range(5)]
    encoded = [one.encode() for one in gaps]
    file = bytearray(b"".join(encoded))
    file[sum(map(len, encoded[:number])) + 20] ^= 1
    path.write_bytes(file)
    log = opened(path)
    assert log.gaps == gaps[:number] + gaps[number + 1 :]
    assert f"{4 - number} losses after it are kept" in str(log.damage)
    assert (tmp_path / "gaps.log.damaged").read_bytes() == file
    again = opened(path)
    assert (again.gaps, again.damage) == (log.gaps, None)


@settings(max_examples=25)
@given(st.integers(0), st.integers(1, 255))
def test_a_changed_byte_ends_the_log_there_and_raises_nothing(place: int, change: int) -> None:
    encoded = [gap(n).encode() for n in range(3)]
    file = bytearray(b"".join(encoded))
    place %= len(file)
    file[place] ^= change
    kept = sum(end <= place for end in (len(encoded[0]), len(encoded[0]) * 2, len(encoded[0]) * 3))
    assert [one for _, one in decode_gaps(bytes(file))] == [gap(n) for n in range(kept)]


def test_a_torn_tail_is_cut_so_that_what_follows_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "gaps.log"
    opened(path).append(gap(1))
    with open(path, "ab") as file:
        file.write(gap(2).encode()[:-1])
    log = opened(path)
    assert log.gaps == [gap(1)]
    log.append(gap(3))
    assert opened(path).gaps == [gap(1), gap(3)]


def test_a_full_disk_at_any_byte_of_a_gap_leaves_the_log_whole_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "gaps.log"
    log = opened(path)
    log.append(gap(1))
    size = path.stat().st_size
    for room in range(len(gap(2).encode())):
        with files_end_at(size + room), pytest.raises(OSError, match=r"No space|too large"):
            log.append(gap(2))
        assert path.stat().st_size == size
    assert log.gaps == [gap(1)]  # not declared: its bytes must not go
    log.append(gap(3))
    assert opened(path).gaps == [gap(1), gap(3)]


def test_a_rewrite_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "gaps.log"
    log = opened(path)
    for number in (1, 2, 3):
        log.append(gap(number))
    with files_end_at(30), pytest.raises(OSError, match="too large"):
        log.compact([gap(3)])
    assert log.gaps == opened(path).gaps == [gap(1), gap(2), gap(3)]
    log.compact([gap(3)])
    log.append(gap(4))
    assert log.gaps == opened(path).gaps == [gap(3), gap(4)]


@pytest.mark.parametrize("block", [0, 3])
def test_losses_outside_of_an_unreadable_block_are_kept_and_the_file_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path, disk = tmp_path / "rocketbox/gaps.log", BadDisk()
    path.parent.mkdir()
    monkeypatch.setattr(unreadable, "RealDisk", lambda: disk)
    log = opened(path)
    for number in range(200):
        log.append(gap(number))
    (tmp_path / "other").write_bytes(b"readable")
    disk.bad["rocketbox/gaps.log"] = [(4096 * block, 4096 * block + 1)]
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    again = opened(path)
    assert 150 < len(again.gaps) < 200
    assert again.damage is not None
    assert path.with_name("gaps.log.damaged").exists()
    disk.bad.clear()
    assert opened(path).gaps == again.gaps
