"""`quarantine/`: bytes of the log that recovery, a read or a cut takes away are copied here first.

It holds at most 5 % of the disk; the oldest bytes go first.
"""

import errno
from pathlib import Path

from storage_driver.files.disk import Disk, data_pieces
from storage_driver.log.segment import Segment

QUARANTINE_PERCENT = 5  # of the disk


def quarantine_range(disk: Disk, segment: Segment, start: int, end: int) -> str:
    """Copy log range [start, end), without holes, to quarantine/ beside the log; return the name. Raises OSError."""
    folder = segment.path.parent.parent / "quarantine"
    name = f"log-{start:020d}-{end:020d}"
    fresh = not disk.exists(folder)
    disk.make_folder(folder)
    _make_room(disk, folder, end - start)
    file = disk.open(folder / name, create=True)
    for at, data in data_pieces(segment.file, start - segment.base, end - segment.base):
        file.write([data], at + segment.base - start)
    file.sync()
    disk.sync_folder(folder)
    if fresh:  # a file is only as durable as the names above it
        disk.sync_folder(folder.parent)
    return name


def _make_room(disk: Disk, folder: Path, count: int) -> None:
    """Delete the oldest quarantined bytes until `count` more stay within 5 % of the disk. Raises OSError."""
    usage = disk.usage(folder)
    most = (usage.used + usage.available) * QUARANTINE_PERCENT // 100
    if count > most:
        raise OSError(errno.ENOSPC, f"{count} bytes, quarantine/ may hold {most}")
    facts = sorted((f for f in disk.list(folder) if not f.is_folder), key=lambda f: f.modified_ms)
    held = sum(f.size for f in facts)
    for old in facts:
        if held + count <= most:
            return
        disk.remove(folder / old.name)
        held -= old.size
