"""A real disk with sectors that cannot be read."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from storage_driver.files.disk import DiskFile, RealDisk, RealFile

BLOCK = 4096


class BadDisk(RealDisk):
    """`bad`: folder and name of a file -> byte ranges of it that give EIO, until their blocks are written over.

    `gone`: every read fails. A write of a part of a bad block fails, as the system reads the block first.
    """

    def __init__(self) -> None:
        self.bad: dict[str, list[tuple[int, int]]] = {}
        self.gone = False

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open(path, create=create, read_only=read_only)
        assert isinstance(file, RealFile)
        return BadFile(self, os.dup(file._fd))

    def is_bad(self, fd: int, count: int, at: int) -> bool:
        """Tell whether something of a range is bad."""
        return self.gone or any(at < high and low < at + count for low, high in self.bad.get(_name_of(fd), ()))

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

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return not self._disk.is_bad(self._fd, sum(map(len, buffers)), at) and super().fill_hot(buffers, at)

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        end = at + sum(map(len, pieces))
        for edge, block in ((at, at // BLOCK), (end, (end - 1) // BLOCK)):
            in_file = edge % BLOCK and not (edge == end and end >= self.size())
            if in_file and not self._disk.gone and self._disk.is_bad(self._fd, BLOCK, block * BLOCK):
                raise OSError(errno.EIO, "Input/output error")
        super().write(pieces, at)
        self._disk.mend(self._fd, end - at, at)
