"""Bytes of a leader's log for its followers: the newest batches from memory, older ones from the disk.

A batch is offered as it begins to be written here, so that followers write it at the same time. Pieces are whole
records of one segment; the head of the blank at a segment's end goes along, what is behind it does not.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from appliance.group.copies.pieces import LogPiece, cut_piece, whole_records
from storage_driver.record import BLANK, BLANK_BYTES

if TYPE_CHECKING:
    from storage_driver.log.segment import Write

MOST_KEPT: Final = 8 << 20  # bytes in memory, beside those that are not synced yet
AHEAD: Final = 3  # pieces that are read from the disk with one, in the same turn of a thread, and kept for who reads
MOST_PIECE: Final = 960 << 10  # and one record; for a MiB the C library asks the kernel for new pages each time
Read = Callable[[int, int], bytes]
"""(log offset, at most so many bytes) → synced bytes of one segment, none where there are none. Blocks."""


class FeedGone(Exception):
    """The log has no such bytes any more, or they cannot be read."""


class Feed:
    """What one log has for others. `batch` and `piece` are called in the trio loop."""

    def __init__(self, read: Read, *, segment_bytes: int, synced: Callable[[], int]) -> None:
        self.read, self.segment_bytes, self.synced = read, segment_bytes, synced
        self._kept, self._kept_bytes = deque[LogPiece](), 0
        self._reading = trio.CapacityLimiter(1)
        self._ahead: dict[str, deque[LogPiece]] = {}  # per reader: read, not asked for yet
        self._clears = 0  # what a thread began to read before the last one is not this log any more
        self.read_by = Counter[str]()  # bytes from the disk per reader

    def batch(self, writes: Sequence[Write], end: int) -> None:
        """Keep what begins to be written."""
        for log_offset, pieces in writes:
            if pieces:
                data = b"".join(pieces)
                blank = len(pieces[-1]) == BLANK_BYTES  # no record is so short
                end = log_offset + len(data)
                self._kept.append(LogPiece(log_offset, data, self._segment_end(log_offset) if blank else end))
                self._kept_bytes += len(data)
        while self._kept and self._kept_bytes > MOST_KEPT and self._kept[0].end <= self.synced():
            self._kept_bytes -= len(self._kept.popleft().data)

    def _segment_end(self, log_offset: int) -> int:
        return log_offset - log_offset % self.segment_bytes + self.segment_bytes

    def clear(self) -> None:
        """Forget what is in memory: the log is not this member's to feed from any more."""
        self._clears += 1
        self._kept.clear()
        self._ahead.clear()
        self._kept_bytes = 0

    def forget(self, reader: str) -> None:
        """Drop what was read ahead for a reader: it has everything, or is gone."""
        self._ahead.pop(reader, None)

    async def piece(self, start: int, upto: int, reader: str = "") -> LogPiece | None:
        """Return records from a log offset on, at most up to another; None when they are not to be had yet.

        Raises FeedGone.
        """
        if self._kept and self._kept[0].start <= start:
            self.forget(reader)
            return self._from_memory(start, upto)
        if start >= min(upto, self.synced()):
            return None
        return await self._from_disk(start, min(upto, self.synced()), reader)

    def _from_memory(self, start: int, upto: int) -> LogPiece | None:
        """Return the batches from there on, several small ones together."""
        parts, end, size = list[bytes](), start, 0
        for kept in self._from(start):
            if parts and (kept.start != end or size + len(kept.data) > MOST_PIECE or self._ends_segment(end)):
                break
            data = kept.data[start - kept.start :] if kept.start < start else kept.data
            if kept.end > upto:  # a term ends within it, where a record ends
                data = data[: max(0, upto - end)]
            parts.append(data)
            end, size = min(kept.end, upto), size + len(data)
            if size > MOST_PIECE or end == upto:
                break
        if not size:
            return None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return cut_piece(LogPiece(start, data, end), MOST_PIECE) if size > MOST_PIECE else LogPiece(start, data, end)

    def _from(self, start: int) -> Iterable[LogPiece]:
        """Return the batches that end above a log offset, oldest first: mostly the newest of thousands."""
        found = deque[LogPiece]()
        for kept in reversed(self._kept):
            if kept.end <= start:
                break
            found.appendleft(kept)
        return found

    def _ends_segment(self, log_offset: int) -> bool:
        return log_offset % self.segment_bytes == 0

    async def _from_disk(self, start: int, upto: int, reader: str) -> LogPiece | None:
        """Return records; None when the log was cleared meanwhile: it may have been cut since. Raises FeedGone."""
        ahead = self._ahead.get(reader)
        if ahead and ahead[0].start == start and ahead[0].end <= upto:
            return ahead.popleft()
        self.forget(reader)
        clears = self._clears
        try:
            found = await trio.to_thread.run_sync(self._read_pieces, start, upto, limiter=self._reading)
        except OSError as exc:
            raise FeedGone(f"the log at {start} cannot be read: {exc}") from exc
        self.read_by[reader] += sum(len(each.data) for each in found)
        if clears != self._clears:
            return None
        first, *more = found
        if more:
            self._ahead[reader] = deque(more)
        return first

    def _read_pieces(self, start: int, upto: int) -> list[LogPiece]:
        """Return records, more of them while they come in large pieces. Blocks. Raises FeedGone, OSError."""
        found = [self._read_piece(start, upto)]
        while len(found) <= AHEAD and upto - found[-1].end >= MOST_PIECE:
            try:
                found.append(self._read_piece(found[-1].end, upto))
            except (FeedGone, OSError):
                break  # whoever asks for it is told
        return found

    def _read_piece(self, start: int, upto: int) -> LogPiece:
        """Return records. Blocks. Raises FeedGone, OSError."""
        want = min(MOST_PIECE, upto - start)
        data = self._bytes(start, want)
        found = whole_records(start, data, self.segment_bytes)
        if found.end == start:  # one record that is larger, or a blank at the end of what is there
            size = BLANK.unpack_from(data)[0] if len(data) >= BLANK_BYTES else 0
            if not want < size <= self.segment_bytes:
                raise FeedGone(f"no record begins at {start}")
            data = self._bytes(start, size)
            found = whole_records(start, data, self.segment_bytes)
        return found

    def _bytes(self, start: int, count: int) -> bytes:
        data = self.read(start, count)
        if not data:
            raise FeedGone(f"the log at {start} is deleted")
        return data
