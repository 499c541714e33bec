"""The only file that opens, writes, syncs, renames and deletes.

The rest of the store sees only `Disk` and `DiskFile`, so a test can use a recording or failing disk.
Every method raises OSError as the system gave it; a write is whole or raises.
"""

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from storage_driver.named_tuple import NamedTuple

IOV_MAX = 1024
MEDIUM_BYTES = 4096  # that are read without the page cache; no disk has larger blocks
NO_WAY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # nothing is there, or what leads there leads nowhere
NOWHERE = "a dangling symbolic link"
LOST = "nothing that the disk gives back"  # only its folder has the name: an inode is damaged, or in a bad sector
SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
NOT_GIVEN = (errno.EIO, errno.EUCLEAN, errno.EBADMSG)  # what ext4, XFS and btrfs say of such a name


class SyncFailed(OSError):
    """A sync failed: its data may be lost, although the page cache shows it and a second sync succeeds.

    The caller never syncs the same bytes again: it writes them again, or stops until a restart.
    """


class ShortWrite(OSError):
    """A write ended early: its first `written` bytes were written, not synced, then the disk refused more."""

    def __init__(self, number: int | None, text: str | None, *, written: int) -> None:
        super().__init__(number, text)
        self.written = written


class FileFacts(NamedTuple):
    """One entry of a folder."""

    name: str
    size: int
    is_folder: bool
    modified_ms: int
    odd: str = ""  # what it is when it is neither a file nor a folder: NOWHERE, LOST, or a pipe, a device


