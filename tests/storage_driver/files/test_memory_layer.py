"""The layer against a real folder: the same random steps on a copy that is written and on one that is only read."""

import random
from pathlib import Path

import pytest

from storage_driver.files import unreadable
from storage_driver.files.disk import Disk, RealDisk, data_pieces
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.store import open_store
from tests.bad_disk import BadDisk
from tests.storage_driver.files.test_unreadable import SEGMENT, config, inside, made, missing

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


def test_what_was_written_over_a_bad_sector_is_read_from_memory(tmp_path: Path) -> None:
    below, path = BadDisk(), tmp_path / "a"
    path.write_bytes(b"x" * 10_000)
    below.bad[f"{tmp_path.name}/a"] = [(4096, 10_000)]
    file = MemoryLayer(below).open(path)
    for page, size in ((1, 4096), (2, 10_000 - 8192)):
        with pytest.raises(OSError, match="Input"):
            file.read(size, page * 4096)
        with pytest.raises(OSError, match="Input"):
            file.write([b"y"], page * 4096 + 5)
        file.write([b"z" * size], page * 4096)
        file.write([b"y"], page * 4096 + 5)
    assert file.read(10_000, 0) == b"x" * 4096 + b"zzzzzy" + b"z" * 4090 + b"zzzzzy" + b"z" * (10_000 - 8198)
    assert path.read_bytes() == b"x" * 10_000


async def test_a_store_on_a_disk_that_takes_no_writes_starts_with_bad_sectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    sent = await made(tmp_path)
    for at in (0, 7 * 4096, (max(place + size for place, size, _ in sent.values()) % SEGMENT) // 4096 * 4096):
        disk = BadDisk()
        newest = max(place for place, _, _ in sent.values()) // SEGMENT * SEGMENT
        disk.bad = {f"commitlog/{base:020d}": [(at, at + 4096)] for base in (0, newest)}
        lost = sorted({*inside(sent, at, at + 4096), *inside(sent, newest + at, newest + at + 4096)})
        layer = MemoryLayer(disk)
        async with open_store(config(tmp_path, read_only=True), now_ms=lambda: 6, disk=layer) as store:
            assert await missing(store, sent) == lost
            assert store.losses.unacknowledged()
