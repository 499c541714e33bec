"""Sectors that the disk does not give back: EIO. They are damage, as wrong bytes are, and refuse no start.

A `ZeroingDisk` reads such blocks as zeros, once it is sure of them: it read them again after a while, and another block
came from the disk itself. A disk that is gone fails every read, so nothing is taken for damage there.
"""

import errno
import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from storage_driver.files.disk import Disk, DiskFile, FileFacts, FileLock, RealDisk, Usage

BLOCK: Final = 4096  # bytes; the page cache reads no less
TRIES, PAUSE_S = 3, 1.0  # of the first block; bad sectors come in crowds, so that others are read twice at once
_FOLDERS: Final = ("", "rocketbox", "commitlog", "config", "index")  # where a start finds something to read


def only_unreadable(exc: OSError) -> None:
    """Return for the error of a sector that the disk does not give back. Raises any other one."""
    if exc.errno != errno.EIO:
        raise exc


def write_over(file: DiskFile, pieces: Sequence[bytes], at: int) -> None:
    """Write; a block of which only a part is written is read first by the system, so that an unreadable one is zeroed.

    Raises OSError.
    """
    try:
        file.write(pieces, at)
    except OSError as exc:
        only_unreadable(exc)
        last = at + max(1, sum(map(len, pieces))) - 1
        zeroed = [_zero_unreadable(file, block) for block in sorted({at // BLOCK, last // BLOCK})]
        if True not in zeroed:
            raise
        file.write(pieces, at)


def _zero_unreadable(file: DiskFile, block: int) -> bool:
    """Zero a block that cannot be read; return whether it was one."""
    try:
        file.read(BLOCK, block * BLOCK)
    except OSError as exc:
        only_unreadable(exc)
        file.write([bytes(min(BLOCK, file.size() - block * BLOCK))], block * BLOCK)
        return True
    return False


class ZeroingFile:
    """An open file of such a disk."""

    __slots__ = ("_disk", "_path", "below")

    def __init__(self, disk: "ZeroingDisk", below: DiskFile, path: Path) -> None:
        self._disk, self.below, self._path = disk, below, path

    @property
    def blocks(self) -> Collection[int]:
        """The numbers of the blocks that read as zeros; all who have the file open share them."""
        return self._disk.blocks.get(self._path, ()) if self._disk.blocks else ()

    def size(self) -> int:
        return self.below.size()

    def read(self, count: int, at: int) -> bytes:
        if not self.blocks or not _any_in(self.blocks, at // BLOCK, (at + count - 1) // BLOCK):
            try:
                data = self.below.read(count, at)
            except OSError as exc:
                only_unreadable(exc)
            else:
                if data:
                    self._disk.gave(self._path, at)
                return data
        return self._patched(at, min(at + count, self.below.size()))

    def _patched(self, start: int, end: int) -> bytes:
        """Return the bytes of a range, block by block where it cannot be read as a whole."""
        first, last = start // BLOCK, (end - 1) // BLOCK
        if start >= end or (first == last and first in self.blocks):
            return bytes(max(0, end - start))
        if not _any_in(self.blocks, first, last):
            try:
                return self.below.read(end - start, start)
            except OSError as exc:
                only_unreadable(exc)
                if first == last:
                    return self._confirmed(start, end, exc)
        middle = (first + last + 1) // 2 * BLOCK
        return self._patched(start, middle) + self._patched(middle, end)

    def _confirmed(self, start: int, end: int, error: OSError) -> bytes:
        """Return the bytes of a block that could not be read, zeros once that is sure. Raises the error."""
        data = self._disk.read_again(self.below, start, end, error)
        if data is None:
            self._disk.note(self._path, start // BLOCK)
            return bytes(end - start)
        return data

    def read_hot(self, count: int, at: int) -> bytes | None:
        return self.below.read_hot(count, at)

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return self.below.fill_hot(buffers, at)

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        write_over(self.below, pieces, at)
        if self.blocks:
            last = at + max(1, sum(map(len, pieces))) - 1
            self._disk.wrote(self._path, at // BLOCK, last // BLOCK)

    def sync(self, *, in_place: bool = False) -> None:
        self.below.sync(in_place=in_place)

    def resize(self, size: int) -> None:
        self.below.resize(size)

    def allocate(self, size: int) -> None:
        self.below.allocate(size)

    def punch(self, at: int, count: int) -> None:
        self.below.punch(at, count)

    def next_data(self, at: int) -> tuple[int, int] | None:
        return self.below.next_data(at)

    def advise(self, at: int, count: int, advice: int) -> None:
        self.below.advise(at, count, advice)


def read_around(path: Path) -> tuple[bytes, bool]:
    """Return what a file holds, zeros where it cannot be read, and whether there is any. Blocks. Raises OSError."""
    file = ZeroingDisk(RealDisk(), path.parent.parent).open(path, read_only=True)
    data = file.read(file.size(), 0)
    return data, bool(unreadable_in(file, 0, len(data)))


def plain(file: DiskFile) -> DiskFile:
    """Return the file as its disk has it."""
    return file.below if isinstance(file, ZeroingFile) else file


def unreadable_in(file: DiskFile, start: int, end: int) -> list[tuple[int, int]]:
    """Return the byte ranges of [start, end) that were read as zeros, ascending."""
    if not isinstance(file, ZeroingFile) or not file.blocks:
        return []
    return [
        (max(start, low * BLOCK), min(end, high * BLOCK))
        for low, high in _runs(sorted(file.blocks))
        if low * BLOCK < end and start < high * BLOCK
    ]


def zero_unreadable(file: DiskFile, start: int, end: int) -> None:
    """Write zeros over what is unreadable of [start, end): then it can be read. Raises OSError."""
    for low, high in unreadable_in(file, start, end):
        file.write([bytes(high - low)], low)


def _any_in(blocks: Collection[int], first: int, last: int) -> bool:
    if last - first < len(blocks):
        return any(block in blocks for block in range(first, last + 1))
    return any(first <= block <= last for block in blocks)


def _runs(blocks: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and runs[-1][1] == block:
            runs[-1] = runs[-1][0], block + 1
        else:
            runs.append((block, block + 1))
    return runs


class ZeroingDisk:
    """The disk of a store with unreadable sectors; `told()` says where they are."""

    def __init__(self, below: Disk, root: Path) -> None:
        self.blocks: dict[Path, set[int]] = {}  # of the files that have any
        self._ever: dict[Path, set[int]] = {}
        self._below, self._root = below, root
        self._gave: tuple[Path, int] | None = None
        self._sure = False

    def told(self) -> list[str]:
        """Return which bytes of which files could not be read; they may have been written over since."""
        return [
            f"{path.relative_to(self._root)}: the disk does not give back bytes {low * BLOCK} to {high * BLOCK}"
            for path, blocks in sorted(self._ever.items())
            for low, high in _runs(sorted(blocks))
        ]

    def note(self, path: Path, block: int) -> None:
        """Note a block that is unreadable."""
        self.blocks.setdefault(path, set()).add(block)
        self._ever.setdefault(path, set()).add(block)

    def wrote(self, path: Path, first: int, last: int) -> None:
        """Forget blocks that were written over: they can be read again."""
        left = {block for block in self.blocks.get(path, ()) if not first <= block <= last}
        self.blocks.pop(path, None)
        if left:
            self.blocks[path] = left

    def gave(self, path: Path, at: int) -> None:
        """Note a read that did not fail; by name, since an open file would keep its space when it is deleted."""
        self._gave = path, at

    def read_again(self, file: DiskFile, start: int, end: int, error: OSError) -> bytes | None:
        """Return the bytes of a block that could not be read, None when it is sure that they cannot.

        Raises `error` where the disk gives back nothing at all.
        """
        for _ in range(1 if self._sure else TRIES - 1):
            time.sleep(0 if self._sure else PAUSE_S)
            try:
                return file.read(end - start, start)
            except OSError as exc:
                only_unreadable(exc)
        if not self._gives():
            raise error
        self._sure = True
        return None

    def _gives(self) -> bool:
        """Tell whether the disk gives back anything: what was read last, else the beginning of some file."""
        if self._gave is not None and self._comes(*self._gave):
            return True
        paths = [self._root / name / facts.name for name in _FOLDERS for facts in self._files(self._root / name)]
        return any(self._comes(path, 0) for path in paths)

    def _comes(self, path: Path, at: int) -> bool:
        """Tell whether a block comes from the disk, and not from the page cache."""
        try:
            file = self._below.open(path, read_only=True)
            file.advise(at, BLOCK, os.POSIX_FADV_DONTNEED)
            return bool(file.read(BLOCK, at))
        except OSError:
            return False

    def _files(self, folder: Path) -> Iterator[FileFacts]:
        return (facts for facts in self._below.list(folder) if facts.size and not facts.is_folder and not facts.odd)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        return ZeroingFile(self, self._below.open(path, create=create, read_only=read_only), path)

    def rename(self, source: Path, target: Path) -> None:
        self._below.rename(source, target)
        self._name(target, self.blocks.pop(source, None))

    def link(self, source: Path, target: Path) -> None:
        self._below.link(source, target)
        self._name(target, self.blocks.get(source))

    def _name(self, path: Path, blocks: set[int] | None) -> None:
        self.blocks.pop(path, None)
        if blocks:
            self.blocks[path] = set(blocks)

    def remove(self, path: Path) -> None:
        self._below.remove(path)
        self.blocks.pop(path, None)

    def remove_folder(self, path: Path) -> None:
        self._below.remove_folder(path)

    def make_folder(self, path: Path) -> None:
        self._below.make_folder(path)

    def sync_folder(self, path: Path) -> None:
        self._below.sync_folder(path)

    def sync_all(self, path: Path) -> None:
        self._below.sync_all(path)

    def list(self, path: Path) -> list[FileFacts]:
        return self._below.list(path)

    def exists(self, path: Path) -> bool:
        return self._below.exists(path)

    def usage(self, path: Path) -> Usage:
        return self._below.usage(path)

    def boot_id(self) -> str:
        return self._below.boot_id()

    def lock(self, path: Path) -> FileLock:
        return self._below.lock(path)
