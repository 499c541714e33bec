"""The rest of one segment as another box has it: in a file of its own until it is whole, then in its place in the log.

Invariant: nothing of it is in the log before `install`, then all of it is, on stable storage and read back.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from storage_driver.crc import crc32
from storage_driver.files.disk import Disk, DiskFile
from storage_driver.log.segment import Segment, segment_name

COPY: Final = "copy.tmp"
PIECE: Final = 512 << 10  # bytes that are read at once
FROM_DISK: Final = 16  # of so many pieces one is read from the disk itself; all of them would cost 2 ms a MB, not 0.2
SYNC_EVERY: Final = 16 << 20  # bytes: a sync of a whole segment holds up those of others for a second


class CopyDiffers(Exception):
    """The disk does not give back what it was given."""


class CopiedSegment:
    """One segment on its way into a log that ends within it, or right before it. Its methods block; OSError is raised.

    `at`: below this log offset the file has everything; `crc`: of the bytes between `start` and there.
    """

    def __init__(self, disk: Disk, folder: Path, segment_bytes: int, *, start: int, tail: Segment | None) -> None:
        """folder: that of the log; tail: its last segment, which begins where this one does if `start` is within."""
        self.start = self.at = start
        self.base = start - start % segment_bytes
        self.end = self.base + segment_bytes
        self.crc = self._crc_before = 0
        self.truncations = 0  # of the log, when this was begun
        self._disk, self._folder, self._path = disk, folder, folder.parent / COPY
        self._tail, self._synced = tail, start
        self._file: DiskFile | None = None

    def begin(self, check: Callable[[], None]) -> None:
        """Make the file, with what the log has of the segment. `check` is called now and then and may raise."""
        self._disk.remove(self._path)
        file = self._disk.open(self._path, create=True)
        file.allocate(self.end - self.base)
        at = self.base
        while self._tail is not None and at < self.start:
            check()
            data = self._tail.file.read(min(PIECE, self.start - at), at - self.base)
            file.write([data], at - self.base)
            self._crc_before = crc32(data, self._crc_before)
            at += len(data)
        self._file = file

    @property
    def begun(self) -> bool:
        """Whether the file is there."""
        return self._file is not None

    def write(self, data: memoryview, crc: int) -> None:
        """Take the next bytes; `crc` is that of all from `start` on, as whoever sent them says."""
        assert self._file is not None, "begin comes first"
        self._file.write([cast("bytes", data)], self.at - self.base)
        self.at, self.crc = self.at + len(data), crc
        if self.at - self._synced >= SYNC_EVERY:
            self._file.sync()
            self._synced = self.at

    def start_again(self) -> None:
        """Forget what has come."""
        self.at = self._synced = self.start
        self.crc = 0

    def finish(self, check: Callable[[], None]) -> None:
        """Sync the file and compare what the disk has with what came. Raises CopyDiffers."""
        file = self._file
        assert file is not None, "begin comes first"
        file.sync()
        ranges = ((self.base, self.start, self._crc_before), (self.start, self.end, self.crc))
        for start, end, expected in ranges:
            at = found = 0
            while at < end - start:
                check()
                place = start - self.base + at
                if not at % (FROM_DISK * PIECE):
                    file.advise(place, PIECE, os.POSIX_FADV_DONTNEED)
                data = file.read(min(PIECE, end - start - at), place)
                if not data:
                    break
                found = crc32(data, found)
                at += len(data)
            if at < end - start or found != expected:
                raise CopyDiffers(f"bytes {start} to {end} are not those that were written")

    def install(self) -> Segment:
        """Put the file in its place and return it."""
        assert self._file is not None, "begin comes first"
        path = self._folder / segment_name(self.base)
        self._disk.rename(self._path, path)
        self._disk.sync_folder(self._folder)
        return Segment(self.base, self.end - self.base, path, self._file)

    def discard(self) -> None:
        """Remove the file."""
        self._file = None
        self._disk.remove(self._path)
