"""Sectors that the disk does not give back: EIO. They are damage, as wrong bytes are, and refuse no start.

A `ZeroingDisk` reads such blocks as zeros, once it is sure of them: another block of that disk came from the medium,
not from the page cache, and this one could not be read after that either. A disk that is gone fails every read, so
nothing is taken for damage there, nor on one that was away for a moment.
"""

import errno
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from storage_driver.files.disk import Disk, DiskFile, FileFacts, FileLock, RealDisk, Usage

BLOCK: Final = 4096  # bytes; the page cache reads no less
TRIES, PAUSE_S = 3, 1.0  # of the first block; bad sectors come in crowds, so that others are read twice at once
MOST_ASKED: Final = 24  # blocks of which one has to come: each that does not may take the disk half a minute
_STEPS: Final = (256 * BLOCK, 16 * BLOCK, BLOCK)  # from the block in doubt to others of its file
_FOLDERS: Final = ("", "rocketbox", "commitlog", "config", "index")  # where a start finds something to read


def only_unreadable(exc: OSError) -> None:
    """Return for the error of a sector that the disk does not give back. Raises any other one."""
    if exc.errno != errno.EIO:
        raise exc


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
                return self.below.read(count, at)
            except OSError as exc:
                only_unreadable(exc)
        return b"".join(self._blocks(at, min(at + count, self.below.size())))

    def _blocks(self, at: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a range block by block, zeros for one that cannot be read once that is sure.

        What the page cache has not comes from the medium, so that a bad block is read as seldom as can be, by itself.
        """
        while at < end:
            block = at // BLOCK
            stop = min(end, (block + 1) * BLOCK)
            yield bytes(stop - at) if block in self.blocks else self._block(at, stop)
            at = stop

    def _block(self, start: int, end: int) -> bytes:
        data = self.below.read_hot(end - start, start)
        if data is not None:
            return data
        block = start // BLOCK
        try:
            found: bytes | None = self.below.read_medium(block * BLOCK)
        except OSError as exc:
            only_unreadable(exc)
            found = self._disk.read_again(self.below, block, exc, bad=self.blocks)
        if found is None:
            self._disk.note(self._path, block)
            return bytes(end - start)
        return found[start - block * BLOCK : end - block * BLOCK]

    def read_hot(self, count: int, at: int) -> bytes | None:
        return self.below.read_hot(count, at)

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return self.below.fill_hot(buffers, at)

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        """Write; the system reads a block first of which a part is written, so an unreadable one is zeroed before."""
        last = at + max(1, sum(map(len, pieces))) - 1
        try:
            self.below.write(pieces, at)
        except OSError as exc:
            only_unreadable(exc)
            for block in {at // BLOCK, last // BLOCK}:
                self.read(BLOCK, block * BLOCK)
                if block in self.blocks:
                    self.below.write([bytes(min(BLOCK, self.below.size() - block * BLOCK))], block * BLOCK)
            self.below.write(pieces, at)
        if self.blocks:
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

    def read_medium(self, at: int) -> bytes:
        return self.below.read_medium(at)

    def device(self) -> int:
        return self.below.device()


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
    first, last = start // BLOCK, (end - 1) // BLOCK
    if last - first < len(file.blocks):  # one record: there may be thousands, and each record asks
        inside = [block for block in range(first, last + 1) if block in file.blocks]
    else:
        inside = sorted(block for block in file.blocks if first <= block <= last)
    return [(max(start, low * BLOCK), min(end, high * BLOCK)) for low, high in _runs(inside)]


def zero_unreadable(file: DiskFile, start: int, end: int) -> None:
    """Write zeros over what is unreadable of [start, end): then it can be read. Raises OSError."""
    for low, high in unreadable_in(file, start, end):
        file.write([bytes(high - low)], low)


def _data_blocks(file: DiskFile, at: int, first: int = 0) -> Iterator[int]:
    """Yield the numbers of some blocks that have data: what is only allocated is zero without the medium."""
    size, seen = file.size(), set[int]()
    near = [at + sign * step for step in _STEPS for sign in (-1, 1)]
    for place in (first, 0, *near, size // 2, size - BLOCK):
        found = file.next_data(place) if 0 <= place < size else None
        if found is not None and (block := found[0] // BLOCK) not in seen:
            seen.add(block)
            yield block


def _comes(file: DiskFile, block: int) -> bool:
    """Tell whether the medium gives back a block."""
    try:
        return bool(file.read_medium(block * BLOCK))
    except OSError:
        return False


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

    def __init__(self, below: Disk, root: Path, *, counted: Callable[[int], None] = lambda count: None) -> None:
        """counted(number of blocks found so far) is called of each: a start may take its time with them."""
        self.blocks: dict[Path, set[int]] = {}  # of the files that have any
        self._ever: dict[Path, set[int]] = {}
        self._below, self._root, self._counted = below, root, counted
        self._sure, self._gave = False, -1  # the number of a block that came; asked first, so that a crowd costs less

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
        self._counted(sum(map(len, self._ever.values())))

    def wrote(self, path: Path, first: int, last: int) -> None:
        """Forget blocks that were written over: they can be read again."""
        left = {block for block in list(self.blocks.get(path, ())) if not first <= block <= last}
        self.blocks.pop(path, None)
        if left:
            self.blocks[path] = left

    def read_again(self, file: DiskFile, block: int, error: OSError, *, bad: Collection[int]) -> bytes | None:
        """Return a block that could not be read, None when it is sure that it cannot.

        `bad`: others of the file that cannot. Raises `error` where the disk gives back nothing at all.
        """
        for _ in range(0 if self._sure else TRIES - 2):
            time.sleep(PAUSE_S)
            try:
                return file.read_medium(block * BLOCK)
            except OSError as exc:
                only_unreadable(exc)
        time.sleep(0 if self._sure else PAUSE_S)
        if not self._gives(file, block * BLOCK, bad):
            raise error
        try:
            return file.read_medium(block * BLOCK)  # not before: the disk may have been away up to now
        except OSError as exc:
            only_unreadable(exc)
        self._sure = True
        return None

    def is_unreadable(self, file: DiskFile, at: int, count: int) -> bool:
        """Tell whether a range cannot be read although its disk gives back another block. Blocks. Raises OSError."""
        if not self._gives(file, at):
            return False
        try:
            file.read(count, at)
        except OSError as exc:
            only_unreadable(exc)
            return True
        return False

    def gives_back(self) -> bool:
        """Tell whether the medium gives back a block of any file of the store. Blocks."""
        return any(_comes(*place) for place in islice(self._others(), MOST_ASKED))

    def _gives(self, file: DiskFile, at: int, bad: Collection[int] = ()) -> bool:
        """Tell whether the medium that a file is on gives back any block but the one at a position."""
        for place in islice(self._places(file, at, bad), MOST_ASKED):
            if _comes(*place):
                self._gave = place[1]
                return True
        return False

    def _places(self, file: DiskFile, at: int, bad: Collection[int]) -> Iterator[tuple[DiskFile, int]]:
        """Yield blocks of this file that are not known to be bad, then the first one of others on its file system."""
        found = _data_blocks(file, at, self._gave * BLOCK)
        yield from ((file, block) for block in found if block != at // BLOCK and block not in bad)
        device = file.device()
        yield from ((other, block) for other, block in self._others() if other.device() == device)

    def _others(self) -> Iterator[tuple[DiskFile, int]]:
        """Yield the first block that has data of each file."""
        for name in _FOLDERS:
            for facts in self._files(self._root / name):
                try:
                    other = self._below.open(self._root / name / facts.name, read_only=True)
                except OSError:
                    continue
                yield from ((other, block) for block in list(_data_blocks(other, 0))[:1])

    def _files(self, folder: Path) -> Iterator[FileFacts]:
        try:
            found = self._below.list(folder)
        except OSError:
            return iter(())
        return (facts for facts in found if facts.size and not facts.is_folder and not facts.odd)

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
