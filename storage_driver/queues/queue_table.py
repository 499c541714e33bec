"""The list of queues in `rocketbox/queues.json`: how far each reached when the log was complete below `as_of`.

With thousands of queues a start takes them from here instead of opening every file; the files are looked at afterwards.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from storage_driver.errors import MessageIllegal
from storage_driver.files.disk import Disk
from storage_driver.files.state_file import NOT_SAVED, StateFile, checksum
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.record import MessageQueue, check_queue

_DAMAGED: Final = (*NOT_SAVED, MessageIllegal)
PARTS: Final = {"layout", "asOf", "queues"}  # once there was no checksum


class QueueRow(NamedTuple):
    """One queue that has a file."""

    key: MessageQueue
    end: int  # entries below are in the files
    first_file: int  # entry where the first file begins
    last_log_offset: int


class QueueTable(NamedTuple):
    """All queues; with an `as_of` of -1 the ends are only lower bounds."""

    as_of: int
    rows: list[QueueRow]


def table_file(disk: Disk, root: Path) -> StateFile:
    """Return the file that holds the table."""
    return StateFile(disk, root / "rocketbox" / "queues.json")


def table_value(as_of: int, queues: Iterable[ConsumeQueue]) -> dict[str, Any]:
    """Return what is to be saved; every entry below `as_of` must be in its queue's file."""
    rows = [
        [q.key.topic, q.key.queue_id, q.written, q.first_file, q.last_log_offset]
        for q in queues
        if q.first_file is not None
    ]
    return {"layout": 1, "asOf": as_of, "queues": rows}


def save_table(file: StateFile, value: dict[str, Any]) -> None:
    """Save a table with its checksum: of a wrong number billions of holes would be made. Raises OSError."""
    file.save(value | {"crc": checksum([value["asOf"], value["queues"]])})


def load_table(file: StateFile) -> QueueTable:
    """Return the table, an empty one when there is none that can be read."""
    try:
        value = file.load()
        if value is None:
            return QueueTable(-1, [])
        if value.keys() - PARTS and value["crc"] != checksum([value["asOf"], value["queues"]]):
            return QueueTable(-1, [])
        rows = [_row(*row) for row in value["queues"]]
        whole = all(row.first_file >= 0 for row in rows)
        return QueueTable(int(value.get("asOf", -1)) if whole else -1, [row for row in rows if row.end > 0])
    except _DAMAGED:
        return QueueTable(-1, [])


def _row(topic: str, queue_id: int, end: int, first_file: int = -1, last: int = -1) -> QueueRow:
    return QueueRow(_queue(topic, queue_id), int(end), int(first_file), int(last))


def _queue(topic: str, queue_id: int) -> MessageQueue:
    """Return a queue that was noted. Raises MessageIllegal for one that no folder can have."""
    queue = MessageQueue(str(topic), int(queue_id))
    check_queue(queue)
    return queue


class RebuildMark:
    """`rocketbox/rebuilding.json`: the queues whose files are being rebuilt, so that a cut on the way is noticed."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk, self._file = disk, StateFile(disk, root / "rocketbox" / "rebuilding.json")

    def load(self) -> list[MessageQueue]:
        """Return the queues whose rebuilding did not end. Raises OSError."""
        try:
            value = self._file.load() or {"queues": []}
            return [_queue(topic, queue_id) for topic, queue_id in value["queues"]]
        except _DAMAGED:
            return []

    def set(self, keys: Iterable[MessageQueue]) -> None:
        """Note the queues before the first of their files is touched. Raises OSError."""
        self._file.save({"layout": 1, "queues": sorted(keys)})

    def clear(self) -> None:
        """Forget them: the new files are on stable storage. Raises OSError."""
        if self._disk.exists(self._file.path):
            self._file.remove()
