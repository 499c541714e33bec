"""Writes salvaged messages into a new, valid log."""

from pathlib import Path

from storage_driver.files.disk import Disk, make_fixed
from storage_driver.log.segment import Segment, segment_name
from storage_driver.record import BLANK, BLANK_BYTES, MAGIC_BLANK, Message, StoredMessage, encode_record, encode_topic

WRITE_BYTES = 1 << 20


class SalvageWriter:
    """Appends records to a log in an empty folder; queues and index come with the first opening."""

    def __init__(self, disk: Disk, root: Path, segment_bytes: int) -> None:
        self.end = self._written = 0
        self._disk, self._root, self._size = disk, root, segment_bytes
        self._segment: Segment | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0
        disk.make_folder(root / "commitlog")

    def add(self, stored: StoredMessage) -> None:
        """Append one message under its old queue, number and times. Raises OSError."""
        message = Message(
            stored.topic,
            stored.queue_id,
            stored.body,
            stored.properties,
            stored.flag,
            stored.sys_flag,
            stored.born_ms,
            stored.born_host,
            stored.reconsume_times,
            stored.prepared_offset,
        )
        topic, host = encode_topic(stored.topic), stored.store_host
        limit = self.end - self.end % self._size + self._size
        if self.end + stored.size + BLANK_BYTES > limit:
            self._pieces.append(BLANK.pack(limit - self.end, MAGIC_BLANK))
            self._flush()
            self.end = self._written = limit
            self._segment = None
        if self._segment is None:
            path = self._root / "commitlog" / segment_name(self.end)
            file = make_fixed(self._disk, self._root / "segment.tmp", path, size=self._size, sparse=False)
            self._segment = Segment(self.end, self._size, path, file)
        data = encode_record(message, topic, stored.queue_offset, self.end, stored_ms=stored.stored_ms, store_host=host)
        self._pieces.append(data)
        self._waiting += len(data)
        self.end += len(data)
        if self._waiting >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._segment is not None and self._pieces:
            data = b"".join(self._pieces)
            self._segment.file.write([data], self._written - self._segment.base)
            self._segment.file.sync()
            self._written += len(data)
        self._pieces, self._waiting = [], 0

    def finish(self) -> None:
        """Make all of it durable. Raises OSError."""
        self._flush()
        self._disk.sync_all(self._root)
