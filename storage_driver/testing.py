"""Fakes and fixed bytes for tests of the store and of what is built on it.

V1 to V5 are records made by RocketMQ 4.9's own encoder, V6 is one of version 2 that 5.3 accepts.
"""

import builtins
import errno
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from storage_driver.files.disk import FileFacts, ShortWrite, SyncFailed, Usage
from storage_driver.files.memory_layer import NoLock, fill
from storage_driver.named_tuple import NamedTuple

V1 = bytes.fromhex(
    "00000061daa320a73610a686000000000000000000000000000000000000000000000000000000000000018bcfe56800"
    "7f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f015400"
    "00"
)
V2 = bytes.fromhex(
    "000000c6daa320a759447cee0000000300000007000000000000002a0000000000000105000000000000018bcfe5687b"
    "c0a8010a0000c3cb0000018bcfe569c8c0a8011400002a9f0000000000000000000000000000000ee4bda0e5a5bd2c20"
    "62726f6b65720a4f72646572546f7069630053554e49515f4b4559014330413830313041314639303138423441414332"
    "30303030303030303030303102544147530154616741024b455953016f726465722d31206f726465722d320257414954"
    "017472756502"
)
V3 = bytes.fromhex(
    "000000a8daa320a73a2d22a8000000010000000000000000000000090000000040000000000003390000000000000001"
    "20010db800000000000000000000000100009c400000000000000002fe80000000000000000000000000000200002a9f"
    "0000000000000000000010000000000b789c010000ffff0000000107546f706963563600235047524f55500170670254"
    "52414e5f4d5347017472756502554e49515f4b4559014b36"
)
V4 = bytes.fromhex(
    "000000a1daa320a75202ef8d0000000200000000000000000000000000000000000001f4000000100000018bcfe56800"
    "00000000000000000000000000000001000000010000018bcfe56be80a00000100002a9f000000010000000000000000"
    "0000000100135343484544554c455f544f5049435f58585858002644454c41590133025245414c5f544f504943014102"
    "5245414c5f514944013002544147530178"
)
V5 = bytes.fromhex(
    "00000073daa320a700000000000000000000000000000000000000010000000000000064000000000000000000000000"
    "010203040000ffff0000018bcfe56800ffffffff00002a9f00000000000000000000000000000000014500175441475301"
    "706f6c7967656e656c7562726963616e7473"
)
V6 = bytes.fromhex(
    "00000067daa320ab706b9d0f00000000000000000000000000000005000000000000012c000000000000018bcfe56800"
    "7f000001000000010000018bcfe568017f00000100000002000000000000000000000000000000027632000254320007"
    "54414753017802"
)


LITTLE = 4096
_ZEROS = bytes(LITTLE)


class DiskStep(NamedTuple):
    """One thing that was done to a MemoryDisk. `inode` and `names` say to what; the rest depends on the kind."""

    kind: str  # write resize sync | name (create, rename, link, remove, folder) folder_sync sync_all
    inode: int
    at: int
    data: bytes
    names: tuple[tuple[str, int | None], ...]  # name -> inode from now on, None: gone, 0: a folder


