"""Some MiB of disk that are freed when the file system is almost full, so that small tables can still be replaced."""

from pathlib import Path

from storage_driver.files.disk import Disk, Usage

RELEASE_PERCENT = 95
TAKE_PERCENT = 88


class Reserve:
    """The file `reserve` in the store's folder; everything here blocks and is for one thread."""

    def __init__(self, disk: Disk, root: Path, size: int) -> None:
        self._disk, self._path, self._size = disk, root / "reserve", size

    def look(self) -> Usage:
        """Measure the file system, take or release the reserve, return what is used then. Raises OSError."""
        usage = self._disk.usage(self._path.parent)
        held = self._disk.exists(self._path)
        if held and (usage.percent >= RELEASE_PERCENT or not self._size):
            self._disk.remove(self._path)
            return self._disk.usage(self._path.parent)
        if not held and self._size and usage.percent < TAKE_PERCENT and usage.available > 4 * self._size:
            self._take()
            return self._disk.usage(self._path.parent)
        return usage

    def _take(self) -> None:
        """Make the file; without room for it there is none."""
        file = self._disk.open(self._path, create=True)
        try:
            file.allocate(self._size)
        except OSError:
            self._disk.remove(self._path)  # half a reserve only takes room
