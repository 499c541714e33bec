"""A segment whose disk did not take a write: the next start goes on in a copy of it, on other blocks of the disk.

Without that each start would append at the same place and fail there again. `rocketbox/unwritable.json` tells the next
start; the old blocks stay allocated under a name in quarantine/, so that no other file gets them.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from storage_driver.files.disk import Disk, data_pieces
from storage_driver.files.state_file import NOT_SAVED, StateFile
from storage_driver.files.unreadable import BLOCK, ZeroingDisk, unreadable_in
from storage_driver.log.segment import segment_name

KEPT_BYTES: Final = 4 << 20  # of the old file, from where the write failed
TEMPORARY: Final = "next.tmp"
SPARE: Final = "spare.tmp"  # the next segment: it takes as much room as a copy, and is made again


def note_unwritable(disk: Disk, root: Path, log_offset: int, base: int) -> None:
    """Have the next start copy the segment that begins at base, in which a write at log_offset failed. Blocks.

    A disk that does not take the note either is no matter of one segment.
    """
    with suppress(OSError):
        _note(disk, root).save({"base": base, "at": log_offset})


def replace_unwritable(disk: ZeroingDisk, root: Path) -> list[str]:
    """Copy the segment that was noted; return what was done, or why not: the next start tries again. Blocks.

    Without a copy the log fails at the same place; till then what is there is read, and retention makes room.
    """
    note = _note(disk, root)
    try:
        found = note.load()
        base, log_offset = (int(found["base"]), int(found["at"])) if found is not None else (-1, 0)
    except NOT_SAVED:
        base, log_offset = -1, 0
    if base < 0:
        return []
    path = root / "commitlog" / segment_name(base)
    text = f"commitlog/{path.name}: the disk did not take a write at {log_offset}"
    try:
        aside = _put_copy(disk, root, path, log_offset - base) if disk.exists(path) else None
        note.remove()
    except OSError as exc:
        return [f"{text}; not copied, the log will fail there again: {exc}"]
    return [] if aside is None else [f"{text}, copied; see quarantine/{aside}"]


def _put_copy(disk: ZeroingDisk, root: Path, path: Path, at: int) -> str:
    """Copy a segment; return the name under which the old blocks stay. Raises OSError: then all is as before."""
    try:
        _copy(disk, root, path)
        return _keep(disk, root, path, at)
    except OSError:
        disk.remove(root / TEMPORARY)
        raise


def keep_blocks(disk: Disk, root: Path, path: Path) -> str:
    """Give a file a second name, in quarantine/, so that its blocks are not free when it goes. Raises OSError."""
    folder = root / "quarantine"
    disk.make_folder(folder)
    name, there = f"unwritable-{path.name}", {facts.name for facts in disk.list(folder)}
    while name in there:
        name += "+"
    disk.link(path, folder / name)
    disk.sync_folder(folder)
    return name


def _note(disk: Disk, root: Path) -> StateFile:
    return StateFile(disk, root / "rocketbox" / "unwritable.json")


def _copy(disk: ZeroingDisk, root: Path, path: Path) -> None:
    source, temporary = disk.open(path, read_only=True), root / TEMPORARY
    size = source.size()
    for name in (SPARE, TEMPORARY):
        disk.remove(root / name)
    file = disk.open(temporary, create=True)
    file.allocate(size)
    for at, data in data_pieces(source, 0, size):
        file.write([data], at)
    file.sync()


def _keep(disk: ZeroingDisk, root: Path, path: Path, at: int) -> str:
    """Put the copy in place; keep the blocks around the failed write, of what was there, under a name of their own."""
    source = disk.open(path)
    unreadable, name = unreadable_in(source, 0, source.size()), keep_blocks(disk, root, path)
    disk.rename(root / TEMPORARY, path)
    disk.sync_folder(path.parent)
    for low, high in unreadable:  # zeros in the copy, and no less lost
        for block in range(low // BLOCK, -(-high // BLOCK)):
            disk.note(path, block)
    with suppress(OSError):  # a file system that frees no parts of files
        source.punch(0, at - at % BLOCK)
        behind = min(source.size(), at + KEPT_BYTES)
        source.punch(behind, source.size() - behind)
    return name
