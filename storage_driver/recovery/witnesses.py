"""Other records of the log's end, so that a log that lost its end is not taken for a short one.

Each speaks only of what was synced: the position and the table of queues are saved behind it, queue and index entries
are written once their record is durable, a run begins at a synced end, a receipt is for bytes below `committed`. So no
power cut makes one of them reach behind the log. What has no checksum counts only where it is consistent with itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.files.disk import Disk
from storage_driver.index.index_file import UNIT, IndexSize, list_index
from storage_driver.index.index_slots import HEADER
from storage_driver.log.scan import Bad, Blank, walk, why_unreadable
from storage_driver.log.segment import Segment
from storage_driver.queues.queue_table import QueueTable
from storage_driver.record import SMALLEST_RECORD

INDEX, ENTRIES = "the index", "entries of queues"
UNCHECKED = {INDEX, ENTRIES}


class Witnesses:
    """What each of them says; `known_to`: a loss up to there was told before, what is below says nothing new."""

    def __init__(self, known_to: int = 0) -> None:
        self.said: dict[str, int] = {}
        self._known_to = known_to

    def add(self, who: str, log_offset: int) -> None:
        """Note that the log reached at least to here."""
        if log_offset > max(self._known_to, self.said.get(who, 0)):
            self.said[who] = log_offset

    def add_all(self, position: CheckpointValues | None, table: QueueTable, others: Mapping[str, int]) -> None:
        """Take what recovery has read, and what it was told of others."""
        self.add("the saved position", position.queues_to if position is not None else 0)
        last = max((row.last_log_offset for row in table.rows), default=-1)
        self.add("the table of queues", max(table.as_of, last + SMALLEST_RECORD if last >= 0 else 0))
        for who, log_offset in others.items():
            self.add(who, log_offset)

    @property
    def reach(self) -> int:
        """The end that the log reached at least; 0 when nothing proves more than is known."""
        return max(self.said.values(), default=0)

    def reach_from(self, log_offset: int, far: int) -> int:
        """Return how far the log reached as seen from its end; what has no checksum counts up to `far` behind it."""
        near = [reach for reach in self.said.values() if reach <= log_offset + far]
        return max([*near, *(self.said[who] for who in self.said.keys() - UNCHECKED)], default=0)

    def beyond(self, log_offset: int) -> dict[str, int]:
        """Return the records that prove more than what is below a log offset."""
        return {who: reach for who, reach in self.said.items() if reach > log_offset}


def index_reach(disk: Disk, root: Path, size: IndexSize) -> int:
    """Return where the newest record in the index begins, 0 when no file says so in two places. Raises OSError."""
    for facts in reversed(list_index(disk, root / "index")):
        if facts.size != size.file_bytes:
            continue
        file = disk.open(root / "index" / facts.name, read_only=True)
        head = file.read(HEADER.size, 0)
        _, _, begin_offset, end_offset, _, count = HEADER.unpack(head)
        if 1 < count <= size.units and 0 <= begin_offset <= end_offset:
            raw = file.read(UNIT.size, HEADER.size + 4 * size.slots + UNIT.size * (count - 1))
            if len(raw) == UNIT.size and UNIT.unpack(raw)[1] == end_offset:
                return int(end_offset) + SMALLEST_RECORD
    return 0


def whole_from(segments: Sequence[Segment], start: int, last_record: int) -> int:
    """Return where to scan from: `start` when records lead up to it, else where a file before it begins.

    last_record: where the newest record that is known of begins, so that little must be read to see it.
    """
    at = next((number for number, s in enumerate(segments) if s.base < start <= s.end), None)
    if at is None or _leads_to(segments[at], start, last_record):
        return start
    while at > 0 and not _leads_to(segments[at - 1], segments[at].base, -1):
        at -= 1
    return segments[at].base


def _leads_to(segment: Segment, log_offset: int, last_record: int) -> bool:
    """Tell whether whole records, or the blank at a file's end, lead up to a log offset. Raises OSError.

    An unreadable sector below says nothing against it: readers and the scrub tell of it.
    """
    known = segment.base <= last_record < log_offset
    for item in walk(segment, last_record if known else segment.base, check_crc=False):
        if isinstance(item, Blank):
            return log_offset == segment.end
        if isinstance(item, Bad):
            return why_unreadable(segment, item.log_offset, log_offset) is not None
        if item.log_offset + item.size >= log_offset:
            return item.log_offset + item.size == log_offset
    return False
