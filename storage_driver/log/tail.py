"""`Tail`: what is appended and not yet given to the log's thread, and where the next record goes."""

from collections.abc import Sequence
from typing import Final

import trio

from storage_driver.errors import Busy
from storage_driver.log.segment import Write
from storage_driver.queues.pending import PendingAppend
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK

BUSY_AFTER_S: Final = 1.0
BUSY_CHECK_EVERY: Final = 16  # the clock costs 0.3 µs


class Tail:
    """The end of one log; changes memory only."""

    def __init__(self, end: int, limit: int, segment_bytes: int) -> None:
        self.end, self.segment_bytes = end, segment_bytes
        self.limit = limit  # where the segment of the next record ends
        self.pending: list[PendingAppend] = []
        self.truncations = 0  # how often appended records were given up, their offsets given out again
        self.oldest_at: float | None = None  # since when the oldest record that is not synced waits
        self._pieces: list[bytes] = []
        self._writes = [Write(end, self._pieces)]

    @property
    def waiting_s(self) -> float:
        """How long the oldest record that is not synced has waited, 0 when there is none."""
        return 0.0 if self.oldest_at is None else trio.current_time() - self.oldest_at

    def reserve(self, size: int) -> int:
        """Return the log offset where `size` bytes will be, ending the segment if need be. Raises Busy."""
        if self.oldest_at is not None and not len(self.pending) % BUSY_CHECK_EVERY and self.waiting_s > BUSY_AFTER_S:
            raise Busy(int(self.waiting_s * 1000))
        if self.end + size + BLANK_BYTES > self.limit:
            self.end_segment()
        return self.end

    def end_segment(self) -> None:
        """Leave the rest of the segment blank: the next record begins the next one."""
        self._pieces.append(BLANK.pack(self.limit - self.end, MAGIC_BLANK))
        self.end, self.limit = self.limit, self.limit + self.segment_bytes
        self._pieces = []
        self._writes.append(Write(self.end, self._pieces))

    def append(self, data: bytes, pending: PendingAppend) -> int:
        """Take a record or a batch at `end` (after `reserve`), return the log offset just past it."""
        if self.oldest_at is None:
            self.oldest_at = trio.current_time()
        self._pieces.append(data)
        self.pending.append(pending)
        self.end += len(data)
        return self.end

    def append_all(self, data: bytes, pending: Sequence[PendingAppend]) -> None:
        """Take records that follow one another at `end`, in one piece; they fit the segment."""
        first, *rest = pending
        self.append(data, first)
        self.pending += rest

    def take(self) -> tuple[list[Write], list[PendingAppend]]:
        """Return what is to be written, and its records: the next ones are appended behind them."""
        writes, pending = self._writes, self.pending
        self._set(self.end, self.limit)
        return writes, pending

    def begin_at(self, log_offset: int) -> None:
        """Go on with the first byte of a segment; nothing waits to be written."""
        self._set(log_offset, log_offset + self.segment_bytes)

    def go_back(self, log_offset: int) -> list[PendingAppend]:
        """Append the next record at a log offset; return the records that waited to be written, dropped now."""
        dropped = self.pending
        self._set(log_offset, log_offset - log_offset % self.segment_bytes + self.segment_bytes)
        self.oldest_at = None
        self.truncations += 1
        return dropped

    def _set(self, end: int, limit: int) -> None:
        self.end, self.limit, self.pending, self._pieces = end, limit, [], []
        self._writes = [Write(end, self._pieces)]
