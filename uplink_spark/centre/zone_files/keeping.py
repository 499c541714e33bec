"""The files of a landing zone as its retention needs them: looked at, replaced, deleted; on a disk or in a bucket."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from uplink_spark.centre.zone_files.landing import make_folders
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.wire.durable import write_synced
from uplink_spark.zone.files import LocalFiles, open_files


class Listing(Protocol):
    """Names in folders and the bytes of small files."""

    def names(self, folder: str) -> list[str]: ...
    def read(self, path: str, at: int) -> bytes | None: ...


class Keeping(Listing, Protocol):
    """All calls block and raise OSError."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file, durable on return."""

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""

    def size(self, path: str) -> int:
        """Return the bytes a file holds."""


class DiskKeeping(LocalFiles):
    """A landing zone in a folder."""

    def replace(self, path: str, data: bytes) -> None:
        make_folders(Path(self.root), path.rpartition("/")[0])
        write_synced(Path(self.root, path), data)

    def delete(self, path: str) -> None:
        target = Path(self.root, path)
        target.unlink(missing_ok=True)
        if target.suffix == ".pack":
            with suppress(OSError):  # other packs are in the folder of the day
                target.parent.rmdir()

    def size(self, path: str) -> int:
        return Path(self.root, path).stat().st_size


class BucketKeeping:
    """A landing zone in an object store."""

    def __init__(self, url: str) -> None:
        # Its client is not needed where no bucket is.
        from uplink_spark.centre.zone_files.object_store import open_store

        self._store = open_store(url)

    def names(self, folder: str) -> list[str]:
        return self._store.names(folder)

    def read(self, path: str, at: int) -> bytes | None:
        data = self._store.get(path)
        return None if data is None else data[at:]

    def replace(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def size(self, path: str) -> int:
        return self._store.size(path)


def open_records(url: str, shards: int) -> CentreRecords:
    """Return the small files of the zone at a path or URL. Raises LandingError."""
    files = open_files(url)
    if isinstance(files, LocalFiles):
        return CentreRecords(Path(files.root), shards)
    from uplink_spark.centre.zone_files.object_store import open_store  # as above
    from uplink_spark.centre.zone_files.objects import ObjectRecords

    return ObjectRecords(open_store(url), shards)


def open_keeping(url: str) -> Keeping:
    """Return the files of the zone at a path or URL. Raises LandingError."""
    files = open_files(url)
    return DiskKeeping(files.root) if isinstance(files, LocalFiles) else BucketKeeping(url)