class Inode:
    """Bytes of one file, and what of them is on stable storage."""

    __slots__ = ("bytes", "gone", "number", "stable", "unsynced")

    def __init__(self, number: int, content: bytes = b"") -> None:
        self.number, self.stable = number, content
        self.bytes: bytes | bytearray = content  # copied when it changes: most files of a crash state never do
        self.gone = False  # a failed sync lost some of the bytes
        self.unsynced: list[tuple[int, bytes | None]] = []  # (position, bytes) or (new size, None), since the last sync

    def write(self, at: int, data: bytes) -> None:
        """Change the bytes."""
        content = self._own()
        if at > len(content):
            content += bytes(at - len(content))
        content[at : at + len(data)] = data
        self.unsynced.append((at, data))

    def resize(self, size: int) -> None:
        """Change the length."""
        content = self._own()
        if size < len(content):
            del content[size:]
        else:
            content += bytes(size - len(content))
        self.unsynced.append((size, None))

    def _own(self) -> bytearray:
        if not isinstance(self.bytes, bytearray):
            self.bytes = bytearray(self.bytes)
        return self.bytes

    def sync(self) -> None:
        """Make the bytes stable."""
        if self.unsynced:
            self.stable = bytes(self.bytes) if not self.gone else _after(self.stable, self.unsynced)
            self.unsynced = []

    def lose(self) -> None:
        """Fail to sync: every second write never reaches the disk, though the bytes show it."""
        self.stable, self.unsynced = _after(self.stable, self.unsynced[1::2]), []
        self.gone = True

    def forget(self) -> None:
        """Show what the disk has instead of what was lost."""
        if self.gone:
            self.bytes = _after(self.stable, self.unsynced)

    def torn(self, pick: random.Random, sector: int) -> bytes:
        """Return what a power cut may leave: each unsynced sector as it was after any number of its writes."""
        if not self.unsynced:
            return self.stable
        content, versions = bytearray(self.stable), len(self.unsynced)
        sizes = [size for size, data in self.unsynced if data is None]
        size = len(self.stable)
        if sizes and (kept := pick.randrange(len(sizes) + 1)):
            size = sizes[kept - 1]
        size = max(size, 0)
        touched: dict[int, list[int]] = {}
        for number, (at, data) in enumerate(self.unsynced):
            if data is not None:
                for block in range(at // sector, (at + len(data) - 1) // sector + 1):
                    touched.setdefault(block, []).append(number)
        keep_all, keep_none = pick.random() < 0.1, pick.random() < 0.1
        for block, numbers in touched.items():
            kept = len(numbers) if keep_all else 0 if keep_none else pick.randrange(len(numbers) + 1)
            for number in numbers[:kept]:
                self._apply(content, number, block * sector, sector)
        if not sizes and versions:
            size = max(size, max((at + len(data) for at, data in self.unsynced if data is not None), default=0))
            size = pick.choice((size, len(self.stable))) if size > len(self.stable) else size
        return bytes(content[:size].ljust(size, b"\0"))

    def _apply(self, content: bytearray, number: int, start: int, sector: int) -> None:
        at, data = self.unsynced[number]
        assert data is not None
        low, high = max(at, start), min(at + len(data), start + sector)
        if len(content) < high:
            content += bytes(high - len(content))
        content[low:high] = data[low - at : high - at]


def _after(stable: bytes, writes: Sequence[tuple[int, bytes | None]]) -> bytes:
    content = bytearray(stable)
    for at, data in writes:
        if data is None:
            content = content[:at].ljust(at, b"\0")
        else:
            content = content.ljust(at, b"\0")
            content[at : at + len(data)] = data
    return bytes(content)


class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, disk: "MemoryDisk", inode: Inode) -> None:
        self._disk, self._inode = disk, inode

    def size(self) -> int:
        return len(self._inode.bytes)

    def read(self, count: int, at: int) -> bytes:
        content = self._inode.bytes
        if isinstance(content, bytes) or count <= LITTLE:
            return bytes(content[at : at + count])
        return bytes(memoryview(content)[at : at + count])

    def read_hot(self, count: int, at: int) -> bytes | None:
        data = self.read(count, at)
        return data if len(data) == count else None

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        return fill(buffers, self.read_hot(sum(map(len, buffers)), at))

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        data, end = b"".join(pieces), self._disk.ends.get(self._inode.number)
        if end is None or at + len(data) <= end:
            self._disk.do(DiskStep("write", self._inode.number, at, data, ()))
            return
        written, number = max(0, end - at), self._disk.fail_with
        if written:
            self._disk.do(DiskStep("write", self._inode.number, at, data[:written], ()))
        raise ShortWrite(number, os.strerror(number), written=written)

    def sync(self, *, in_place: bool = False) -> None:
        try:
            self._disk.do(DiskStep("sync", self._inode.number, 0, b"", ()))
        except OSError as exc:
            self._inode.lose()
            self._inode.forget()
            raise SyncFailed(exc.errno, exc.strerror) from exc

    def resize(self, size: int) -> None:
        self._disk.do(DiskStep("resize", self._inode.number, size, b"", ()))

    def allocate(self, size: int) -> None:
        self.resize(size)

    def punch(self, at: int, count: int) -> None:
        self.write([bytes(count)], at)

    def next_data(self, at: int) -> tuple[int, int] | None:
        content = self._inode.bytes
        end = len(content)
        while end > at and content[(low := max(at, end - LITTLE)) : end] == _ZEROS[: end - low]:
            end = low
        if end <= at:
            return None
        return at, low + len(content[low:end].rstrip(b"\0"))

    def advise(self, at: int, count: int, advice: int) -> None:
        pass

    def read_medium(self, at: int) -> bytes:
        return self.read(4096, at)

    def device(self) -> int:
        return 0


