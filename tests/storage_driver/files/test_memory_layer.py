"""The layer against a real folder: the same random steps on a copy that is written and on one that is only read."""

import random
from pathlib import Path

import pytest

from storage_driver.files.disk import Disk, RealDisk, data_pieces
from storage_driver.files.memory_layer import MemoryLayer

NAMES = ("a", "b", "c/d", "c/e")
START = {"a": b"x" * 10_000, "c/d": b"y" * 5000 + bytes(20_000) + b"z"}


def fill(folder: Path) -> Path:
    for name, data in START.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def step(disk: Disk, folder: Path, chance: random.Random) -> object:
    """Do one thing; return what can be seen of it."""
    name, at, count = chance.choice(NAMES), chance.randrange(30_000), chance.randrange(1, 9000)
    what, other, byte = chance.choice("wwwrrtnxl"), chance.choice(NAMES), bytes([chance.randrange(256)])
    path, target = folder / name, folder / other
    try:
        if what == "w":
            disk.open(path, create=True).write([byte * (count // 2), byte * (count - count // 2)], at)
        elif what == "r":
            file, filled = disk.open(path, read_only=True), bytearray(count)
            data = file.read(count, at)
            if len(data) == count and file.fill_hot([memoryview(filled)[:9], memoryview(filled)[9:]], at):
                assert data == bytes(filled)
            return data
        elif what == "t":
            disk.open(path).resize(at)
        elif what == "n":
            disk.rename(path, target) if path != target else None
        elif what == "x":
            disk.remove(path)
        elif what == "l":
            disk.link(path, target)
    except (FileNotFoundError, FileExistsError) as exc:
        return type(exc)
    return None


def seen(disk: Disk, folder: Path) -> dict[str, bytes]:
    found = {}
    for below in (folder, folder / "c"):
        for facts in disk.list(below):
            if not facts.is_folder:
                file = disk.open(below / facts.name)
                whole = file.read(file.size(), 0)
                found[str((below / facts.name).relative_to(folder))] = whole
                assert len(whole) == facts.size == file.size()
                parts = bytearray(file.size())
                for at, data in data_pieces(file, 0, file.size()):
                    parts[at : at + len(data)] = data
                assert bytes(parts) == whole
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_shows_what_a_real_disk_would_and_changes_nothing_below(tmp_path: Path, seed: int) -> None:
    real, below = fill(tmp_path / "real"), fill(tmp_path / "below")
    disks: tuple[Disk, Disk] = (RealDisk(), MemoryLayer())
    for number in range(60):
        pairs = zip(disks, (real, below), strict=True)
        results = [step(disk, folder, random.Random(seed * 1000 + number)) for disk, folder in pairs]
        assert results[0] == results[1]
    assert seen(disks[0], real) == seen(disks[1], below)
    assert {str(p.relative_to(below)): p.read_bytes() for p in below.rglob("*") if p.is_file()} == START


def test_folders_made_and_removed_are_seen(tmp_path: Path) -> None:
    disk, below = MemoryLayer(), fill(tmp_path)
    disk.make_folder(below / "new/er")
    assert [facts.name for facts in disk.list(below)] == ["a", "c", "new"]
    assert disk.exists(below / "new/er")
    disk.remove_folder(below / "c")
    assert disk.list(below / "c") == []
    assert (below / "c/d").exists()
