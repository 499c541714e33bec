"""Frames on disk: what a power cut tears, what the disk loses, and that a new file takes the place of the old one."""

import errno
import random
from pathlib import Path

import pytest

from storage_driver.files.disk import RealDisk
from storage_driver.files.journal_file import AHEAD, JournalFile, encode_frame, read_frames
from storage_driver.testing import MemoryDisk

PATH = Path("/data/x.journal")


def journal(disk: MemoryDisk) -> JournalFile:
    return JournalFile(disk, PATH)


def test_what_was_appended_is_there_again_in_order(tmp_path: Path) -> None:
    written = JournalFile(RealDisk(), tmp_path / "x.journal")
    assert written.load().payloads == []
    written.replace([b"table"])
    for number in range(3):
        written.append(b"change %d" % number)
    again = JournalFile(RealDisk(), tmp_path / "x.journal")
    assert again.load() == ([b"table", b"change 0", b"change 1", b"change 2"], 4, 0, None)
    again.replace([b"new table"])
    assert JournalFile(RealDisk(), tmp_path / "x.journal").load().payloads == [b"new table"]


def test_appends_that_stay_among_the_zeros_change_no_length(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    written = JournalFile(RealDisk(), path)
    written.replace([b"table"])
    size = path.stat().st_size
    written.append(b"x" * 1000)
    assert path.stat().st_size == size
    written.append(b"x" * AHEAD)
    assert path.stat().st_size > size + AHEAD
    assert len(JournalFile(RealDisk(), path).load().payloads) == 3


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_torn_frame_ends_the_journal(cut: int) -> None:
    whole, last = encode_frame(1, b"first"), encode_frame(2, b"last" * 5)
    found = read_frames(whole + last[:-cut] + bytes(100))
    assert found.payloads == [b"first"]
    assert found.damage is None
    assert found.torn_bytes == len(last[:-cut].rstrip(b"\0"))


def test_a_damaged_frame_among_whole_ones_is_told_and_the_others_are_used() -> None:
    frames = [encode_frame(number, b"payload %d" % number) for number in (1, 2, 3)]
    raw = bytearray(b"".join(frames))
    raw[len(frames[0]) + 25] ^= 1
    found = read_frames(bytes(raw))
    assert found.payloads == [b"payload 1", b"payload 3"]
    assert found.damage == f"bytes {len(frames[0])} to {len(frames[0]) * 2} are damaged"


def test_a_frame_of_an_earlier_file_is_not_taken_for_a_later_one() -> None:
    assert read_frames(encode_frame(5, b"new") + encode_frame(4, b"old")).payloads == [b"new"]


def test_what_ends_like_a_frame_inside_a_payload_is_no_frame() -> None:
    inside = encode_frame(9, b"inside")
    found = read_frames(encode_frame(1, inside) + encode_frame(2, b"after"))
    assert found.payloads == [inside, b"after"]


@pytest.mark.parametrize("seed", range(20))
def test_at_any_power_cut_all_that_was_synced_is_there(seed: int) -> None:
    disk, pick = MemoryDisk(folders=("/", "/data")), random.Random(seed)
    written = journal(disk)
    synced: list[tuple[int, list[bytes]]] = [(0, [])]
    for number in range(20):
        before = synced[-1][1]
        if number % 7 == 0:
            written.replace([b"".join(before)])
            synced.append((len(disk.steps), [b"".join(before)]))
        else:
            payload = pick.randbytes(pick.choice((10, 600, 5000)))
            written.append(payload)
            synced.append((len(disk.steps), [*before, payload]))
    live = MemoryDisk(folders=("/", "/data"))
    for number, step in enumerate(disk.steps):
        least = b"".join([payloads for at, payloads in synced if at <= number][-1])
        found = journal(live.after_power_cut(pick)).load()
        assert b"".join(found.payloads).startswith(least)
        assert found.damage is None
        live.apply(step)


def test_after_a_failed_append_the_file_is_replaced() -> None:
    disk = MemoryDisk(folders=("/", "/data"))
    written = journal(disk)
    written.replace([b"table"])
    disk.fail_at, disk.fail_with = len(disk.steps) + 1, errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        written.append(b"lost")
    assert not written.ready
    assert written.failure is not None
    written.replace([b"table and more"])
    assert written.failure is None
    assert journal(disk.restarted()).load().payloads == [b"table and more"]
