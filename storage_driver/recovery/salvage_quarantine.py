"""Messages of `quarantine/` in a store of their own: what a cut took can be consumed there and sent again."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from storage_driver.errors import StoreRefused
from storage_driver.files.disk import Disk
from storage_driver.log.cut_history import OWN_TOPICS
from storage_driver.log.scan import intact, is_filler
from storage_driver.log.segment import Segment
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.dispatch import is_queued
from storage_driver.record import MessageQueue, StoredMessage, decode_record
from storage_driver.recovery.salvage import SalvageWriter

RANGE: Final = re.compile(r"log-(\d{20})-(\d{20})")


class QuarantineSalvaged(NamedTuple):
    """How many messages were found in how many ranges of the log, and of which topics."""

    ranges: int
    messages: int
    topics: list[str]


def quarantined_ranges(disk: Disk, root: Path) -> list[Segment]:
    """Return the ranges of the log in quarantine/, those that came first before the others. Blocks. Raises OSError."""
    folder, found = root / "quarantine", list[tuple[int, Segment]]()
    for facts in disk.list(folder):
        if not facts.is_folder and facts.size and (name := RANGE.fullmatch(facts.name)) is not None:
            path = folder / facts.name
            segment = Segment(int(name[1]), facts.size, path, disk.open(path, read_only=True))
            found.append((facts.modified_ms, segment))
    return [segment for _, segment in sorted(found, key=lambda each: (each[0], each[1].base))]


def salvage_quarantine(disk: Disk, root: Path, out: Path, *, segment_bytes: int) -> QuarantineSalvaged:
    """Write every intact message of clients in quarantine/ into a new store in an empty folder.

    Topics, queues and times stay, each queue is numbered anew. Raises StoreRefused, OSError.
    """
    if disk.list(out):
        raise StoreRefused(f"{out} is not empty: name a new or an empty folder")
    ranges = quarantined_ranges(disk, root)
    if not ranges:
        raise StoreRefused(f"{root}/quarantine has no part of the log")
    writer, numbers, count = SalvageWriter(disk, out, segment_bytes), Counter[MessageQueue](), 0
    for stored in _messages(ranges):
        queue = MessageQueue(stored.topic, stored.queue_id)
        writer.add(stored._replace(queue_offset=numbers[queue]))
        numbers[queue] += is_queued(stored.sys_flag)
        count += 1
    writer.finish()
    return QuarantineSalvaged(len(ranges), count, sorted({queue.topic for queue in numbers}))


def _messages(ranges: Iterable[Segment]) -> Iterator[StoredMessage]:
    for segment in ranges:
        for entry in intact(segment):
            if not is_filler(entry) and not entry.topic.startswith(OWN_TOPICS):
                yield decode_record(segment.file.read(entry.size, entry.log_offset - segment.base))
