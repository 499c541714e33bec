from pathlib import Path

import pytest

from storage_driver.files import unreadable
from storage_driver.files.checkpoint import (
    CheckpointFile,
    CheckpointValues,
    CommittedFile,
    FirstFile,
    PositionFile,
    Times,
)
from storage_driver.files.disk import RealDisk
from storage_driver.files.unreadable import ZeroingDisk
from tests.bad_disk import BadDisk


def position(number: int) -> CheckpointValues:
    return CheckpointValues(number, number - 1, 3, 1700000000000, b"0123456789abcdef")


def test_the_newest_intact_position_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "position"
    assert PositionFile(RealDisk(), path).load() is None
    file = PositionFile(RealDisk(), path)
    for number in range(1, 6):
        file.save(position(number))
    assert PositionFile(RealDisk(), path).load() == position(5)
    raw = bytearray(path.read_bytes())
    for at in (0, 4096):
        torn = bytearray(raw)
        torn[at + 20] ^= 1
        path.write_bytes(torn)
        assert PositionFile(RealDisk(), path).load() in (position(4), position(5))
    path.write_bytes(b"\0" * 8192)
    assert PositionFile(RealDisk(), path).load() is None
    path.write_bytes(raw[:10])
    assert PositionFile(RealDisk(), path).load() is None


def test_positions_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "position"
    for number in range(1, 5):
        file = PositionFile(RealDisk(), path)
        file.load()
        file.save(position(number))
        assert PositionFile(RealDisk(), path).load() == position(number)


def test_the_checkpoint_is_apaches_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(24) + b"\x05" * 16 + bytes(4056))
    CheckpointFile(RealDisk(), path).save(Times(1700000000456, 1700000000123, 1700000000000))
    raw = path.read_bytes()
    assert raw[:40].hex() == "0000018bcfe569c80000018bcfe5687b0000018bcfe56800" + "05" * 16
    assert len(raw) == 4096
    times = CheckpointFile(RealDisk(), path).load()
    assert times is not None
    assert times.restart_ms == 1700000000123 - 3000
    path.write_bytes(b"short")
    assert CheckpointFile(RealDisk(), path).load() is None


def test_a_committed_mark_never_falls_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "committed"
    assert CommittedFile(RealDisk(), path).load() is None
    for log_offset, known in ((100, 100), (50, 100), (300, 300)):
        file = CommittedFile(RealDisk(), path)
        file.load()
        file.save(log_offset)
        assert CommittedFile(RealDisk(), path).load() == known
    raw = bytearray(path.read_bytes())
    raw[20] ^= raw[4096 + 20] ^ 1
    path.write_bytes(raw)
    assert CommittedFile(RealDisk(), path).load() in (100, 300)


@pytest.mark.parametrize("block", [0, 1])
def test_of_a_file_with_an_unreadable_slot_the_other_is_taken_where_an_older_value_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    bad, folder = BadDisk(), tmp_path / "rocketbox"
    folder.mkdir()
    (tmp_path / "abort").write_bytes(b"readable")
    disk = ZeroingDisk(bad, tmp_path)
    first, committed = FirstFile(disk, tmp_path), CommittedFile(disk, folder / "committed")
    for log_offset in (100, 200):
        first.save(log_offset)
        committed.save(log_offset)
    for name in ("first", "committed"):
        bad.bad[f"rocketbox/{name}"] = [(block * 4096, block * 4096 + 1)]
    disk = ZeroingDisk(bad, tmp_path)
    first, committed = FirstFile(disk, tmp_path), CommittedFile(disk, folder / "committed")
    assert first.load() is None, "what an older value misses may have been deleted on purpose"
    assert (committed.load(), committed.damage is not None) == ((100, 200)[block == 1], True)
    first.save(300)
    committed.save(300)
    disk = ZeroingDisk(bad, tmp_path)
    assert FirstFile(disk, tmp_path).load() in (None, 300)
    assert CommittedFile(disk, folder / "committed").load() == 300
