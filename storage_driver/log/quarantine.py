"""`quarantine/`: bytes of the log that recovery, a read or a cut takes away are copied here first.

It holds at most 5 % of the disk; the oldest bytes go first. What a cut takes away is kept whole, whatever it is: the
bound counts again with the next damage.
"""

import errno
from pathlib import Path

from storage_driver.files.disk import Disk, data_pieces
from storage_driver.log.segment import Segment

QUARANTINE_PERCENT = 5  # of the disk


def quarantine_range(disk: Disk, segment: Segment, start: int, end: int, *, bounded: bool = True) -> str:
    """Copy log range [start, end), without holes, to quarantine/ beside the log; return the name. Raises OSError."""
    folder, name = _folder(disk, segment), f"log-{start:020d}-{end:020d}"
    if bounded:
        _make_room(disk, folder, end - start)
    file = disk.open(folder / name, create=True)
    for at, data in data_pieces(segment.file, start - segment.base, end - segment.base):
        file.write([data], at + segment.base - start)
    file.sync()
    disk.sync_folder(folder)
    return name


def quarantine_segment(disk: Disk, segment: Segment, end: int) -> str:
    """Give a segment that is to be removed a name in quarantine/, which takes no room; return it. Raises OSError."""
    folder, name = _folder(disk, segment), f"log-{segment.base:020d}-{end:020d}"
    segment.file.write([segment.file.read(1, 0)], 0)  # it is as old as its place here: the oldest go first
    disk.remove(folder / name)
    disk.link(segment.path, folder / name)
    disk.sync_folder(folder)
    return name


def _folder(disk: Disk, segment: Segment) -> Path:
    """Return quarantine/, which is there then; a file is only as durable as the names above it. Raises OSError."""
    folder = segment.path.parent.parent / "quarantine"
    if not disk.exists(folder):
        disk.make_folder(folder)
        disk.sync_folder(folder.parent)
    return folder


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
