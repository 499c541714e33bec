"""A file that is replaced as a whole: after a power cut its name leads to the old one or to the new one."""

from collections.abc import Callable, Sequence
from pathlib import Path

from storage_driver.files.disk import Disk, DiskFile


def put_whole(
    disk: Disk, path: Path, pieces: Sequence[bytes], *, before: Callable[[], None] = lambda: None
) -> DiskFile:
    """Put a new file in place, on stable storage, and return it; `before` is called when all but its name is there.

    Blocks. Raises OSError: then the old file has the name, or nobody knows.
    """
    temporary = path.with_name(path.name + ".tmp")
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.write(pieces, 0)
    file.sync()
    before()
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)
    return file
