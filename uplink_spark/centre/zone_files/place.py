"""What a path led to when it was first looked at: a file system mounted over a landing zone leads it elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class FilePlace:
    """A file or folder, whatever its path leads to later."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.stat()

    def check(self) -> None:
        """Raise OSError where the path leads elsewhere: what is written there, the next start would not find."""
        try:
            if os.path.samestat(self._path.stat(), self._file):
                return
        except FileNotFoundError:
            pass
        raise OSError(
            errno.ESTALE,
            f"{self._path} is no longer what it was at the start: another file system is mounted over the landing "
            "zone, or the zone was moved; put it back and the gateway goes on",
        )
