"""The 20-byte entries of one queue: log offset i64, record size i32, tags code i64.

Entries that are not in the file yet are kept in memory; entry n is at byte 20·n of the queue's endless file.
Everything here can be rebuilt from the log.
"""

import errno
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Final

from storage_driver.files.disk import NO_WAY, Disk, DiskFile, make_fixed
from storage_driver.record import MessageQueue

ENTRY: Final = Struct(">qiq")
ENTRY_BYTES: Final = ENTRY.size
HOLE_SIZE: Final = 0x7FFFFFFF
HOLE: Final = ENTRY.pack(0, HOLE_SIZE, 0)  # stands for a message that is not there; readers skip it
FILE_ENTRIES: Final = 300_000


@lru_cache(1024)
def _path(name: str) -> Path:
    return Path(name)  # 5 µs with its text, which a recovery wants ten times for each queue


class ConsumeQueue:
    """State of one queue in memory: about 400 bytes while nothing waits to be written."""

    __slots__ = (
        "_waiting",
        "dropped",
        "first_file",
        "key",
        "last_log_offset",
        "min_cached",
        "next_offset",
        "topic_bytes",
        "visible",
        "written",
    )

    def __init__(self, key: MessageQueue, topic_bytes: bytes, *, end: int = 0, first_file: int | None = None) -> None:
        self.key, self.topic_bytes = key, topic_bytes
        self.next_offset = end  # given to the next append
        self.visible = end  # entries below can be pulled
        self.written = end  # entries below are in the file
        self.first_file = first_file  # entry where the first file begins, None while there is no file
        self.min_cached = (-1, 0)  # (lowest log offset it was found for, lowest entry that is still in the log)
        self.last_log_offset = -1
        self.dropped = False  # its topic was deleted
        self._waiting: bytes | bytearray = b""

    def add(self, queue_offset: int, log_offset: int, size: int, code: int) -> None:
        """Append one entry; entries skipped since the last one become holes."""
        self._append(queue_offset, ENTRY.pack(log_offset, size, code))
        self.visible = queue_offset + 1
        self.last_log_offset = log_offset

    def add_run(
        self, queue_offset: int, log_offsets: Sequence[int], sizes: Sequence[int], codes: Sequence[int]
    ) -> None:
        """Append entries that follow one another."""
        self._append(queue_offset, b"".join(map(ENTRY.pack, log_offsets, sizes, codes)))
        self.visible = queue_offset + len(sizes)
        self.last_log_offset = log_offsets[-1]

    def skip_to(self, queue_offset: int) -> None:
        """Make holes of the numbers below this one that were not added."""
        if queue_offset > self.visible:
            self._append(queue_offset, b"")
            self.visible = queue_offset

    def _append(self, queue_offset: int, entries: bytes) -> None:
        if queue_offset > self.visible:
            entries = HOLE * (queue_offset - self.visible) + entries
        if self._waiting:
            self._waiting += entries
        else:
            self._waiting = bytearray(entries)

    def take_back(self, queue_offset: int) -> None:
        """Give out this number again: its record was taken out of the log."""
        self.next_offset = min(self.next_offset, queue_offset)

    def waiting(self) -> bytes:
        """Return the entries from `written` to `visible`."""
        return bytes(self._waiting)

    def wrote(self, count: int) -> None:
        """Forget the first `count` waiting entries: they are in the file."""
        self.written += count
        self._waiting = self._waiting[count * ENTRY_BYTES :]
        if not self._waiting:
            self._waiting = b""

    def held(self, queue_offset: int, count: int) -> bytes | None:
        """Return up to count entries from memory, None when they begin in the file."""
        if queue_offset < self.written:
            return None
        at = (queue_offset - self.written) * ENTRY_BYTES
        return bytes(self._waiting[at : at + count * ENTRY_BYTES])


class MisnumberedQueue(ConsumeQueue):
    """Stands for a queue that gets a hole in place of a record whose number is damaged; no reader meets the record."""

    __slots__ = ("queue",)

    def __init__(self, queue: ConsumeQueue) -> None:
        super().__init__(queue.key, queue.topic_bytes)
        self.queue, self.dropped = queue, True

    def leave_hole(self, queue_offset: int) -> ConsumeQueue:
        """Have the queue continue behind a number; return it."""
        if not self.queue.dropped:
            self.queue.skip_to(queue_offset + 1)
        return self.queue

    def take_back(self, queue_offset: int) -> None:
        self.queue.take_back(queue_offset)


