"""Whole segments of another log: a copy takes them as files, and reads their records afterwards, as a start does."""

from pathlib import Path
from typing import Final

import trio

from storage_driver.errors import LogFailed, RecordDamaged
from storage_driver.files.disk import Disk
from storage_driver.flusher import Flusher
from storage_driver.log.commit_log import CommitLog
from storage_driver.log.commitment import ALL
from storage_driver.log.copied_segment import CopiedSegment
from storage_driver.raw_appending import RawAppender
from storage_driver.reader import read_log

READ_BYTES: Final = 960 << 10  # and more where a record is larger


class SegmentCopies:
    """What one store does with them; called in the trio loop."""

    def __init__(self, disk: Disk, folder: Path, log: CommitLog, raw: RawAppender, *, flusher: Flusher) -> None:
        """folder: that of the log."""
        self._disk, self._folder, self._log, self._raw, self._flusher = disk, folder, log, raw, flusher
        self._one_thread = trio.CapacityLimiter(1)

    def begin(self) -> CopiedSegment:
        """Return the rest of the segment where the log ends, to be filled."""
        log = self._log
        tail = log.segments[-1] if log.segments and log.segments[-1].end > log.end else None
        copied = CopiedSegment(self._disk, self._folder, log.segment_bytes, start=log.end, tail=tail)
        copied.truncations = log.truncations
        return copied

    def fits(self, copied: CopiedSegment) -> bool:
        """Return whether the log ends where this copy begins, all of it synced, and was not cut since."""
        log = self._log
        same = copied.truncations == log.truncations  # else other bytes may stand before it
        return same and copied.start == log.end == log.synced and log.failure is None

    async def install(self, copied: CopiedSegment) -> None:
        """Make a finished copy part of the log: all of it is synced then. Raises LogFailed, ValueError."""
        try:
            segment = await trio.to_thread.run_sync(copied.install, limiter=self._one_thread)
        except OSError as exc:
            self._log.seal(f"segment {copied.base}: {exc}")
            raise LogFailed(f"segment {copied.base}: {exc}") from exc
        self._log.adopt(segment)

    # ---- what is derived

    @property
    def unread(self) -> bool:
        """Whether the log has records that are in no queue because nobody has read them yet."""
        return self._log.read_to < self._log.end

    async def note_committed(self, log_offset: int) -> None:
        """Have a start know that all below is committed, as far as it is here: it need not keep these records apart.

        Raises OSError.
        """
        file = self._flusher.restart.committed_file
        if file is not None and self.unread:
            async with self._flusher.guard:
                await trio.to_thread.run_sync(file.save, min(log_offset, self._log.synced), limiter=self._one_thread)

    async def read_some(self) -> None:
        """Read the next records, put them in their queues, commit what may be.

        Raises QueueRestarted: its topic is to be deleted first; RecordDamaged, OSError.
        """
        log, size = self._log, READ_BYTES
        while log.read_to < ALL:
            start, truncations, segments = log.read_to, log.truncations, tuple(log.segments)
            segment = log.segment_of(start)
            count = min(size, log.end - start)
            data = await trio.to_thread.run_sync(read_log, segments, start, count, limiter=self._one_thread)
            if log.truncations != truncations or log.read_to != start:
                continue
            if segment is None or not data:
                raise RecordDamaged(start, "the log has no such bytes")
            if self._raw.read(start, data, segment.end - start) > start:
                return
            if len(data) < size:
                raise RecordDamaged(start, "it is not whole")
            size *= 8
