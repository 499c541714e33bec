"""Rolled-up entries: some thousand of a shard in one file, as columns for planning and as they were for the rest.

    manifest/<shard>/rolled/<first seq>-<end seq>.cols
    "RBC1", u32 CRC-32 of what follows the head, u32 length of the columns, then columns and items, each zstd

It is derived from the manifest and may be missing: readers then take the manifest itself. The writer of a shard makes
it of entries that are marked.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import zstandard

from uplink_spark.errors import ManifestDamaged
from uplink_spark.zone.entry_table import EntryTable, decode_table, encode_table, table_of
from uplink_spark.zone.manifest import ManifestEntry, encode_items, walk_items

log = logging.getLogger("uplink_spark.gateway")
MAGIC = b"RBC1"
HEAD = struct.Struct(">4sII")
ROLLED_ENTRIES = 4096
ROLLED_COMMITS = 512  # small commits
REWRITTEN_COMMITS = 32  # of a bucket: each commit is an object there, and a reader asks for each behind the last file
ROLLED_BYTES = 2 << 20  # of items
NOTED_AT_ONCE = 64  # entries; a start notes all of a manifest file
MAX_COLUMNS_BYTES, MAX_ITEMS_BYTES = 4 << 20, 32 << 20


class Rolled(NamedTuple):
    """What a file holds: the columns, and squeezed the items as in the manifest."""

    table: EntryTable
    squeezed: bytes


def rolled_folder(shard: int) -> str:
    return f"manifest/{shard:04x}/rolled"


def rolled_path(shard: int, first: int, end: int) -> str:
    return f"{rolled_folder(shard)}/{first:020d}-{end:020d}.cols"


def range_of(name: str) -> tuple[int, int] | None:
    """Return first and end seq in the name of a file, None for any other name."""
    stem, _, ending = name.rpartition("/")[2].partition(".")
    first, _, end = stem.partition("-")
    whole = ending == "cols" and len(first) == len(end) == 20 and first.isdigit() and end.isdigit()
    return (int(first), int(end)) if whole else None


def chain_of(names: Iterable[str]) -> list[tuple[int, int]]:
    """Return the ranges of files that do not overlap, ascending; of two that begin alike the longer one."""
    found = [found for found in map(range_of, names) if found is not None]
    chain: list[tuple[int, int]] = []
    for first, end in sorted(found, key=lambda pair: (pair[0], -pair[1])):
        if end > first and (not chain or first >= chain[-1][1]):
            chain.append((first, end))
    return chain


def encode_rolled(first: int, items: bytes) -> bytes:
    """Return the file of items that begin with seq `first`. Raises ManifestDamaged."""
    borders = walk_items(items, first).borders
    table = table_of(first, [items[start:end] for start, end in borders])
    squeeze = zstandard.ZstdCompressor(level=3).compress
    columns = squeeze(encode_table(table))
    body = columns + squeeze(items)
    return HEAD.pack(MAGIC, zlib.crc32(body), len(columns)) + body


def decode_rolled(data: bytes, first: int, end: int) -> Rolled:
    """Return what the file of first..end holds. Raises ManifestDamaged."""
    if len(data) < HEAD.size:
        raise ManifestDamaged(f"{len(data)} bytes of rolled-up entries")
    magic, crc, length = HEAD.unpack_from(data)
    if magic != MAGIC or zlib.crc32(memoryview(data)[HEAD.size :]) != crc:
        raise ManifestDamaged("rolled-up entries with a wrong CRC-32")
    columns, items = data[HEAD.size : HEAD.size + length], data[HEAD.size + length :]
    try:
        for part, most in ((columns, MAX_COLUMNS_BYTES), (items, MAX_ITEMS_BYTES)):
            if not 0 <= zstandard.frame_content_size(part) <= most:
                raise ManifestDamaged(f"rolled-up entries of more than {most} bytes, or of an unknown size")
        plain = zstandard.ZstdDecompressor().decompress(columns)
    except zstandard.ZstdError as error:
        raise ManifestDamaged(f"rolled-up entries do not inflate: {error}") from error
    table = decode_table(plain)
    if len(table) != end - first or (len(table) and int(table.seq[0]) != first):
        raise ManifestDamaged(f"rolled-up entries of another range than {first}..{end}")
    return Rolled(table, items)


class Store(Protocol):
    """Where the files are kept. All calls raise OSError."""

    def names(self, folder: str) -> list[str]: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...


class RollUp:
    """Collects the newest entries of a shard and writes a file when there are enough.

    With rewritten_commits the file of the newest entries is written before it is full, and after so many commits again
    with more entries. The one it replaces stays until the next is written: a reader may have just listed it.
    """

    def __init__(self, shard: int, store: Store, *, rewritten_commits: int | None = None) -> None:
        self._shard, self._store, self._rewritten = shard, store, rewritten_commits
        self._first = self._end = self._bytes = 0
        self._items: list[bytes] = []
        self._written = (0, 0)  # end of the newest file that begins at _first, commits in it
        self._replaced: list[tuple[int, int]] = []

    def begin(self, oldest: int, next_seq: int) -> None:
        """Go on behind the files there are, at `oldest` at least; what is rolled up beyond next_seq is not true.

        A newest file that is not full is written anew, where the caller still has its entries: from `oldest` on.
        """
        there: list[str] = []
        for name in self._store.names(rolled_folder(self._shard)):
            pair = range_of(name)
            if pair is not None and pair[1] > next_seq:
                self._store.delete(rolled_path(self._shard, *pair))
            else:
                there.append(name)
        at, chain, newest = oldest, chain_of(there), None
        for first, end in chain:
            if first <= at:
                at, newest = max(at, end), (first, end)
        self._restart(at)
        if self._rewritten is not None:
            self._replaced = [pair for pair in map(range_of, there) if pair is not None and pair not in chain]
            if newest is not None and newest[0] >= oldest and newest[1] - newest[0] < ROLLED_ENTRIES:
                self._restart(newest[0])
                self._written = (newest[1], 0)
        self._end = self._first

    def add(self, entries: Sequence[ManifestEntry]) -> None:
        """Take entries; what was taken already is left out, and behind a hole another file begins."""
        new = [entry for entry in entries if entry.seq >= self._end]
        if new:
            if new[0].seq != self._end:
                self._restart(new[0].seq)
            self._items.append(encode_items(new))
            self._bytes += len(self._items[-1])
            self._end = new[-1].seq + 1

    def _restart(self, first: int) -> None:
        self._items, self._bytes, self._first, self._written = [], 0, first, (0, 0)

    @property
    def _full(self) -> bool:
        many = self._rewritten is None and len(self._items) >= ROLLED_COMMITS
        return many or self._end - self._first >= ROLLED_ENTRIES or self._bytes >= ROLLED_BYTES

    @property
    def due(self) -> bool:
        return self._full or (
            self._rewritten is not None
            and len(self._items) - self._written[1] >= self._rewritten
            and self._end > self._written[0]
        )

    def write(self) -> None:
        """Write the file that is due. Raises OSError; it is due again then."""
        path = rolled_path(self._shard, self._first, self._end)
        self._store.replace(path, encode_rolled(self._first, b"".join(self._items)))
        before, old = self._replaced, (self._first, self._written[0])
        self._replaced = [old] if old[1] and old[1] != self._end else []
        self._written = (self._end, len(self._items))
        if self._full:
            self._restart(self._end)
        for first, end in before:
            self._store.delete(rolled_path(self._shard, first, end))

    def note(self, entries: Sequence[ManifestEntry]) -> None:
        """Take entries that are durable, and write what is due: later, where it cannot be written now."""
        for at in range(0, len(entries), NOTED_AT_ONCE):
            self.add(entries[at : at + NOTED_AT_ONCE])
            if not self.due:
                continue
            try:
                self.write()
            except OSError as error:
                log.warning("rolled-up entries not written shard=%04x error=%s; tried again", self._shard, error)
