"""What a power cut must not undo: names of files in their folder, and small files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from storage_driver.files.disk import RealDisk

MOST_BYTES = 64 << 20


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut. Blocks. Raises OSError."""
    RealDisk().sync_folder(path)


def refuse_huge(path: Path, size: int) -> None:
    """Raise OSError for a file that no ledger fills, and memory could not hold."""
    if size > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file: temporary name, fsync, rename, fsync of the folder. Blocks. Raises OSError, the old one stays."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
