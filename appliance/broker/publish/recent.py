"""The newest messages of the log, read back at start: what a producer may send again after a restart."""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from storage_driver.errors import RecordDamaged
from storage_driver.interfaces import MarkedReading
from storage_driver.record import BLANK, MAGIC_BLANK, StoredMessage, decode_record

MOST_BYTES: Final = 16 << 20
_MAGIC_BYTES: Final = bytes.fromhex("daa320a7")
_LOG_OFFSET: Final = Struct(">q")


def recent_messages(store: MarkedReading, since_ms: int, most_bytes: int = MOST_BYTES) -> list[StoredMessage]:
    """Return the messages stored since a time, oldest first, of the last part of the log. Blocks: for threads."""
    segments = store.segments()
    if not segments:
        return []
    start = max(segments[-1].base, store.committed - most_bytes)
    data = store.read_log(start, most_bytes)
    return [message for message in records_in(data, start) if message.stored_ms >= since_ms]


def records_in(data: bytes, start: int) -> Iterator[StoredMessage]:
    """Yield the records in a piece of the log that begins anywhere, at log offset start."""
    at = _first_record(data, start)
    while at is not None and at + BLANK.size <= len(data):
        if BLANK.unpack_from(data, at)[1] == MAGIC_BLANK:
            return
        try:
            message = decode_record(data, at, check_crc=False)
        except RecordDamaged:
            return
        yield message
        at += message.size


def _first_record(data: bytes, start: int) -> int | None:
    """Return where the first record begins: its magic follows its size, and it knows its own log offset."""
    found = data.find(_MAGIC_BYTES)
    while found >= 0:
        at = found - 4
        if at >= 0 and at + 36 <= len(data) and _LOG_OFFSET.unpack_from(data, at + 28)[0] == start + at:
            return at
        found = data.find(_MAGIC_BYTES, found + 1)
    return None
