"""One file of the CommitLog, and the thread-side writer that rolls from one to the next.

Invariant: a segment is in place only after its predecessor, blank included, is on stable storage.
"""

import errno
import time
from pathlib import Path

from storage_driver.files.disk import Disk, DiskFile, ShortWrite, make_fixed
from storage_driver.files.unreadable import ZeroingDisk, ZeroingFile
from storage_driver.named_tuple import NamedTuple

AHEAD, FAR_AHEAD = 256 << 10, 1 << 20  # bytes; zeros end at their multiples
SMALL_BATCH = 16 << 10  # up to here zeros cost the disk no more than the journal blocks that they save
FEW_ZEROS, MANY_ZEROS = 4 << 10, 16 << 10  # bytes that are written at once, behind batches of one sender and of many
_ZEROS = bytes(MANY_ZEROS)


class Segment(NamedTuple):
    """One CommitLog file: log offsets [base, base + size)."""

    base: int
    size: int
    path: Path
    file: DiskFile

    @property
    def end(self) -> int:
        """The log offset just past the file."""
        return self.base + self.size


def zeroing(disk: Disk, segment: Segment) -> Segment:
    """Return a segment that reads as one of this disk does: of a ZeroingDisk with zeros for bad sectors."""
    if not isinstance(disk, ZeroingDisk):
        return segment
    return segment._replace(file=ZeroingFile(disk, segment.file, segment.path))


class SegmentFacts(NamedTuple):
    """Facts of a segment; `end` is the end of its records."""

    base: int
    end: int
    size: int
    path: Path


class Write(NamedTuple):
    """Bytes that go to one place of the log."""

    log_offset: int
    pieces: list[bytes]


class WriteResult(NamedTuple):
    """What one pass of the writer did: segments it began, seconds that the slowest sync and all of it took."""

    begun: list[Segment]
    sync_s: float
    total_s: float


def segment_name(base: int) -> str:
    """Return the file name of the segment (or queue file) that begins at base."""
    return f"{base:020d}"


class Stopped(OSError):
    """The disk refused more: what is before `base`, where a record ends, is on stable storage.

    With `unsure` the records behind it may be there as well, else none of them is.
    """

    def __init__(self, cause: OSError, text: str, *, base: int, unsure: bool) -> None:
        super().__init__(cause.errno, text)
        self.base, self.unsure = base, unsure
        self.written = WriteResult([], 0.0, 0.0)


