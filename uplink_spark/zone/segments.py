"""Stretches of a shard's manifest as a reader keeps them: a file that may grow, or rolled-up entries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import zstandard

from uplink_spark.errors import ManifestDamaged
from uplink_spark.zone.entry_table import EntryTable, joined, table_of
from uplink_spark.zone.manifest import ITEM_HEAD, ManifestEntry, decode_entry, manifest_path, read_head, walk_items
from uplink_spark.zone.rollup import decode_rolled, rolled_path

Read = Callable[[str, int], bytes | None]


class _Part:
    """Entries that were read together: their columns, and squeezed their bytes for who needs all of an entry."""

    def __init__(self, first: int, squeezed: bytes, table: EntryTable) -> None:
        self.first, self._squeezed, self.table = first, squeezed, table

    @property
    def next_seq(self) -> int:
        return self.first + len(self.table)

    def entries(self, start: int, end: int) -> Iterator[ManifestEntry]:
        try:
            items = zstandard.ZstdDecompressor().decompress(self._squeezed)
        except zstandard.ZstdError as error:
            raise ManifestDamaged(f"entries from seq {self.first} on do not inflate: {error}") from error
        borders = walk_items(items, self.first).borders
        if len(borders) != len(self.table):
            raise ManifestDamaged(f"{len(borders)} entries from seq {self.first} on, expected {len(self.table)}")
        for at, stop in borders[max(0, start - self.first) : max(0, end - self.first)]:
            yield decode_entry(items[at:stop])


class _Segment:
    """Entries of one file, in the parts in which they were read."""

    def __init__(self, shard: int, first: int) -> None:
        self.shard, self.first = shard, first
        self._parts: list[_Part] = []

    @property
    def next_seq(self) -> int:
        return self._parts[-1].next_seq if self._parts else self.first

    def __len__(self) -> int:
        return sum(len(part.table) for part in self._parts)

    @property
    def key(self) -> tuple[int, int]:
        """What it is kept under: (first seq, 0), or (first seq, end) of rolled-up entries."""
        return self.first, 0

    def entries(self, start: int, end: int) -> Iterator[ManifestEntry]:
        """Yield the entries with start <= seq < end."""
        for part in self._parts:
            if part.first < end and start < part.next_seq:
                yield from part.entries(start, end)

    def table(self, start: int, end: int) -> EntryTable | None:
        """Return the columns of start <= seq < end, None where nothing of it is here."""
        found = [part.table.part(start, end) for part in self._parts if part.first < end and start < part.next_seq]
        return joined(found) if found else None

    def seq_at_landed(self, landed_ms: int) -> int | None:
        """Return the first seq landed at or after a time, None where all landed before."""
        for part in self._parts:
            found = bisect_left(part.table.numbers["landed_ms"], landed_ms)
            if found < len(part.table):
                return part.first + int(found)
        return None


class ManifestFile(_Segment):
    """One manifest file and what has been read of it; what is below `begin` is rolled up and not looked at."""

    def __init__(self, shard: int, first: int, begin: int | None = None) -> None:
        super().__init__(shard, first)
        self._begin = first if begin is None else begin
        self._at, self._next_seq = 0, first

    @property
    def next_seq(self) -> int:
        return self._next_seq

    def refresh(self, read: Read) -> bool:
        """Take what has been marked since; False where the file is gone. Raises ManifestDamaged."""
        data = read(manifest_path(self.shard, self.first), self._at)
        if data is None:
            return False
        self.take(data)
        return True

    def take(self, data: bytes) -> None:
        """Take bytes that follow what was read before. Raises ManifestDamaged."""
        head = 0 if self._at else read_head(data, self.shard, self.first)
        if not self._at and not head:
            return
        items = data[head:]
        found = walk_items(items, self._next_seq)
        self._at += head + found.marked
        first = max(self._begin, self._next_seq)
        borders = found.borders[first - self._next_seq : found.counted]
        self._next_seq += found.counted
        if borders:
            table = table_of(first, [items[at:stop] for at, stop in borders])
            own = items[borders[0][0] - ITEM_HEAD.size : found.marked]
            self._parts.append(_Part(first, zstandard.ZstdCompressor(level=1).compress(own), table))


class RolledFile(_Segment):
    """Rolled-up entries; it never changes."""

    def __init__(self, shard: int, first: int, end: int) -> None:
        super().__init__(shard, first)
        self._end = end

    @property
    def key(self) -> tuple[int, int]:
        return self.first, self._end

    def refresh(self, read: Read) -> bool:
        """Read it; False where it is gone or damaged: the manifest has the same entries."""
        if self._parts:
            return True
        data = read(rolled_path(self.shard, self.first, self._end), 0)
        if data is None:
            return False
        try:
            found = decode_rolled(data, self.first, self._end)
        except ManifestDamaged:
            return False
        self._parts.append(_Part(self.first, found.squeezed, found.table))
        return True


Segment = ManifestFile | RolledFile
