"""A real disk with sectors that cannot be read."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from storage_driver.files.disk import DiskFile, RealDisk, RealFile


class BadDisk(RealDisk):
    """`bad`: name of a file of the log -> byte ranges of it that give EIO."""

    def __init__(self) -> None:
        self.bad: dict[str, list[tuple[int, int]]] = {}

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open(path, create=create, read_only=read_only)
        assert isinstance(file, RealFile)
        return BadFile(self, os.dup(file._fd))

    def is_bad(self, fd: int, count: int, at: int) -> bool:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))  # a segment gets its name late
        ranges = self.bad.get(path.name, []) if path.parent.name == "commitlog" else []
        return any(at < end and start < at + count for start, end in ranges)


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
