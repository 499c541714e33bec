"""The lock of the one writer of a shard on a disk: a file that is locked and says who holds it."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from pathlib import Path

from uplink_spark.centre.zone_files.place import FilePlace
from uplink_spark.errors import LandingError


class ShardLock:
    """Held from `take` to `close`."""

    def __init__(self, path: Path, shard: str) -> None:
        self._path, self._shard = path, shard  # what errors call the shard
        self._file = -1
        self._mark = b""  # in the file while the lock is ours
        self._place: FilePlace

    def take(self) -> None:
        """Raises LandingError where another process holds it, OSError."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 200, 0).decode("utf-8", "replace").partition("\n")[0] or "another process"
            os.close(file)
            raise LandingError(
                f"{self._shard} is held by {holder}; stop that gateway first, or start both with --advertise"
            ) from error
        self._file = file
        self._place = FilePlace(self._path)
        self._mark = f"pid {os.getpid()} on {socket.gethostname()}\n{secrets.token_hex(8)}\n".encode()
        os.ftruncate(file, 0)
        os.pwrite(file, self._mark, 0)

    def check(self) -> None:
        """Raise LandingError where another gateway has or had the lock, OSError where another zone is at its path.

        A shared disk gives a lock away whose holder it has not heard of for a while: what that one has read is old.
        """
        self._place.check()
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # asks the server, and drops what is cached
            if os.pread(self._file, 200, 0) == self._mark:
                return
        except (BlockingIOError, PermissionError):
            pass
        raise LandingError(
            f"{self._shard}: the disk has given the lock to another gateway; this one writes nothing more of what it "
            "has read"
        )

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