class Usage(NamedTuple):
    """Bytes of a file system: in use, and free to us."""

    used: int
    available: int

    @property
    def percent(self) -> int:
        """Use% as df prints it, rounded up."""
        return -(-100 * self.used // max(1, self.used + self.available))


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None:
        """Release the lock."""


class DiskFile(Protocol):
    """An open file; closed when the last reference goes, so a reader outlives a deletion."""

    def size(self) -> int:
        """Return the length in bytes."""

    def read(self, count: int, at: int) -> bytes:
        """Return count bytes at a position, fewer only at the end of the file."""

    def read_hot(self, count: int, at: int) -> bytes | None:
        """Return what `read` does when that needs no disk, else None."""

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        """Fill the buffers one after the other from a position; False, as `read_hot`, when that needs the disk."""

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        """Write all pieces one after the other from a position. Raises ShortWrite when a part of them was taken."""

    def sync(self, *, in_place: bool = False) -> None:
        """Return once everything written, and the length, is on stable storage. Raises SyncFailed.

        With `in_place` all of it went over bytes that were written and synced before.
        """

    def resize(self, size: int) -> None:
        """Set the length; new bytes are zero and take no space."""

    def allocate(self, size: int) -> None:
        """Set the length and take the space now."""

    def punch(self, at: int, count: int) -> None:
        """Free the space of a range; it then reads as zeros. Source: fallocate(2), FALLOC_FL_PUNCH_HOLE."""

    def next_data(self, at: int) -> tuple[int, int] | None:
        """Return the next range from `at` on that may hold something but zeros, None when there is none."""

    def advise(self, at: int, count: int, advice: int) -> None:
        """Tell the page cache what will be needed (os.POSIX_FADV_...); never fails."""

    def read_medium(self, at: int) -> bytes:
        """Return the 4096 bytes at a multiple of 4096 as the medium gives them back, not the page cache."""

    def device(self) -> int:
        """Return the number of the file system that the file is on."""


class Disk(Protocol):
    """Operations of the store on folders and names."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open a file; create makes it when it is missing."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace target by source."""

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name; target must not exist."""

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""

    def remove_folder(self, path: Path) -> None:
        """Remove a folder with all it holds; a missing one is fine."""

    def make_folder(self, path: Path) -> None:
        """Make the folder and those above it. Raises OSError also where it takes no new names."""

    def sync_folder(self, path: Path) -> None:
        """Return once the names in this folder are on stable storage."""

    def sync_all(self, path: Path) -> None:
        """Return once everything on path's file system is on stable storage. Raises SyncFailed."""

    def list(self, path: Path) -> list[FileFacts]:
        """Return what a folder holds, by name; nothing for a missing folder."""

    def exists(self, path: Path) -> bool:
        """Tell whether something has this name."""

    def usage(self, path: Path) -> Usage:
        """Return how full the file system of path is."""

    def boot_id(self) -> str:
        """Return what changes with every boot of the machine."""

    def lock(self, path: Path) -> "FileLock":
        """Lock a file against every other process and opener. Raises BlockingIOError."""


class RealFile:
    """An open file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, count: int, at: int) -> bytes:
        try:
            return self._read(count, at)
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
        return self._read_singly(count, at)

    def _read_singly(self, count: int, at: int) -> bytes:
        """Read around the page cache: it gives back nothing of a page, of 4 KiB to MiBs, that has one bad sector."""
        end, parts = min(at + count, self.size()), list[bytes]()
        while at < end:
            block = at - at % MEDIUM_BYTES
            stop = min(end, block + MEDIUM_BYTES)
            data = self.read_hot(stop - at, at)
            parts.append(self.read_medium(block)[at - block : stop - block] if data is None else data)
            at = stop
        return b"".join(parts)

    def _read(self, count: int, at: int) -> bytes:
        data = os.pread(self._fd, count, at)
        if len(data) == count or not data:
            return data
        parts = [data]  # a short read: at the end of the file, or a signal
        while data and (count := count - len(data)) > 0:
            at += len(data)
            data = os.pread(self._fd, count, at)
            parts.append(data)
        return b"".join(parts)

    def read_hot(self, count: int, at: int) -> bytes | None:
        buffer = bytearray(count)
        return bytes(buffer) if self.fill_hot((memoryview(buffer),), at) else None

    def fill_hot(self, buffers: Sequence[memoryview], at: int) -> bool:
        try:
            got = os.preadv(self._fd, buffers, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as exc:
            if exc.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return False
            raise
        return got == sum(map(len, buffers))

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        if len(pieces) > IOV_MAX:
            pieces = [b"".join(pieces)]
        left = sum(map(len, pieces))
        done = os.pwritev(self._fd, pieces, at)
        if done < left:
            self._write_rest(b"".join(pieces), at, done)

    def _write_rest(self, data: bytes, at: int, done: int) -> None:
        view = memoryview(data)
        try:
            while done < len(data):
                count = os.pwrite(self._fd, view[done:], at + done)
                if count == 0:
                    raise OSError(errno.EIO, f"write of {len(data) - done} bytes at {at + done} wrote nothing")
                done += count
        except OSError as exc:
            raise ShortWrite(exc.errno, exc.strerror, written=done) from exc

    def sync(self, *, in_place: bool = False) -> None:
        try:
            os.fdatasync(self._fd)
            if not in_place:
                ask_journal(self._fd)
        except OSError as exc:
            self.advise(0, 0, os.POSIX_FADV_DONTNEED)  # whoever reads this next, also after a restart, asks the medium
            raise SyncFailed(exc.errno, exc.strerror) from exc

    def resize(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        before = os.fstat(self._fd).st_size
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as exc:
            if exc.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                os.ftruncate(self._fd, before)  # ext4 keeps what it found: the last room of the disk
                raise
            os.ftruncate(self._fd, size)

    def punch(self, at: int, count: int) -> None:
        if _LIBC.fallocate(self._fd, PUNCH_HOLE, ctypes.c_int64(at), ctypes.c_int64(count)):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def next_data(self, at: int) -> tuple[int, int] | None:
        try:
            start = os.lseek(self._fd, at, os.SEEK_DATA)
            return start, os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return None
            return at, self.size()  # this file system does not tell

    def advise(self, at: int, count: int, advice: int) -> None:
        try:
            os.posix_fadvise(self._fd, at, count, advice)
        except OSError:
            pass  # only a hint

    def read_medium(self, at: int) -> bytes:
        from mmap import mmap  # few disks are ever in doubt

        try:
            fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            try:
                with mmap(-1, MEDIUM_BYTES) as block:
                    return block[: os.preadv(fd, [block], at)]
            finally:
                os.close(fd)
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that reads no other way
                raise
        self.advise(at, MEDIUM_BYTES, os.POSIX_FADV_DONTNEED)
        return self._read(MEDIUM_BYTES, at)

    def device(self) -> int:
        return os.fstat(self._fd).st_dev


class RealLock:
    """A locked file; releasing twice is fine."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class RealDisk:
    """The operating system's file systems."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        reading = os.O_RDONLY | os.O_NONBLOCK  # of a pipe in place of a file: nobody ever writes into it
        flags = os.O_CLOEXEC | (reading if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o640))

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                import shutil  # with two compressors; few folders ever go

                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as exc:
            if exc.errno in NOT_GIVEN:
                raise OSError(exc.errno, exc.strerror, str(path)) from exc  # rmtree names a file without its folder
            if exc.errno not in NO_WAY:
                raise

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True, mode=0o750)
        if not os.access(path, os.W_OK):
            code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EPERM
            raise OSError(code, os.strerror(code), str(path))

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
            ask_journal(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _LIBC.syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise SyncFailed(code, os.strerror(code), str(path))
            ask_journal(fd)
        finally:
            os.close(fd)

    def list(self, path: Path) -> list[FileFacts]:
        facts = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    found = _facts_of(entry)
                    if found is not None:
                        facts.append(found)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(facts)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def usage(self, path: Path) -> Usage:
        found = os.statvfs(path)
        return Usage((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def lock(self, path: Path) -> FileLock:
        fd, kind = _open_lock(path)
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)  # the lock that Java takes
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # and one that also holds inside this process
            if kind == fcntl.LOCK_EX and os.fstat(fd).st_size < 4:
                os.pwrite(fd, b"lock", 0)
        except OSError as exc:
            os.close(fd)
            if isinstance(exc, PermissionError):  # POSIX allows EACCES for "held by another"
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path)) from exc
            raise
        return RealLock(fd)


def _open_lock(path: Path) -> tuple[int, int]:
    """Open a lock; a read-only file is locked as well: flock(2) does not ask, lockf(3) shuts writers out."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640), fcntl.LOCK_EX
    except PermissionError as exc:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH
        except OSError:
            raise exc from None


def _facts_of(entry: "os.DirEntry[str]") -> FileFacts | None:
    """Return what an entry is, or its target; None when it no longer exists."""
    odd = ""
    try:
        status = entry.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            odd = "neither a file nor a folder"
    except OSError:
        odd = NOWHERE
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if exc.errno not in NOT_GIVEN:
                raise
            return FileFacts(entry.name, 0, False, 0, LOST)
    is_folder = stat.S_ISDIR(status.st_mode)
    return FileFacts(entry.name, status.st_size, is_folder, status.st_mtime_ns // 1_000_000, odd)


_LIBC = ctypes.CDLL(None, use_errno=True)
PUNCH_HOLE = 0x2 | 0x1  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE
_NO_JOURNAL = (errno.EIO, errno.EROFS, errno.EUCLEAN, errno.ESHUTDOWN)


def ask_journal(fd: int) -> None:
    """Raise OSError where the file system ended its journal.

    ext4's fsync waits for the commit that holds the file's new blocks, length or names. When another caller's fsync had
    begun that commit and it failed, only that one is told, and this one returns as if all were well (jbd2's
    jbd2_complete_transaction, Linux 6.18: a commit that is over is a good one). Whatever begins a change fails
    afterwards; removing an attribute that nobody has does so and changes nothing.
    """
    try:
        os.removexattr(fd, "user.rocketbox.none")
    except OSError as exc:
        if exc.errno in _NO_JOURNAL:
            raise


_ZEROS = bytes(1 << 20)


def data_pieces(file: DiskFile, start: int, end: int, piece: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield position and bytes of what is in [start, end), leaving out holes and stretches of zeros.

    Pages that read-ahead brought in count as data, so that the search would chase it through the whole file: it is off
    meanwhile, and what it left, or continues with where an earlier reader set a mark, is dropped before each look.
    """
    file.advise(0, 0, os.POSIX_FADV_RANDOM)
    while start < end:
        file.advise(start, end - start, os.POSIX_FADV_DONTNEED)
        if (found := file.next_data(start)) is None:
            break
        start, stop = max(start, found[0]), min(end, found[1])
        while start < stop:
            data = file.read(min(piece, stop - start), start)
            if not data:
                start = stop = end
            elif data != _ZEROS[: len(data)]:
                yield start, data
            start += len(data)
    file.advise(0, 0, os.POSIX_FADV_NORMAL)


def zero_fill(file: DiskFile, start: int, end: int) -> int:
    """Make [start, end) zeros where it is not; return how far from start the last byte lay that was not zero."""
    dirty_end = start
    for at, data in data_pieces(file, start, end):
        if used := data.rstrip(b"\0"):
            file.write([bytes(len(used))], at)
            dirty_end = at + len(used)
    return dirty_end - start


def make_fixed(disk: Disk, temporary: Path, target: Path, *, size: int, sparse: bool) -> DiskFile:
    """Make a zero file of full length under a temporary name, then put it in place; the caller syncs the folder.

    In Apache's folders a file of the wrong length is fatal, so none may ever be seen there. A sparse file is not
    synced: it is derived data, and the length is journalled before the name.
    """
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    if sparse:
        file.resize(size)
    else:
        file.allocate(size)
        file.sync()
    disk.rename(temporary, target)
    return file
