"""The queue files that a recovery writes, cuts and removes, until they are synced."""

from pathlib import Path

from storage_driver.files.disk import Disk, DiskFile, zero_fill
from storage_driver.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, QueueFiles
from storage_driver.record import MessageQueue


class RecoveredFiles:
    """`firsts`: the first entries of the files that each queue was found with."""

    def __init__(self, disk: Disk, root: Path, files: QueueFiles) -> None:
        self._disk, self._files = disk, files
        self.folder = root / "consumequeue"
        self.firsts: dict[MessageQueue, list[int]] = {}
        self.cut = 0  # queues
        self.refused: tuple[MessageQueue, Path] | None = None  # what the disk did not take
        self._touched: dict[Path, DiskFile] = {}

    @property
    def touched(self) -> int:
        """How many files were written and wait for a sync."""
        return len(self._touched)

    def write(self, queue: ConsumeQueue, entries: bytes) -> None:
        """Write entries behind those that the queue's files have. Raises OSError."""
        for path in self._files.write(queue.key, queue.written, entries, has_files=queue.first_file is not None):
            self._touched[path] = self._disk.open(path)
        if queue.first_file is None:
            queue.first_file = queue.written - queue.written % self._files.file_entries
        self.firsts.setdefault(queue.key, [])

    def cut_behind(self, queue: ConsumeQueue) -> None:
        """Zero the entries after the end and delete files behind it. Raises OSError."""
        entries, was_cut = self._files.file_entries, False
        for first in self.firsts.get(queue.key, ()):
            if first >= queue.visible and first != queue.first_file:
                self._disk.remove(self._files.path(queue.key, first))
                was_cut = True
            elif first + entries > queue.visible:
                file = self._files.file(queue.key, first)
                if zero_fill(file, max(0, queue.visible - first) * ENTRY_BYTES, entries * ENTRY_BYTES):
                    self._touched[self._files.path(queue.key, first)] = file
                    was_cut = True
        self.cut += was_cut

    def remove(self, key: MessageQueue) -> None:
        """Remove all files of a queue. Raises OSError."""
        folder = self._files.folder(key)
        self._files.forget(key)
        self._disk.remove_folder(folder)
        self._touched = {path: file for path, file in self._touched.items() if path.parent != folder}
        self.firsts[key] = []

    def sync(self) -> None:
        """Return once every file written is on stable storage. Raises OSError; `refused` has the queue then."""
        for path, file in self._touched.items():
            try:
                file.sync()
            except OSError:
                self.refused = MessageQueue(path.parent.parent.name, int(path.parent.name)), path
                raise
            self._disk.sync_folder(path.parent)
            self._disk.sync_folder(path.parent.parent)
        if self._touched:
            self._disk.sync_folder(self.folder)

    def synced(self) -> None:
        """Note that every file written is on stable storage."""
        self._touched.clear()
