"""A file `disk` over FUSE that notes every write and flush of a file system above it; arguments: MOUNT IMAGE LOG.

Log entries: b"W" u64 offset u32 length bytes, b"S" for a flush, b"M" u32 length bytes for what is written to MOUNT/mark
(little-endian). `fail flush N` or `fail write N` written there makes the N-th one from then on fail with EIO, once:
b"F" in the log, and nothing of it happens. `bad START END` makes every read of these bytes fail with EIO from then on.
"""

import errno
import os
import stat
import struct
import sys
import threading
from typing import Any

import mfusepy


class RecordedDisk(mfusepy.Operations):  # type: ignore[misc]
    """One file backed by an image; every change goes to the log as well."""

    def __init__(self, image: str, log: str) -> None:
        self._fd = os.open(image, os.O_RDWR)
        self._log = open(log, "wb", buffering=1 << 20)  # noqa: SIM115 - lives as long as the mount
        self._guard = threading.Lock()
        self._failing, self._left = "", 0
        self._bad: list[tuple[int, int]] = []

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path not in ("/disk", "/mark"):
            raise mfusepy.FuseOSError(errno.ENOENT)
        size = os.fstat(self._fd).st_size if path == "/disk" else 0
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", "disk", "mark"]

    def open(self, path: str, flags: int) -> int:
        return 1

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        if any(start < offset + size and offset < end for start, end in self._bad):
            raise mfusepy.FuseOSError(errno.EIO)
        return os.pread(self._fd, size, offset)

    def _fail(self, kind: str) -> None:
        if kind == self._failing:
            self._left -= 1
            if self._left == 0:
                self._log.write(b"F")
                raise mfusepy.FuseOSError(errno.EIO)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self._guard:
            if path == "/mark" and data.startswith(b"fail"):
                _, self._failing, left = data.decode().split()
                self._left = int(left)
            elif path == "/mark" and data.startswith(b"bad"):
                _, start, end = data.split()
                self._bad.append((int(start), int(end)))
            elif path == "/mark":
                self._log.write(b"M" + struct.pack("<I", len(data)) + data)
                self._log.flush()
            else:
                self._fail("write")
                os.pwrite(self._fd, data, offset)
                self._log.write(b"W" + struct.pack("<QI", offset, len(data)) + data)
        return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        with self._guard:
            self._fail("flush")
            self._log.write(b"S")
            self._log.flush()
        return 0

    def flush(self, path: str, fh: int) -> int:
        return 0

    def destroy(self, path: str) -> None:
        self._log.close()


if __name__ == "__main__":
    operations = RecordedDisk(sys.argv[2], sys.argv[3])
    mfusepy.FUSE(operations, sys.argv[1], foreground=True, nothreads=True, direct_io=True)  # each read comes here