class QueueFiles:
    """The files of all queues, few of them open; not shared between threads."""

    def __init__(
        self, disk: Disk, root: Path, *, file_entries: int = FILE_ENTRIES, most_open: int = 256, read_only: bool = False
    ) -> None:
        self.file_entries = file_entries
        self.made: set[Path] = set()  # files whose names nobody has synced yet; the owner clears it
        self._disk, self._root, self._most_open, self._read_only = disk, root, most_open, read_only
        self._folder = str(root / "consumequeue")
        self._open: OrderedDict[tuple[MessageQueue, int], DiskFile] = OrderedDict()

    def folder(self, key: MessageQueue) -> Path:
        """Return where the queue's files are."""
        return _path(f"{self._folder}/{key.topic}/{key.queue_id}")

    def path(self, key: MessageQueue, first_entry: int) -> Path:
        """Return the file that begins with this entry."""
        return _path(f"{self._folder}/{key.topic}/{key.queue_id}/{first_entry * ENTRY_BYTES:020d}")

    def file(self, key: MessageQueue, first_entry: int) -> DiskFile:
        """Return the open file that begins with this entry. Raises FileNotFoundError."""
        file = self._open.get((key, first_entry))
        if file is None:
            file = self._disk.open(self.path(key, first_entry), read_only=self._read_only)
            self._remember(key, first_entry, file)
        else:
            self._open.move_to_end((key, first_entry))
        return file

    def _remember(self, key: MessageQueue, first_entry: int, file: DiskFile) -> None:
        self._open[key, first_entry] = file
        if len(self._open) > self._most_open:
            self._open.popitem(last=False)

    def forget(self, key: MessageQueue) -> None:
        """Close the queue's files."""
        for name in [name for name in self._open if name[0] == key]:
            del self._open[name]

    def write(self, key: MessageQueue, queue_offset: int, entries: bytes, *, has_files: bool) -> set[Path]:
        """Write entries from a queue offset on, making files as needed; return the paths to sync. Raises OSError."""
        touched = set()
        while entries:
            first_entry = queue_offset - queue_offset % self.file_entries
            count = min(len(entries) // ENTRY_BYTES, first_entry + self.file_entries - queue_offset)
            try:
                file = self.file(key, first_entry)
            except OSError as exc:
                if exc.errno not in NO_WAY:
                    raise
                file = self._make(key, first_entry)
                if not has_files and queue_offset > first_entry:
                    file.write([HOLE * (queue_offset - first_entry)], 0)
            has_files = True
            file.write([entries[: count * ENTRY_BYTES]], (queue_offset - first_entry) * ENTRY_BYTES)
            touched.add(self.path(key, first_entry))
            entries, queue_offset = entries[count * ENTRY_BYTES :], queue_offset + count
        return touched

    def _make(self, key: MessageQueue, first_entry: int) -> DiskFile:
        folder = self.folder(key)
        try:
            self._disk.make_folder(folder)
        except OSError as exc:
            if exc.errno != errno.EEXIST and exc.errno not in NO_WAY:
                raise
            # all in here is derived: what is no folder only stands in the way
            for path in (folder.parent, folder):
                self._clear(path)
            self._disk.make_folder(folder)
        temporary, path = self._root / "queue.tmp", self.path(key, first_entry)
        file = make_fixed(self._disk, temporary, path, size=self.file_entries * ENTRY_BYTES, sparse=True)
        self.made.add(path)
        self._remember(key, first_entry, file)
        return file

    def _clear(self, path: Path) -> None:
        try:
            self._disk.remove(path)
        except OSError:
            pass  # a folder, as it should be, or nothing that can be removed: the next step tells

    def read(self, key: MessageQueue, queue_offset: int, count: int) -> bytes:
        """Return entries of one file, up to count; none when the file is missing."""
        first_entry = queue_offset - queue_offset % self.file_entries
        count = min(count, first_entry + self.file_entries - queue_offset)
        try:
            file = self.file(key, first_entry)
        except OSError as exc:
            if exc.errno not in NO_WAY:
                raise
            return b""
        return file.read(count * ENTRY_BYTES, (queue_offset - first_entry) * ENTRY_BYTES)

    def read_open(self, key: MessageQueue, queue_offset: int, count: int) -> bytes | None:
        """Return entries of one file without waiting for the disk, None when that cannot be done."""
        first_entry = queue_offset - queue_offset % self.file_entries
        file = self._open.get((key, first_entry))
        if file is None:
            return None
        count = min(count, first_entry + self.file_entries - queue_offset)
        return file.read_hot(count * ENTRY_BYTES, (queue_offset - first_entry) * ENTRY_BYTES)

    def adopt(self, other: "QueueFiles") -> None:
        """Take over the files that another has open."""
        for (key, first_entry), file in other._open.items():
            self._remember(key, first_entry, file)
