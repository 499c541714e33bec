"""Files that the box's own user alone may read: replaced so that a power cut leaves the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_private(path: Path, text: str) -> None:
    """Replace a file durably, mode 0600; no link in the way of the new one is followed. Blocks. Raises OSError."""
    fresh = path.with_name(path.name + ".tmp")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    settle(fresh, path)


def settle(made: Path, place: Path) -> None:
    """Put a finished file where it belongs, durably. Blocks. Raises OSError."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(place)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
