import errno
import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_driver.files.disk import DiskFile, RealDisk
from storage_driver.files.free_space import RELEASED_BYTES, make_room, release_space
from storage_driver.store import open_store
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def segment(folder: Path, *, written: int, size: int) -> Path:
    folder.mkdir(parents=True)
    path = folder / f"{0:020d}"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        file.write(b"x" * written)
        file.flush()
        os.fsync(file.fileno())
    return path


def test_what_is_held_in_advance_goes_first_then_blocks_behind_the_end_of_the_log(tmp_path: Path) -> None:
    path = segment(tmp_path / "commitlog", written=100_000, size=16 << 20)
    for name in ("reserve", "spare.tmp", "next.tmp"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "commitlog/99").write_bytes(b"no file of the log")
    disk = RealDisk()
    assert release_space(disk, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["commitlog"]
    before = blocks(path)
    assert release_space(disk, tmp_path)
    assert before - blocks(path) == RELEASED_BYTES
    assert path.read_bytes() == b"x" * 100_000 + bytes((16 << 20) - 100_000)


def test_nothing_of_the_log_itself_is_let_go(tmp_path: Path) -> None:
    path = segment(tmp_path / "commitlog", written=1 << 20, size=1 << 20)
    assert not release_space(RealDisk(), tmp_path)
    assert path.read_bytes() == b"x" * (1 << 20)
    assert not release_space(RealDisk(), tmp_path / "empty")


async def test_nothing_is_taken_from_a_store_that_serves(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        await put_all(store, [message()])
        assert not make_room(root)
    (root / "reserve").write_bytes(b"x")
    assert make_room(root)
    assert not make_room(tmp_path / "elsewhere")


class Full(RealDisk):
    """A disk on which nothing new has room until something is let go."""

    full = False
    lacks = ""  # the only name that has no room

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        if create and self.full and not path.exists() and path.name.startswith(self.lacks):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, create=create, read_only=read_only)

    def remove(self, path: Path) -> None:
        self.full = self.full and path.name not in ("reserve", "spare.tmp")
        super().remove(path)


@pytest.mark.parametrize("lacks", ["", "queues.json", "clock.json"])
async def test_a_store_starts_on_a_disk_that_is_full_to_the_last_block(tmp_path: Path, lacks: str) -> None:
    disk = Full()
    disk.lacks = lacks
    async with open_store(small(tmp_path), now_ms=Clock(), disk=disk) as store:
        await put_all(store, [message()])
    (tmp_path / "store" / "reserve").write_bytes(b"x")
    disk.full = True
    async with open_store(small(tmp_path), now_ms=Clock(), disk=disk) as store:
        assert await bodies(store) == [b"hello"]
    assert not disk.full


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small ext4 of its own."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"no loop mount here ({exc}): run as root with loop devices")
    try:
        yield folder
    finally:
        gc.collect()  # a file is closed with its last reference
        subprocess.run(["umount", "-l", folder], check=True)


def take_all(path: Path, size: int) -> None:
    """Be another program that fills the disk. Raises OSError."""
    with path.open("wb", buffering=0) as other:
        while other.write(bytes(size)):
            pass


async def test_the_same_on_a_real_file_system_without_a_free_block(mounted: Path) -> None:
    config = small(mounted, segment_bytes=32 << 20)
    async with open_store(config, now_ms=Clock()) as store:
        await put_all(store, [message()])
    for size in (1 << 20, 4096):
        with pytest.raises(OSError, match="No space"):
            take_all(mounted / f"other{size}", size)
    for _ in range(2):
        async with open_store(config, now_ms=Clock()) as store:
            assert await bodies(store) == [b"hello"]
            await store.prove()
