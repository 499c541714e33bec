"""A read-only disk: all writes of the store stay in memory, above the contents of the disk.

For a box whose disk no longer takes writes: recovery, queues and tables work as usual, and nothing on the disk changes.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from storage_driver.files.disk import Disk, DiskFile, FileFacts, FileLock, RealDisk, Usage

PAGE = 4096


def fill(buffers: Sequence[memoryview], data: bytes | None) -> bool:
    """Put data into the buffers, one after the other; False when there is none."""
    at = 0
    for buffer in buffers if data is not None else ():
        buffer[:] = memoryview(data or b"")[at : at + len(buffer)]
        at += len(buffer)
    return data is not None


class LayeredFile:
    """An open file: pages in memory over the file below, which may be missing."""

    def __init__(self, below: DiskFile | None) -> None:
        self._below, self._pages = below, dict[int, bytearray]()
        self._size = self._kept = below.size() if below is not None else 0  # below `_kept` the disk still counts

    def size(self) -> int:
        return self._size

    def read(self, count: int, at: int) -> bytes:
        count = min(count, self._size - at)
        if count <= 0:
            return b""
        if not self._pages:
            return self._from_below(count, at)
        parts, stop = list[bytes](), at + count
        while at < stop:
            number = at // PAGE
            end = min(stop, (number + 1) * PAGE)
            page = self._pages.get(number)  # what is below it may be a bad sector
            parts.append(
                self._from_below(end - at, at) if page is None else bytes(page[at % PAGE : end - number * PAGE])
            )
            at = end
        return b"".join(parts)

    def _from_below(self, count: int, at: int) -> bytes:
        if self._below is None or at >= self._kept:
            return bytes(count)
        return self._below.read(min(count, self._kept - at), at).ljust(count, b"\0")

    def read_hot(self, count: int, at: int) -> bytes | None:
        if self._below is None or self._pages or at + count > self._kept:
            return self.read(count, at) if self._below is None else None
        return self._below.read_hot(count, at)

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return fill(buffers, self.read_hot(sum(map(len, buffers)), at))

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        data = memoryview(b"".join(pieces))
        while data:
            number, inside = divmod(at, PAGE)
            part = data[: PAGE - inside]
            if number not in self._pages:
                all_of_it = not inside and (len(part) == PAGE or at + len(part) >= self._size)
                before = b"" if all_of_it else self.read(PAGE, number * PAGE)
                self._pages[number] = bytearray(before.ljust(PAGE, b"\0"))
            self._pages[number][inside : inside + len(part)] = part
            at, data = at + len(part), data[len(part) :]
            self._size = max(self._size, at)

    def sync(self, *, in_place: bool = False) -> None:
        """There is nothing to wait for."""

    def resize(self, size: int) -> None:
        if size < self._size:
            self._kept = min(self._kept, size)
            for number in [each for each in self._pages if each * PAGE >= size]:
                del self._pages[number]
            if size % PAGE and (page := self._pages.get(size // PAGE)) is not None:
                page[size % PAGE :] = bytes(PAGE - size % PAGE)
        self._size = size

    def allocate(self, size: int) -> None:
        self.resize(max(size, self._size))

    def punch(self, at: int, count: int) -> None:
        """Nothing is given back: what is below stays as it is."""
        self.write([bytes(count)], at)

    def next_data(self, at: int) -> tuple[int, int] | None:
        below = self._below.next_data(at) if self._below is not None and at < self._kept else None
        if below is not None and below[0] >= self._kept:
            below = None
        changed = min((number for number in self._pages if (number + 1) * PAGE > at), default=None)
        if changed is not None and (below is None or changed * PAGE < below[0]):
            return max(at, changed * PAGE), min(self._size, (changed + 1) * PAGE)
        return (below[0], min(below[1], self._kept)) if below is not None else None

    def advise(self, at: int, count: int, advice: int) -> None:
        if self._below is not None:
            self._below.advise(at, count, advice)

    def read_medium(self, at: int) -> bytes:
        if self._below is None or at // PAGE in self._pages:
            return self.read(PAGE, at)
        return self._below.read_medium(at)[: max(0, self._kept - at)]

    def device(self) -> int:
        return 0 if self._below is None else self._below.device()


class NoLock:
    """The lock of what no other process can change."""

    def release(self) -> None:
        """There is nothing to let go."""


class MemoryLayer:
    """A `Disk` whose names and bytes change only in memory."""

    def __init__(self, below: Disk | None = None) -> None:
        self._below: Disk = below or RealDisk()
        self._files: dict[Path, LayeredFile | None] = {}  # None: removed here
        self._folders: set[Path] = set()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        found = self._find(path)
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            found = self._files[path] = LayeredFile(None)
        return found

    def rename(self, source: Path, target: Path) -> None:
        if self._is_no_file(source):
            self._files[source] = None  # it goes; nobody reads it under another name
            return
        moved = self._needed(source)
        if moved is not self._find(target):  # two names of one file: POSIX leaves both
            self._files[target], self._files[source] = moved, None

    def link(self, source: Path, target: Path) -> None:
        linked = self._needed(source)
        if self._find(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        self._files[target] = linked

    def remove(self, path: Path) -> None:
        self._files[path] = None

    def remove_folder(self, path: Path) -> None:
        for entry in self.list(path):
            below = path / entry.name
            self.remove_folder(below) if entry.is_folder else self.remove(below)
        self._folders.discard(path)

    def make_folder(self, path: Path) -> None:
        self._folders.update([path, *path.parents])

    def sync_folder(self, path: Path) -> None:
        """There is nothing to wait for."""

    def sync_all(self, path: Path) -> None:
        """There is nothing to wait for."""

    def list(self, path: Path) -> list[FileFacts]:
        found = {facts.name: facts for facts in self._below.list(path)}
        for folder in self._folders:
            if folder.parent == path and folder != path:
                found.setdefault(folder.name, FileFacts(folder.name, 0, True, 0))
        for name, file in self._files.items():
            if name.parent == path:
                if file is None:
                    found.pop(name.name, None)
                else:
                    found[name.name] = FileFacts(name.name, file.size(), False, 0)
        return sorted(found.values())

    def exists(self, path: Path) -> bool:
        if path in self._files:
            return self._files[path] is not None
        return path in self._folders or self._below.exists(path)

    def usage(self, path: Path) -> Usage:
        return self._below.usage(path)

    def boot_id(self) -> str:
        return self._below.boot_id()

    def lock(self, path: Path) -> FileLock:
        return NoLock()

    def _is_no_file(self, path: Path) -> bool:
        """Tell whether the disk has a folder, a link to nowhere or a pipe there, which would block who opens it."""
        if path in self._files:
            return False
        return any(each.name == path.name and (each.odd or each.is_folder) for each in self._below.list(path.parent))

    def _find(self, path: Path) -> LayeredFile | None:
        if path not in self._files and self._below.exists(path):
            self._files[path] = LayeredFile(self._below.open(path, read_only=True))
        return self._files.get(path)

    def _needed(self, path: Path) -> LayeredFile:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found
