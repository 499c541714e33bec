"""A landing zone as its readers see it: files by relative path, and the manifest of each shard up to its last mark.

Local folders are read with the system calls, anything else through `pyarrow.fs`. A folder is listed once, at the
first look; from then on each manifest file names the next one.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from uplink_spark.errors import LandingError, ManifestDamaged
from uplink_spark.zone.manifest import (
    LANDING_NAME,
    ManifestEntry,
    Zone,
    decode_zone,
    first_seq_of,
    kept_of,
    kept_path,
    manifest_folder,
    manifest_path,
    read_head,
    read_items,
)

FILE_ENTRIES = 65_536  # of a full manifest file on a disk; an object of a bucket has those of one commit
CACHED_ENTRIES = 3 * FILE_ENTRIES  # of a shard, newest file included
READ_AHEAD = 16  # objects of a bucket at a time: each is a request


class LocalFiles:
    """The files of a landing zone in a folder of this machine."""

    read_ahead = 1

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str, at: int) -> bytes | None:
        """Return the bytes of a file from `at` to its end, None where there is no such file."""
        try:
            with open(os.path.join(self.root, path), "rb") as file:
                file.seek(at)
                return file.read()
        except FileNotFoundError:
            return None

    def read_range(self, path: str, at: int, size: int) -> bytes:
        """Return up to size bytes. Raises OSError."""
        with open(os.path.join(self.root, path), "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, at)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self.root, folder))
        except (FileNotFoundError, NotADirectoryError):  # somebody's file among the folders of days
            return []

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that a reader sees the old or the new bytes."""
        target = Path(self.root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)


def shown(url: str) -> str:
    """Return a URL for messages: it may carry keys."""
    return re.sub(r"//[^@/]*@", "//***@", url)