class SegmentWriter:
    """Writes and syncs batches at the end of the log; used by one thread at a time."""

    def __init__(self, disk: Disk, folder: Path, size: int, tail: Segment | None, *, zero_ahead: bool = False) -> None:
        self._disk, self._folder, self._size, self._tail = disk, folder, size, tail
        self._ahead, self._largest = (FAR_AHEAD, size) if zero_ahead else (AHEAD, SMALL_BATCH)
        self._zeroed = 0  # log offset up to which zeros were written over what was only allocated
        self._spare: DiskFile | None = None
        self.refused: tuple[int, int] | None = None  # a log offset where the disk did not take a write; its file's base
        self._spare_path, self._next_path = folder.parent / "spare.tmp", folder.parent / "next.tmp"

    @property
    def wants_spare(self) -> bool:
        """Tell whether the next segment has not been prepared yet."""
        return self._spare is None

    def prepare_spare(self) -> None:
        """Make the next segment's file ahead of need; may run beside `write_and_sync`. Raises OSError."""
        self._disk.remove(self._spare_path)
        file = self._disk.open(self._spare_path, create=True)
        file.allocate(self._size)
        file.sync()
        self._spare = file

    def write_and_sync(self, writes: list[Write]) -> WriteResult:
        """Put each write in its segment and sync it before the next segment is begun. Raises Stopped."""
        started, slowest = time.perf_counter(), 0.0
        begun: list[Segment] = []
        try:
            for log_offset, pieces in writes:
                if not pieces:
                    continue
                tail = self._tail
                if tail is None or log_offset >= tail.end:
                    tail = self._tail = self._begin(log_offset)
                    begun.append(tail)
                try:
                    tail.file.write(pieces, log_offset - tail.base)
                except OSError as exc:
                    raise _keep_whole(tail, log_offset, pieces, exc) from exc
                length = sum(map(len, pieces))
                in_place = log_offset + length <= self._zeroed
                if not in_place and length <= self._largest:
                    self._write_ahead(tail, log_offset + length, length)
                before = time.perf_counter()
                _sync(tail, log_offset, in_place=in_place)
                slowest = max(slowest, time.perf_counter() - before)
        except Stopped as stopped:
            self._zeroed = 0  # who knows
            if stopped.unsure and stopped.errno == errno.EIO and self._tail is not None:
                self.refused = stopped.base, self._tail.base
            stopped.written = WriteResult(begun, slowest, time.perf_counter() - started)
            raise
        return WriteResult(begun, slowest, time.perf_counter() - started)

    def take_over(self, segment: Segment) -> None:
        """Another file is the last one of the log from now on, whole; nothing is being written."""
        self._tail, self._zeroed = segment, 0

    def go_back(self, log_offset: int) -> None:
        """Write at a log offset next, which is before what was written; later segments are gone. Raises OSError."""
        self._zeroed = 0
        base = log_offset - log_offset % self._size
        if log_offset == base:
            self._tail = None  # to be started again
        elif self._tail is None or self._tail.base != base:
            path = self._folder / segment_name(base)
            self._tail = Segment(base, self._size, path, self._disk.open(path))

    def _write_ahead(self, tail: Segment, end: int, length: int) -> None:
        """Follow a small batch by zeros, so that the next ones overwrite blocks instead of beginning them.

        ext4 and XFS commit their journal at the sync of a block's first write: a second wait. In small pieces, since
        what is written at once becomes one large folio (Linux 6.16): the kernel counts it as written whole with each
        later batch, although the disk gets the blocks of that batch alone. Of many senders batches are larger, and the
        interpreter's lock, which each write hands on and takes again, is wanted: fewer pieces.
        """
        piece = FEW_ZEROS if length <= FEW_ZEROS else MANY_ZEROS
        stop = min(tail.end, -(-end // self._ahead) * self._ahead)
        try:
            while end < stop:
                count = min(piece - end % piece, stop - end)
                tail.file.write([_ZEROS[:count]], end - tail.base)
                end += count
        except OSError:
            pass  # only speed is lost; a disk that fails says so at the sync
        self._zeroed = end

    def _begin(self, log_offset: int) -> Segment:
        base = log_offset - log_offset % self._size
        path = self._folder / segment_name(base)
        spare = self._spare
        try:
            if spare is not None:
                self._disk.rename(self._spare_path, path)
                self._spare = None  # not before: another thread begins the next one under the same name then
            else:
                spare = make_fixed(self._disk, self._next_path, path, size=self._size, sparse=False)
            self._disk.sync_folder(self._folder)
        except OSError as exc:
            raise Stopped(exc, f"next segment {path.name}: {exc.strerror}", base=log_offset, unsure=False) from exc
        return Segment(base, self._size, path, spare)


def _sync(tail: Segment, sure_to: int, *, in_place: bool = False) -> None:
    try:
        tail.file.sync(in_place=in_place)
    except OSError as exc:
        raise Stopped(exc, f"sync at {sure_to}: {exc.strerror}", base=sure_to, unsure=True) from exc


def _keep_whole(tail: Segment, log_offset: int, pieces: list[bytes], cause: OSError) -> Stopped:
    """Sync the records that a failed write took whole and cover the broken one; return where the log ends now.

    A batch of which only the head was taken must not come back behind what will be written over its beginning.
    """
    taken, whole = cause.written if isinstance(cause, ShortWrite) else 0, 0
    for piece in pieces:
        if whole + len(piece) > taken:
            break
        whole += len(piece)
    base = log_offset + whole
    text = f"write of {sum(map(len, pieces)) - whole} bytes at {base}: {cause.strerror}"
    covered = True
    try:
        if taken > whole:
            tail.file.write([bytes(taken - whole)], base - tail.base)
    except OSError:
        covered = False
    if taken:
        _sync(tail, log_offset)
    return Stopped(cause, text, base=base, unsure=not covered)
