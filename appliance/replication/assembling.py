"""Slices of a master's log in, whole records out, as the store appends them. Sans I/O.

Apache's master cuts its log every 32 KiB wherever that is, and ends each file with a blank: eight bytes that say how
many follow. A store makes the blank itself, so its other bytes are left out here.
"""

from netstack.wire.replication import LogSlice
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2


class LogDiffers(Exception):
    """The master's log is not the one that this log is a copy of; nothing more is appended."""


class RecordRun(NamedTuple):
    """Whole records from a log offset on, the head of a blank perhaps behind them."""

    log_offset: int
    data: bytes
    blank: bool = False

    @property
    def records_end(self) -> int:
        """The log offset just past the last record, where a blank may be."""
        return self.log_offset + len(self.data) - (BLANK_BYTES if self.blank else 0)


class RecordAssembler:
    """One connection to a master, from the log offset on that was reported."""

    def __init__(self, log_offset: int, *, most_bytes: int) -> None:
        self.expected = log_offset  # where the next slice begins
        self._most, self._tail, self._left_of_blank = most_bytes, b"", 0

    def feed(self, found: LogSlice) -> list[RecordRun]:
        """Return the runs that are whole now. Raises LogDiffers for what does not follow, or is no part of a log."""
        if found.log_offset != self.expected:
            text = f"the master sends its log from {found.log_offset} on, this copy ends at {self.expected}"
            raise LogDiffers(f"{text}: it is a copy of another log, or the master's log was cut")
        self.expected = found.end
        data, runs = self._tail + found.data, list[RecordRun]()
        at = start = self._skip_blank(data, 0)
        while len(data) - at >= BLANK_BYTES:
            size, magic = BLANK.unpack_from(data, at)
            self._check(size, magic, found.end - len(data) + at)
            if magic == MAGIC_BLANK:
                runs.append(RecordRun(found.end - len(data) + start, data[start : at + BLANK_BYTES], blank=True))
                self._left_of_blank = size - BLANK_BYTES
                at = start = self._skip_blank(data, at + BLANK_BYTES)
            elif at + size > len(data):
                break
            else:
                at += size
        if at > start:
            runs.append(RecordRun(found.end - len(data) + start, data[start:at]))
        self._tail = data[at:]
        return runs

    def _skip_blank(self, data: bytes, at: int) -> int:
        """Return where the blank ends, or the data."""
        skipped = min(self._left_of_blank, len(data) - at)
        self._left_of_blank -= skipped
        return at + skipped

    def _check(self, size: int, magic: int, log_offset: int) -> None:
        if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or size < BLANK_BYTES:
            raise LogDiffers(f"no record of the master's begins at {log_offset}, where this copy has one")
        if magic != MAGIC_BLANK and size > self._most:
            text = f"the record at {log_offset} has {size} bytes, this box takes {self._most}"
            raise LogDiffers(f"{text}: raise limits.message_mib to that of the master")