class RemoteFiles:
    """The files of a landing zone behind any `pyarrow.fs` file system."""

    read_ahead = READ_AHEAD

    def __init__(self, url: str) -> None:
        from pyarrow import fs

        self.root = shown(url)
        system, base = fs.FileSystem.from_uri(url)
        self._fs: Any = fs.SubTreeFileSystem(base, system)

    def read(self, path: str, at: int) -> bytes | None:
        try:
            with self._fs.open_input_file(path) as file:
                size = file.size()
                return b"" if at >= size else bytes(file.read_at(size - at, at))
        except FileNotFoundError:
            return None

    def read_range(self, path: str, at: int, size: int) -> bytes:
        with self._fs.open_input_file(path) as file:
            return bytes(file.read_at(size, at))

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(folder, allow_not_found=True)
        return [found.base_name for found in self._fs.get_file_info(selector)]

    def replace(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(path) as stream:
            stream.write(data)


Files = LocalFiles | RemoteFiles


def open_files(url: str) -> Files:
    """Return access to the landing zone at a path or URL. Raises LandingError for a URL nobody can open."""
    parts = urlparse(url)
    if parts.scheme in ("", "file"):
        return LocalFiles(os.path.abspath(unquote(parts.path) if parts.scheme else url))
    try:
        return RemoteFiles(url)
    except (OSError, ValueError) as error:
        raise LandingError(f"landing zone {shown(url)}: {error}; use a path, file:, s3:, gs: or abfs:") from error


def read_zone(files: Files) -> Zone:
    """Return what LANDING says. Raises LandingError while there is none."""
    data = files.read(LANDING_NAME, 0)
    if data is None:
        raise LandingError(
            f"no landing zone at {files.root}: it has no file {LANDING_NAME}; the gateway creates it at first start "
            f"(python -m uplink_spark gateway --landing {files.root} --listen HOST:PORT)"
        )
    return decode_zone(data)


class _ManifestFile:
    """One manifest file and what has been read of it."""

    def __init__(self, shard: int, first: int) -> None:
        self.shard, self.first = shard, first
        self.entries: list[ManifestEntry] = []
        self._at = 0

    @property
    def next_seq(self) -> int:
        return self.first + len(self.entries)

    def refresh(self, read: Callable[[str, int], bytes | None]) -> bool:
        """Take what has been marked since; False where the file is gone. Raises ManifestDamaged."""
        data = read(manifest_path(self.shard, self.first), self._at)
        if data is None:
            return False
        head = 0 if self._at else read_head(data, self.shard, self.first)
        if not self._at and not head:
            return True
        part = read_items(data[head:], self.next_seq)
        self._at += head + part.marked
        self.entries += part.entries
        return True


class ShardLog:
    """The entries of one shard by seq; keeps the newest files in memory and reads older ones again when asked."""

    def __init__(self, files: Files, shard: int) -> None:
        self.shard, self._files = shard, files
        self._firsts: list[int] = []
        self._cache: dict[int, _ManifestFile] = {}

    def refresh(self) -> int:
        """Return the next seq: every entry below it is durable and can be read."""
        if not self._firsts and not self._list():
            return 0
        while True:
            newest = self._file(self._firsts[-1], fresh=True)
            following = newest.next_seq
            if following == newest.first or self._files.read(manifest_path(self.shard, following), 0) is None:
                return following
            newest.refresh(self._files.read)  # the old file is finished before the next one is made
            if newest.next_seq == following:
                self._firsts.append(following)

    def _list(self) -> bool:
        names = self._files.names(manifest_folder(self.shard))
        self._firsts = sorted(first for first in map(first_seq_of, names) if first is not None)
        return bool(self._firsts)

    def _file(self, first: int, *, fresh: bool = False) -> _ManifestFile:
        file = self._cache.pop(first, None)
        known = file is not None
        file = file or _ManifestFile(self.shard, first)
        self._cache[first] = file
        if (fresh or not known) and not file.refresh(self._files.read):
            del self._cache[first]
            raise LandingError(
                f"{manifest_path(self.shard, first)} of {self._files.root} is gone: the centre's retention removed it "
                "while this reader still needed it; start again from `earliest` or a later position"
            )
        if not known:
            self._evict()
        return file

    def _evict(self) -> None:
        """Forget the files used longest ago beyond CACHED_ENTRIES, but the newest used."""
        kept = sum(len(file.entries) for file in self._cache.values())
        while kept > CACHED_ENTRIES and len(self._cache) > 1:
            kept -= len(self._cache.pop(next(iter(self._cache))).entries)

    def _read_ahead(self, at: int, end: int) -> None:
        """Read files from the one at `at` on together, where each costs a request and they are small."""
        firsts = self._firsts[at : at + self._files.read_ahead]
        wanted = [first for first in firsts if first < end and first - firsts[0] < FILE_ENTRIES]
        missing = [_ManifestFile(self.shard, first) for first in wanted if first not in self._cache]
        if len(missing) < 2:
            return
        with ThreadPoolExecutor(len(missing)) as pool:
            there = list(pool.map(lambda file: file.refresh(self._files.read), missing))
        self._cache |= {file.first: file for file, found in zip(missing, there, strict=True) if found}

    @property
    def oldest(self) -> int:
        """The first seq that is still in the manifest (after a refresh); its pack may have left already."""
        return self._firsts[0] if self._firsts else 0

    def begins(self) -> int:
        """Return the first seq that readers may ask for: retention has removed what is below it.

        Raises LandingError.
        """
        try:
            return max(self.oldest, kept_of(self._files.read(kept_path(self.shard), 0)))
        except ManifestDamaged as error:
            raise LandingError(f"{kept_path(self.shard)} of {self._files.root}: {error}") from error

    def entries(self, start: int, end: int) -> Iterator[ManifestEntry]:
        """Yield the entries with start <= seq < end that are there, ascending. Raises LandingError, ManifestDamaged."""
        at = max(0, bisect_right(self._firsts, start) - 1)
        while at < len(self._firsts) and self._firsts[at] < end:
            if self._firsts[at] not in self._cache:
                self._read_ahead(at, end)
            file = self._file(self._firsts[at])
            if file.next_seq < end and at == len(self._firsts) - 1:
                file.refresh(self._files.read)
            yield from file.entries[max(0, start - file.first) : max(0, end - file.first)]
            at += 1

    def seq_at_landed(self, landed_ms: int) -> int:
        """Return the first seq landed at or after a time; landed times never decrease in a shard."""
        end = self.refresh()
        low, high = 0, len(self._firsts)
        while low < high:  # the first file that begins at or after the time
            middle = (low + high) // 2
            entries = self._file(self._firsts[middle]).entries
            if entries and entries[0].landed_ms < landed_ms:
                low = middle + 1
            else:
                high = middle
        for first in self._firsts[max(0, low - 1) : low + 1]:
            entries = self._file(first).entries
            found = bisect_left(entries, landed_ms, key=lambda entry: entry.landed_ms)
            if found < len(entries):
                return first + found
        return end


class ZoneReader:
    """Every shard of a landing zone. Raises LandingError or ManifestDamaged with the path and the next step."""

    def __init__(self, url: str) -> None:
        self.files = open_files(url)
        self.zone = self._read()
        self.shards = [ShardLog(self.files, shard) for shard in range(self.zone.shards)]

    def _read(self) -> Zone:
        try:
            return read_zone(self.files)
        except ManifestDamaged as error:
            raise LandingError(f"landing zone {self.files.root}: {error}") from error

    def check_same(self) -> None:
        """Raise LandingError where the landing zone is not there any more, or another one in its place."""
        now = self._read()
        if now != self.zone:
            was, here = self.zone.landing_id.hex()[:8], now.landing_id.hex()[:8]
            told = f"{self.files.root} was landing zone {was} and is {here} now"
            raise LandingError(f"{told}: mount the former zone and start again")

    def ends(self) -> dict[int, int]:
        """Return the next seq of each shard."""
        return {log.shard: log.refresh() for log in self.shards}

    def begins(self) -> dict[int, int]:
        """Return the oldest seq of each shard that retention has left."""
        self.ends()
        return {log.shard: log.begins() for log in self.shards}

    def entries(self, start: dict[int, int], end: dict[int, int]) -> Iterator[ManifestEntry]:
        """Yield the entries between two positions, shard by shard."""
        for log in self.shards:
            yield from log.entries(start.get(log.shard, 0), end.get(log.shard, 0))

    def at_landed(self, landed_ms: int) -> dict[int, int]:
        """Return the position of the first entries landed at or after a time."""
        return {log.shard: log.seq_at_landed(landed_ms) for log in self.shards}