class MemoryDisk:
    """A disk in memory that notes every step, can fail at one, and can show what a power cut at any step may leave."""

    def __init__(self, files: Mapping[str, bytes] | None = None, folders: Sequence[str] = ()) -> None:
        self.steps: list[DiskStep] = []
        self.fail_at: int | None = None  # number of the step that fails
        self.fail_with = errno.EIO
        self.keep_failing = False
        self.ends: dict[int, int] = {}  # inode -> where writes to it stop short
        self.before: Callable[[DiskStep], None] = lambda step: None
        self.space = Usage(0, 1 << 40)
        self.boot = "first"
        self.inodes: dict[int, Inode] = {}
        self.names: dict[str, int] = dict.fromkeys(folders, 0)  # 0 is a folder
        for number, (name, content) in enumerate((files or {}).items(), 1):
            self.inodes[number] = Inode(number, content)
            self.names[name] = number
        self.stable_names = dict(self.names)
        self.unsynced_names: list[tuple[tuple[str, int | None], ...]] = []
        self._folders: dict[str, builtins.list[str]] | None = None  # folder -> names in it, None: to be created

    def do(self, step: DiskStep) -> None:
        """Note a step and carry it out, or fail."""
        number = len(self.steps)
        self.before(step)
        self.steps.append(step)
        if self.fail_at is not None and (number == self.fail_at or (self.keep_failing and number > self.fail_at)):
            raise OSError(self.fail_with, os.strerror(self.fail_with))
        self.apply(step)

    def apply(self, step: DiskStep) -> None:
        """Carry out a step."""
        if step.kind == "write":
            self.inodes[step.inode].write(step.at, step.data)
        elif step.kind == "resize":
            self.inodes[step.inode].resize(step.at)
        elif step.kind == "sync":
            self.inodes[step.inode].sync()
        elif step.kind == "name":
            self._change_names(step.names)
        elif step.kind == "folder_sync":
            self._sync_names(step.names[0][0])
        else:
            for each in self.inodes.values():
                each.sync()
            self.stable_names, self.unsynced_names = dict(self.names), []

    def _change_names(self, changes: tuple[tuple[str, int | None], ...]) -> None:
        self._folders = None
        for name, inode in changes:
            if inode is None:
                self.names.pop(name, None)
                continue
            self.names[name] = inode
            if inode and inode not in self.inodes:
                self.inodes[inode] = Inode(inode)
        self.unsynced_names.append(changes)

    def _sync_names(self, folder: str) -> None:
        kept = []
        for names in self.unsynced_names:
            if any(name.rpartition("/")[0] == folder for name, _ in names):
                _rename_all(self.stable_names, names)
            else:
                kept.append(names)
        self.unsynced_names = kept

    def after_power_cut(self, pick: random.Random) -> "MemoryDisk":
        """Return a new disk in one of the states that a power cut now may leave."""
        names, sector = dict(self.stable_names), pick.choice((512, 4096))
        if pick.random() < 0.5:  # a journal: names change in order
            for change in self.unsynced_names[: pick.randrange(len(self.unsynced_names) + 1)]:
                _rename_all(names, change)
        else:  # POSIX: each change of names on its own
            for change in self.unsynced_names:
                if pick.random() < 0.5:
                    _rename_all(names, change)
        disk = MemoryDisk()
        disk.boot = f"{pick.getrandbits(64):016x}"
        whole = {"": True}  # folder -> neither it nor one above it was lost
        for name, number in names.items():
            if not _is_whole(_split(name)[0], names, whole):
                continue
            disk.names[name] = number
            if number and number not in disk.inodes:
                disk.inodes[number] = Inode(number, self.inodes[number].torn(pick, sector))
        disk.stable_names = dict(disk.names)
        return disk

    def restarted(self) -> "MemoryDisk":
        """Return this disk as the next process finds it: what it shows, what is stable, nothing fails any more."""
        disk = MemoryDisk()
        disk.inodes, disk.names, disk.stable_names = self.inodes, self.names, self.stable_names
        disk.unsynced_names, disk.boot = self.unsynced_names, self.boot
        return disk

    def copy(self) -> "MemoryDisk":
        """Return a disk with the same content, all of it stable."""
        disk = MemoryDisk()
        disk.names, disk.stable_names = dict(self.names), dict(self.names)
        disk.inodes = {number: Inode(number, bytes(inode.bytes)) for number, inode in self.inodes.items()}
        disk.boot = self.boot
        return disk

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        number = self.names.get(str(path))
        if number is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            number = max(self.inodes, default=0) + 1
            self.do(DiskStep("name", 0, 0, b"", ((str(path), number),)))
        return MemoryFile(self, self.inodes[number])

    def rename(self, source: Path, target: Path) -> None:
        number = self.names[str(source)]
        self.do(DiskStep("name", 0, 0, b"", ((str(source), None), (str(target), number))))

    def link(self, source: Path, target: Path) -> None:
        self.do(DiskStep("name", 0, 0, b"", ((str(target), self.names[str(source)]),)))

    def remove(self, path: Path) -> None:
        if str(path) in self.names:
            self.do(DiskStep("name", 0, 0, b"", ((str(path), None),)))

    def remove_folder(self, path: Path) -> None:
        below = [name for name in self.names if name == str(path) or name.startswith(f"{path}/")]
        for name in sorted(below, reverse=True):
            self.do(DiskStep("name", 0, 0, b"", ((name, None),)))

    def make_folder(self, path: Path) -> None:
        if str(path) in self.names:
            return
        for folder in [*reversed(path.parents), path]:
            if str(folder) not in self.names:
                self.do(DiskStep("name", 0, 0, b"", ((str(folder), 0),)))

    def sync_folder(self, path: Path) -> None:
        self.do(DiskStep("folder_sync", 0, 0, b"", ((str(path), 0),)))

    def sync_all(self, path: Path) -> None:
        try:
            self.do(DiskStep("sync_all", 0, 0, b"", ()))
        except OSError as exc:
            for inode in self.inodes.values():
                inode.lose()
            raise SyncFailed(exc.errno, exc.strerror) from exc

    def list(self, path: Path) -> "builtins.list[FileFacts]":
        if self._folders is None:
            self._folders = {}
            for name in self.names:
                folder, last = _split(name)
                self._folders.setdefault(folder, []).append(last)
        facts, folder = [], str(path)
        for last in self._folders.get(folder, ()):
            number = self.names[f"{folder}/{last}"]
            facts.append(FileFacts(last, len(self.inodes[number].bytes) if number else 0, number == 0, 0))
        return sorted(facts)

    def exists(self, path: Path) -> bool:
        return str(path) in self.names

    def usage(self, path: Path) -> Usage:
        return self.space

    def boot_id(self) -> str:
        return self.boot

    def lock(self, path: Path) -> NoLock:
        self.open(path, create=True)
        return NoLock()


@lru_cache(4096)
def _split(name: str) -> tuple[str, str]:
    folder, _, last = name.rpartition("/")
    return folder, last


def _is_whole(folder: str, names: Mapping[str, int], known: dict[str, bool]) -> bool:
    if folder not in known:
        known[folder] = folder in names and _is_whole(_split(folder)[0], names, known)
    return known[folder]


def _rename_all(names: dict[str, int], change: tuple[tuple[str, int | None], ...]) -> None:
    for name, inode in change:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
