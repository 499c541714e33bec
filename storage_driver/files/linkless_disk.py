"""Files and folders below one root, reached through no symbolic link: for copies that root makes of others' folders.

Every step from the root on is opened by itself, so a link that is placed there meanwhile has no effect either.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage_driver.errors import StoreRefused
from storage_driver.files.disk import FileFacts, RealDisk, RealFile

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _refused(path: Path, what: str) -> StoreRefused:
    return StoreRefused(f"{path} is {what}: a copy does not follow it; remove it, or replace it by its target")


def _make_folder(name: str, parent: int) -> None:
    """Make a folder in the one with this descriptor, if it is not there."""
    try:
        os.mkdir(name, 0o750, dir_fd=parent)
    except FileExistsError:
        pass


class LinklessDisk(RealDisk):
    """A disk below `root`, which itself may be a link that its user named. Raises StoreRefused for others."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def _folder(self, path: Path, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder below the root."""
        if make:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o750)
        fd, reached = os.open(self._root, _FOLDER), self._root
        try:
            for name in path.relative_to(self._root).parts:
                reached /= name
                if make:
                    _make_folder(name, fd)
                try:
                    below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                except NotADirectoryError as exc:  # what O_DIRECTORY says of a link, open(2)
                    raise _refused(reached, "a symbolic link or not a folder") from exc
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_RDONLY if read_only else os.O_RDWR)
        with self._folder(path.parent) as folder:
            try:
                fd = os.open(path.name, flags | (os.O_CREAT if create else 0), 0o640, dir_fd=folder)
            except OSError as exc:
                if exc.errno != errno.ELOOP:
                    raise
                raise _refused(path, "a symbolic link") from exc
        file = RealFile(fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _refused(path, "no file")
        return file

    def rename(self, source: Path, target: Path) -> None:
        with self._folder(source.parent) as old, self._folder(target.parent) as new:
            os.rename(source.name, target.name, src_dir_fd=old, dst_dir_fd=new)

    def make_folder(self, path: Path) -> None:
        with self._folder(path, make=True):
            pass

    def list(self, path: Path) -> list[FileFacts]:
        facts = list[FileFacts]()
        try:
            with self._folder(path) as folder:
                for name in os.listdir(folder):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISLNK(found.st_mode):
                        raise _refused(path / name, "a symbolic link")
                    is_folder = stat.S_ISDIR(found.st_mode)
                    facts.append(FileFacts(name, found.st_size, is_folder, found.st_mtime_ns // 1_000_000))
        except FileNotFoundError:
            return []
        return sorted(facts)
