"""Partial files on the box, named by their hash: they survive a pulled cable, a reboot and another bench."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from provisioning.errors import ProvisioningError
from provisioning.slots import sync_folder

SYNC_BYTES = 256 * 1024
SYNC_S = 2.0
MAX_BYTES = 1 << 30
MAX_AGE_S = 7 * 86400
HASH = re.compile(r"[0-9a-f]{64}")


class IncomingFile:
    """One file on its way in; `have` bytes of it are on the disk. Every call blocks on the disk."""

    def __init__(self, folder: Path, sha256: str, size: int, *, now_s: Callable[[], float] = time.monotonic) -> None:
        if not HASH.fullmatch(sha256) or not 0 <= size <= MAX_BYTES:
            raise ProvisioningError("E301", f"a transfer needs a SHA-256 and at most {MAX_BYTES} bytes", size=size)
        self.sha256, self.size, self.whole = sha256, size, folder / sha256
        self.part = folder / f"{sha256}.part"
        self._now_s, self._unsynced, self._synced_s = now_s, 0, now_s()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self.part.open("r+b" if self.part.exists() else "w+b", buffering=0)
        os.fdatasync(self._file.fileno())
        self.have = min(self._file.seek(0, os.SEEK_END), size)
        self._file.truncate(self.have)
        self._file.seek(self.have)

    @classmethod
    def is_whole(cls, folder: Path, sha256: str) -> bool:
        """Tell whether this file has arrived and was verified before."""
        return bool(HASH.fullmatch(sha256)) and (folder / sha256).exists()

    def write(self, data: bytes) -> None:
        """Append bytes; the disk has them at the latest 256 KiB or 2 s later. Raises E301 when it is full."""
        try:
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.have += len(data)
            self._unsynced += len(data)
            if self._unsynced >= SYNC_BYTES or self._now_s() - self._synced_s >= SYNC_S:
                self.sync()
        except OSError as exc:
            self._file.truncate(self.have)  # a part of the data may have been taken, and it will come again
            self._file.seek(self.have)
            raise ProvisioningError("E301", f"cannot write {self.part.name}: {exc.strerror}", needs=self.size) from exc

    def sync(self) -> None:
        os.fdatasync(self._file.fileno())
        self._unsynced, self._synced_s = 0, self._now_s()

    def finish(self, progress: Callable[[int], None] = lambda done: None) -> Path:
        """Read the file back, compare its hash, give it its name. Raises E302 and forgets it when it differs."""
        self.sync()
        digest, done = hashlib.sha256(), 0
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._file.seek(0)
        while block := self._file.read(1 << 20):
            digest.update(block)
            done += len(block)
            progress(done)
        self.close()
        if digest.hexdigest() != self.sha256:
            self.part.unlink()
            raise ProvisioningError("E302", "the file read back differs from what was sent: it was deleted, send again")
        os.replace(self.part, self.whole)
        sync_folder(self.whole.parent)
        return self.whole

    def close(self) -> None:
        self._file.close()


def arrived(folder: Path, sha256: object) -> Path:
    """Return where a file is once it has arrived. Raises E303 for what is no SHA-256 and could name another file."""
    if not HASH.fullmatch(str(sha256)):
        raise ProvisioningError("E303", f"a bundle is named by its SHA-256, not by {str(sha256)[:80]!r}")
    return folder / str(sha256)


def make_room(folder: Path, needs: int, *, now_s: float, keep: str = "") -> None:
    """Delete what is over 7 days old, then the oldest, until `needs` fits into 1 GiB. Raises E301 when it cannot.

    What has arrived of the file to keep needs no room again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = sorted((path for path in folder.glob("*") if path.is_file()), key=lambda path: path.stat().st_mtime)
    needs -= sum(path.stat().st_size for path in held if keep and path.name.startswith(keep))
    used = sum(path.stat().st_size for path in held)
    for path in held:
        stat = path.stat()
        if path.name.startswith(keep) and keep:
            continue
        if now_s - stat.st_mtime > MAX_AGE_S or used + needs > MAX_BYTES:
            path.unlink()
            used -= stat.st_size
    free = shutil.disk_usage(folder).free
    if needs > free:
        text = f"no space: needs {needs >> 20} MiB, {free >> 20} MiB are free; run `rocketbox doctor` on the box"
        raise ProvisioningError("E301", text, needs=needs, free=free)
