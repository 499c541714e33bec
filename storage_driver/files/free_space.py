"""Room for the first small files of a start on a file system that is full to the last block.

Other programs fill a disk, too. The store then frees what it holds in advance: its reserve, the next segment, at last
some blocks after the end of the log, which its writer takes again when it gets there.
"""

from pathlib import Path

from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.layout_repair import LOCK, is_segment_name

RELEASED_BYTES, BLOCK = 4 << 20, 4096  # bytes; a start writes about 100 KB
AHEAD = ("reserve", "spare.tmp", "next.tmp", "copy.tmp")


def release_space(disk: Disk, root: Path) -> bool:
    """Free something; return whether there was anything. The caller holds the lock. Raises OSError. Blocks."""
    found = [root / name for name in AHEAD if disk.exists(root / name)]
    for path in found:
        disk.remove(path)
    return bool(found) or _punch_tail(disk, root / "commitlog")


def make_room(root: Path) -> bool:
    """Do so in a store's folder that is not in use; return False if it is, or if nothing can be freed. Blocks."""
    disk = RealDisk()
    try:
        lock = disk.lock(root / LOCK)
    except OSError:
        return False
    try:
        return release_space(disk, root)
    except OSError:
        return False
    finally:
        lock.release()


def _punch_tail(disk: Disk, folder: Path) -> bool:
    names = [facts.name for facts in disk.list(folder) if is_segment_name(facts.name) and not facts.is_folder]
    if not names:
        return False
    file = disk.open(folder / max(names))
    end, size = 0, file.size()
    while (found := file.next_data(end)) is not None and end < size:
        end = found[1]
    start = -(-max(end, size - RELEASED_BYTES) // BLOCK) * BLOCK
    if start >= size:
        return False
    file.punch(start, size - start)
    return True
