import random
from pathlib import Path

import pytest

from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.vote_file import BLOCK_BYTES, SLOT_BYTES, VoteFile, decode_slot, encode_slot, newest
from storage_driver.errors import VoteFileDamaged
from storage_driver.files import unreadable
from storage_driver.files.disk import RealDisk
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.testing import MemoryDisk
from tests.bad_disk import BadDisk

STATES = [
    HardState(),
    HardState(1, "a"),
    HardState(2),
    HardState(2, "b", filling=True),
    HardState(7, "witness-of-sixte", 6, 1 << 40),
]


def test_a_slot_has_these_bytes() -> None:
    raw = encode_slot(3, HardState(5, "box-a", 4, 4096))
    assert raw.hex() == (
        "524258564f544531"
        "0000000000000003"
        "0000000000000005"
        "626f782d610000000000000000000000"
        "0000000000000004"
        "0000000000001000"
        "6d40922d"
        "00000000"
    )
    assert decode_slot(raw) == (3, HardState(5, "box-a", 4, 4096))


def test_any_other_byte_makes_a_slot_void() -> None:
    raw = encode_slot(3, HardState(5, "box-a"))
    for at in range(SLOT_BYTES):
        torn = bytearray(raw)
        torn[at] ^= 0x40
        assert decode_slot(bytes(torn)) is None
    assert decode_slot(raw[:-1]) is None
    assert decode_slot(bytes(SLOT_BYTES)) is None
    assert newest([bytes(SLOT_BYTES), raw]) == (3, HardState(5, "box-a"))
    assert newest([bytes(SLOT_BYTES)]) is None


def test_a_member_id_has_16_bytes_at_most() -> None:
    with pytest.raises(ValueError, match="17 bytes"):
        encode_slot(1, HardState(1, "a" * 17))


def test_what_was_saved_last_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "vote"
    file = VoteFile(RealDisk(), path)
    file.create(STATES[0])
    for state in STATES:
        file.save(state)
        file = VoteFile(RealDisk(), path)
        assert file.load() == state
    with pytest.raises(FileExistsError, match="has voted before"):
        VoteFile(RealDisk(), path).create(HardState())


@pytest.mark.parametrize("harm", ["damaged", "unreadable"])
@pytest.mark.parametrize("slot", [0, 1])
def test_with_one_slot_a_member_votes_as_one_with_a_new_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int, harm: str
) -> None:
    """It may be the newer one, in which it voted: the older one's term is over, and its vote counts no more."""
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    path, disk = tmp_path / "rocketbox/vote", BadDisk()
    path.parent.mkdir()
    file = VoteFile(disk, path)
    file.create(HardState())
    file.save(HardState(4, "a"))
    file.save(HardState(5, "b"))
    if harm == "unreadable":
        disk.bad["rocketbox/vote"] = [(slot * BLOCK_BYTES, slot * BLOCK_BYTES + 1)]
    else:
        with path.open("r+b") as opened:
            opened.seek(slot * BLOCK_BYTES)
            opened.write(bytes(SLOT_BYTES))
    inode = path.stat().st_ino
    file = VoteFile(ZeroingDisk(disk, tmp_path), path)
    known = file.load(3)
    assert known in (HardState(4, "", filling=True), HardState(5, "", filling=True))
    assert file.doubt is not None
    assert path.stat().st_ino != inode
    disk.bad.clear()
    again = VoteFile(disk, path)
    assert (again.load(), again.doubt) == (known, None)
    again.save(HardState(8, "a"))
    assert VoteFile(disk, path).load() == HardState(8, "a")


def test_without_any_slot_the_terms_of_the_log_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    path, disk = tmp_path / "rocketbox/vote", BadDisk()
    path.parent.mkdir()
    (tmp_path / "abort").write_bytes(b"readable")
    VoteFile(disk, path).create(HardState(9, "a"))
    disk.bad["rocketbox/vote"] = [(0, 2 * BLOCK_BYTES)]
    assert VoteFile(ZeroingDisk(disk, tmp_path), path).load(7) == HardState(7, "", filling=True)


def test_two_bad_slots_refuse(tmp_path: Path) -> None:
    path = tmp_path / "vote"
    file = VoteFile(RealDisk(), path)
    file.create(HardState())
    file.save(HardState(4, "a"))
    file.save(HardState(5, "b"))
    path.write_bytes(bytes(2 * BLOCK_BYTES))
    with pytest.raises(VoteFileDamaged, match="under a new id"):
        VoteFile(RealDisk(), path).load()
    path.unlink()
    with pytest.raises(VoteFileDamaged, match="missing"):
        VoteFile(RealDisk(), path).load()


def test_after_a_failed_write_nothing_is_saved_any_more() -> None:
    disk = MemoryDisk(folders=["/", "/d"])
    file = VoteFile(disk, Path("/d/vote"))
    file.create(HardState())
    disk.fail_at = len(disk.steps) + 1
    with pytest.raises(OSError, match="rror"):
        file.save(HardState(1, "a"))
    disk.fail_at = None
    with pytest.raises(OSError, match="restart the member"):
        file.save(HardState(1, "a"))


def test_a_power_cut_at_any_step_leaves_the_state_saved_before_or_the_one_being_saved() -> None:
    seed = random.randrange(1 << 32)
    for fail_at in range(4, 40):
        disk = MemoryDisk(folders=["/", "/d"])
        file = VoteFile(disk, Path("/d/vote"))
        file.create(HardState())
        disk.fail_at, saved, saving = len(disk.steps) + fail_at - 4, HardState(), HardState()
        try:
            for number in range(12):
                saving = HardState(number + 1, "ab"[number % 2])
                file.save(saving)
                saved = saving
        except OSError:
            pass
        for number in range(8):
            left = disk.after_power_cut(random.Random(seed + number))
            assert VoteFile(left, Path("/d/vote")).load() in (saved, saving), (seed, fail_at)
