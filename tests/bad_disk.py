"""A real disk with sectors that cannot be read."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from storage_driver.files.disk import DiskFile, RealDisk, RealFile, SyncFailed

BLOCK = 4096


class BadDisk(RealDisk):
    """`bad`: folder and name of a file -> byte ranges of it that give EIO, until their blocks are written over.

    `gone`: every read fails but of what is `cached`, told as `bad` is. A write of a part of a bad block fails, as the
    system reads the block first.
    `worn`: inode -> byte ranges that take no write: it is lost, and the next sync of the file fails.
    """

    def __init__(self) -> None:
        self.bad: dict[str, list[tuple[int, int]]] = {}
        self.gone = False
        self.cached: dict[str, list[tuple[int, int]]] = {}
        self.worn: dict[int, list[tuple[int, int]]] = {}
        self._lost: set[int] = set()  # inodes with a write that was lost

    def wear(self, path: Path, start: int, end: int) -> None:
        """Have a part of a file take no write."""
        self.worn.setdefault(path.stat().st_ino, []).append((start, end))

    def lose(self, fd: int, start: int, end: int) -> list[tuple[int, int]]:
        """Return what of a write reaches the disk."""
        inode, parts = os.fstat(fd).st_ino, [(start, end)]
        for low, high in self.worn.get(inode, ()):
            left = [part for a, b in parts for part in ((a, min(b, low)), (max(a, high), b)) if part[0] < part[1]]
            if left != parts:
                self._lost.add(inode)
            parts = left
        return parts

    def sync_fails(self, fd: int) -> bool:
        """Tell once that a write was lost."""
        inode = os.fstat(fd).st_ino
        failed = inode in self._lost
        self._lost.discard(inode)
        return failed

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open(path, create=create, read_only=read_only)
        assert isinstance(file, RealFile)
        return BadFile(self, os.dup(file._fd))

    def is_bad(self, fd: int, count: int, at: int) -> bool:
        """Tell whether something of a range is bad."""
        if self.gone:
            return not any(low <= at and at + count <= high for low, high in self.cached.get(_name_of(fd), ()))
        return any(at < high and low < at + count for low, high in self.bad.get(_name_of(fd), ()))

    def mend(self, fd: int, count: int, at: int) -> None:
        """Give back the blocks that are written over as a whole."""
        ranges, end = self.bad.get(_name_of(fd), []), at + count
        start = -(-at // BLOCK) * BLOCK
        end = -(-end // BLOCK) * BLOCK if end >= os.fstat(fd).st_size else end // BLOCK * BLOCK
        if start < end:
            parts = [part for low, high in ranges for part in ((low, min(high, start)), (max(low, end), high))]
            ranges[:] = [(low, high) for low, high in parts if low < high]


def _name_of(fd: int) -> str:
    path = Path(os.readlink(f"/proc/self/fd/{fd}"))  # a segment gets its name late
    return f"{path.parent.name}/{path.name}"


class BadFile(RealFile):
    """An open file of such a disk; what is bad is never in the page cache."""

    __slots__ = ("_disk",)

    def __init__(self, disk: BadDisk, fd: int) -> None:
        super().__init__(fd)
        self._disk = disk

    def read(self, count: int, at: int) -> bytes:
        count = min(count, self.size() - at)
        if count > 0 and self._disk.is_bad(self._fd, count, at):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(max(0, count), at)

    def read_medium(self, at: int) -> bytes:
        if self._disk.gone or self._disk.is_bad(self._fd, BLOCK, at):
            raise OSError(errno.EIO, "Input/output error")
        return super().read_medium(at)

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        is_bad = BadDisk.is_bad(self._disk, self._fd, sum(map(len, buffers)), at)
        return not is_bad and super().fill_hot(buffers, at)

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        end = at + sum(map(len, pieces))
        for edge, block in ((at, at // BLOCK), (end, (end - 1) // BLOCK)):
            in_file = edge % BLOCK and not (edge == end and end >= self.size())
            if in_file and not self._disk.gone and self._disk.is_bad(self._fd, BLOCK, block * BLOCK):
                raise OSError(errno.EIO, "Input/output error")
        parts = self._disk.lose(self._fd, at, end) if self._disk.worn else [(at, end)]
        if parts == [(at, end)]:
            super().write(pieces, at)
        else:
            data = b"".join(pieces)
            for low, high in parts:
                super().write([data[low - at : high - at]], low)
        self._disk.mend(self._fd, end - at, at)

    def sync(self, *, in_place: bool = False) -> None:
        if self._disk.worn and self._disk.sync_fails(self._fd):
            raise SyncFailed(errno.EIO, "Input/output error")
        super().sync(in_place=in_place)
