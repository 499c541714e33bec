"""Names in the store that the disk does not give back: a damaged inode, or a folder whose own blocks are unreadable.

Nobody can open, remove or rename such a name; only the folder that it is in can be renamed. Entries of queues and the
index come from the log again. A table counts as an unreadable one: a new folder takes all other tables.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from storage_driver.errors import StoreRefused
from storage_driver.files import unreadable
from storage_driver.files.disk import LOST, NOT_GIVEN, Disk, FileFacts
from storage_driver.files.layout_repair import FOLDERS, POSITION, ROOT_FILES, TIMERS, set_aside
from storage_driver.files.unreadable import BLOCK, ZeroingDisk, plain

T = TypeVar("T")
TABLES, DERIVED = ("config", "rocketbox"), ("consumequeue", "index")
MOST_FREED: Final = 100  # names in one start
CHECK: Final = "unmount its file system and check it (e2fsck -f, xfs_repair), then start again"
_SLOTS = (POSITION, "first", "committed", "vote")  # tables that are no JSON
_FILLED: Final = b"\xff" * 2 * BLOCK  # no table, also for a start that does not know of it


def free_tables_lost(disk: ZeroingDisk, root: Path) -> list[str]:
    """Have each table that cannot be opened count as unreadable; return what was done. Raises StoreRefused, OSError."""
    there = {facts.name: facts for facts in disk.list(root)}
    for name in there.keys() & {*FOLDERS, *ROOT_FILES}:
        _refuse_lost(root / name, there[name])
    for facts in disk.list(root / "commitlog"):
        _refuse_lost(root / "commitlog" / facts.name, facts)
    done = []
    for name in TABLES:
        folder, fresh = root / name, root / f"{name}.new"
        if fresh.name in there and name not in there:  # the power went between the last two steps
            disk.rename(fresh, folder)
        if fresh.name in there or _surely_lost(disk, folder):
            done += _free(disk, root, folder, fresh)
    return done


def _refuse_lost(path: Path, facts: FileFacts) -> None:
    if facts.odd == LOST:
        raise StoreRefused(f"{path} cannot be opened, the disk does not give back what it is: {CHECK}")


def _surely_lost(disk: ZeroingDisk, folder: Path) -> list[str]:
    """Return the names that the disk does not give back, although it gives back other files. Raises OSError."""
    lost = _lost(disk, folder)
    for _ in range(unreadable.TRIES if lost else 0):
        time.sleep(unreadable.PAUSE_S)
        lost = [name for name in _lost(disk, folder) if name in lost]
    if lost and not disk.gives_back():
        raise StoreRefused(f"{folder / lost[0]} cannot be opened, the disk gives back nothing: see the kernel's log")
    return [name for name in _lost(disk, folder) if name in lost]


def _lost(disk: Disk, folder: Path) -> list[str]:
    return [facts.name for facts in disk.list(folder) if facts.odd == LOST]


def _free(disk: ZeroingDisk, root: Path, folder: Path, fresh: Path) -> list[str]:
    """Put a new folder in place, with all that can be moved; done again, it goes on where the power went."""
    disk.make_folder(fresh)
    lost = _lost(disk, folder)
    for facts in disk.list(folder):
        if facts.name not in lost:
            disk.rename(folder / facts.name, fresh / facts.name)
    tables = [name for name in lost if name in _SLOTS or name.endswith((".json", ".bak", ".journal", ".cbor", ".log"))]
    for name in tables:
        plain(disk.open(fresh / name, create=True)).write([_FILLED], 0)
    disk.sync_all(fresh)
    kept = set_aside(disk, root, folder)
    disk.rename(fresh, folder)
    disk.sync_folder(root)
    for name in tables:
        for block in range(len(_FILLED) // BLOCK):
            disk.note(folder / name, block)
    return [f"{folder.name}/{name}: {LOST}, kept in quarantine/{kept}" for name in lost]


def around_lost(disk: ZeroingDisk, root: Path, step: Callable[[], T], freed: Callable[[Path, str], None]) -> T:
    """Do a step of a start; what it cannot open of queues and index goes to quarantine/, then once more.

    freed(path, its name in quarantine/) is called of each. Raises OSError, StoreRefused.
    """
    tries = 0
    while True:
        try:
            return step()
        except OSError as exc:
            path, tries = _derived(root, exc), tries + 1
            if path is None or tries > MOST_FREED:
                raise
            time.sleep(unreadable.PAUSE_S)
            if not disk.gives_back():
                raise
            if _is_lost(disk, path):
                freed(*_set_aside(disk, root, path))


def _derived(root: Path, exc: OSError) -> Path | None:
    """Return what an error is about, if it is a name that can go: its content comes from the log again."""
    if exc.errno not in NOT_GIVEN or not isinstance(exc.filename, str) or not Path(exc.filename).is_relative_to(root):
        return None
    parts = Path(exc.filename).relative_to(root).parts
    is_derived = parts[:1] and (parts[0] in DERIVED or parts[:2] == ("rocketbox", TIMERS))
    return Path(exc.filename) if is_derived else None


def _is_lost(disk: Disk, path: Path) -> bool:
    """Tell whether nobody can open a file, or list all that is in a folder."""
    try:
        found = {facts.name: facts for facts in disk.list(path.parent)}.get(path.name)
        if found is not None and not found.is_folder:
            disk.open(path, read_only=True)
        return found is not None and found.is_folder and bool(_lost(disk, path))
    except OSError as exc:
        if exc.errno not in NOT_GIVEN:
            raise
        return True


def _set_aside(disk: Disk, root: Path, path: Path) -> tuple[Path, str]:
    """Rename the path, or the folder above it that can be renamed. Raises OSError."""
    while True:
        try:
            return path, set_aside(disk, root, path)
        except OSError as exc:
            if exc.errno not in NOT_GIVEN or path.parent == root:
                raise
        path = path.parent
