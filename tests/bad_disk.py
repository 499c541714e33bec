"""A real disk with sectors that cannot be read."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from storage_driver.files.disk import DiskFile, RealDisk, RealFile


class BadDisk(RealDisk):
    """`bad`: folder and name of a file -> byte ranges of it that give EIO, until they are written over as a whole."""

    def __init__(self) -> None:
        self.bad: dict[str, list[tuple[int, int]]] = {}

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open(path, create=create, read_only=read_only)
        assert isinstance(file, RealFile)
        return BadFile(self, os.dup(file._fd))

    def is_bad(self, fd: int, count: int, at: int) -> bool:
        return any(at < end and start < at + count for start, end in self.bad.get(_name_of(fd), ()))

    def mend(self, fd: int, count: int, at: int) -> None:
        ranges = self.bad.get(_name_of(fd), [])
        ranges[:] = [(start, end) for start, end in ranges if not (at <= start and end <= at + count)]


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
        if self._disk.is_bad(self._fd, count, at):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(count, at)

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return not self._disk.is_bad(self._fd, sum(map(len, buffers)), at) and super().fill_hot(buffers, at)

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        super().write(pieces, at)
        self._disk.mend(self._fd, sum(map(len, pieces)), at)
