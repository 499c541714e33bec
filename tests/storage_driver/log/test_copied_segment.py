"""The rest of a segment in a file of its own: what the log has before it, what comes, what the disk gives back."""

from pathlib import Path

import pytest

from storage_driver.crc import crc32
from storage_driver.log.copied_segment import COPY, CopiedSegment, CopyDiffers
from storage_driver.log.segment import Segment, segment_name
from storage_driver.testing import MemoryDisk, MemoryFile

SIZE = 1000
FOLDER = Path("/store/commitlog")


def no_check() -> None:
    pass


def disk_with(content: bytes) -> tuple[MemoryDisk, Segment]:
    """Return a disk with one segment that begins with some bytes."""
    path = FOLDER / segment_name(SIZE)
    disk = MemoryDisk({str(path): content.ljust(SIZE, b"\0")}, ("/", "/store", str(FOLDER)))
    return disk, Segment(SIZE, SIZE, path, disk.open(path))


def take(copied: CopiedSegment, data: bytes) -> None:
    copied.write(memoryview(data), crc32(data, copied.crc))


def test_what_the_log_has_of_the_segment_stands_before_what_comes() -> None:
    disk, tail = disk_with(b"a" * 300)
    copied = CopiedSegment(disk, FOLDER, SIZE, start=SIZE + 300, tail=tail)
    copied.begin(no_check)
    for part in (b"b" * 400, b"c" * 300):
        take(copied, part)
    assert copied.at == copied.end == 2 * SIZE
    copied.finish(no_check)
    assert tail.file.read(SIZE, 0) == (b"a" * 300).ljust(SIZE, b"\0"), "the log is as it was"
    segment = copied.install()
    assert disk.open(tail.path).read(SIZE, 0) == b"a" * 300 + b"b" * 400 + b"c" * 300
    assert (segment.base, segment.size, segment.path) == (SIZE, SIZE, tail.path)
    assert not disk.exists(FOLDER.parent / COPY)


def test_a_segment_of_which_the_log_has_nothing_comes_whole_and_again_where_it_was_another_one() -> None:
    disk, _ = disk_with(b"")
    copied = CopiedSegment(disk, FOLDER, SIZE, start=2 * SIZE, tail=None)
    copied.begin(no_check)
    take(copied, b"x" * 500)
    copied.start_again()
    assert (copied.at, copied.crc) == (2 * SIZE, 0)
    take(copied, b"y" * SIZE)
    copied.finish(no_check)
    copied.install()
    assert disk.open(FOLDER / segment_name(2 * SIZE)).read(SIZE, 0) == b"y" * SIZE


class Bad(MemoryFile):
    """A file whose last byte the disk has otherwise."""

    def read(self, count: int, at: int) -> bytes:
        data = super().read(count, at)
        return data[:-1] + b"?" if at + count >= SIZE else data


class BadDisk(MemoryDisk):
    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        opened = super().open(path, create=create, read_only=read_only)
        return Bad(self, opened._inode) if path.name == COPY else opened


def test_bytes_that_the_disk_does_not_give_back_are_told() -> None:
    disk = BadDisk({}, ("/", "/store", str(FOLDER)))
    copied = CopiedSegment(disk, FOLDER, SIZE, start=0, tail=None)
    copied.begin(no_check)
    take(copied, b"x" * SIZE)
    with pytest.raises(CopyDiffers, match="0 to 1000 are not those"):
        copied.finish(no_check)


def test_what_came_leaves_the_disk_when_nobody_wants_it() -> None:
    disk, _ = disk_with(b"")
    copied = CopiedSegment(disk, FOLDER, SIZE, start=0, tail=None)
    copied.begin(no_check)
    assert copied.begun
    copied.discard()
    assert not copied.begun
    assert not disk.exists(FOLDER.parent / COPY)
