"""Whether the rolled-up entries of a shard, which Spark plans from, are those of its manifest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import zstandard

from uplink_spark.centre.zone_files.keeping import Listing
from uplink_spark.errors import ManifestDamaged
from uplink_spark.zone.entry_table import encode_table, table_of
from uplink_spark.zone.manifest import ManifestEntry, decode_entry, walk_items
from uplink_spark.zone.rollup import MAX_ITEMS_BYTES, chain_of, decode_rolled, rolled_folder, rolled_path

ADVICE = "remove the file: readers then take the manifest"


class RolledCheck:
    """Is given the entries of a manifest in order; holds one file of rolled-up entries at a time."""

    def __init__(self, files: Listing, shard: int, tell: Callable[[str], None]) -> None:
        self._files, self._shard, self._tell = files, shard, tell
        self._waiting = deque(chain_of(files.names(rolled_folder(shard))))
        self._entries: dict[int, ManifestEntry] = {}
        self._path, self._end = "", 0

    def compare(self, entry: ManifestEntry) -> None:
        """Tell if the entry is rolled up as another one."""
        while entry.seq >= self._end and self._waiting and entry.seq >= self._waiting[0][0]:
            self._load(*self._waiting.popleft())
        if self._entries.pop(entry.seq, entry) != entry:
            self._tell(f"{self._path}: seq {entry.seq} is not the entry of the manifest; {ADVICE}")

    def _load(self, first: int, end: int) -> None:
        self._path, self._end = rolled_path(self._shard, first, end), end
        data = self._files.read(self._path, 0)
        try:
            self._entries = {} if data is None else self._read(data, first, end)  # gone: replaced, or by retention
        except ManifestDamaged as error:
            self._entries = {}
            self._tell(f"{self._path}: {error}; {ADVICE}")

    def _read(self, data: bytes, first: int, end: int) -> dict[int, ManifestEntry]:
        found = decode_rolled(data, first, end)
        try:
            items = zstandard.ZstdDecompressor().decompress(found.squeezed, MAX_ITEMS_BYTES)
        except zstandard.ZstdError as error:
            raise ManifestDamaged(f"rolled-up entries do not inflate: {error}") from error
        rows = [items[start:stop] for start, stop in walk_items(items, first).borders]
        if encode_table(table_of(first, rows)) != encode_table(found.table):
            raise ManifestDamaged("the columns are of other entries")
        entries = map(decode_entry, rows)
        return {entry.seq: entry for entry in entries}

    def finish(self, end: int) -> None:
        """Tell of entries that are rolled up although the manifest ends before them, at `end`."""
        beyond = [self._path] if any(seq >= end for seq in self._entries) else []
        beyond += [rolled_path(self._shard, *found) for found in self._waiting if found[1] > end]
        for path in beyond:
            self._tell(f"{path}: has entries that the manifest, which ends at seq {end}, has not; {ADVICE}")
