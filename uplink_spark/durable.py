"""What a power cut must not undo: names of files in their folder, and small files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from storage_driver.disk import RealDisk


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut. Blocks. Raises OSError."""
    RealDisk().sync_folder(path)


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file: temporary name, fsync, rename, fsync of the folder. Blocks. Raises OSError, the old one stays."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
