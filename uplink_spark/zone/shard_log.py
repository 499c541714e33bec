"""The entries of one shard by seq, as a reader follows them.

The folders are listed once, at the first look; from then on each manifest file names the next one. Where entries are
rolled up, the files of the manifest itself are not read; in a bucket they are not even listed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

from uplink_spark.errors import LandingError, ManifestDamaged
from uplink_spark.zone.entry_table import EntryTable
from uplink_spark.zone.manifest import ManifestEntry, first_seq_of, kept_of, kept_path, manifest_folder, manifest_path
from uplink_spark.zone.rollup import chain_of, range_of, rolled_folder
from uplink_spark.zone.segments import ManifestFile, RolledFile, Segment

FILE_ENTRIES = 65_536  # of a full manifest file on a disk; an object of a bucket has those of one commit
CACHED_ENTRIES = 3 * FILE_ENTRIES  # of a shard, newest file included


class Files(Protocol):
    """What is asked of the files of a landing zone."""

    root: str
    read_ahead: int  # files to read at a time; 1: reading one costs no request
    final: bool  # whether a file that is there never grows

    def read(self, path: str, at: int) -> bytes | None: ...
    def names(self, folder: str) -> list[str]: ...


class ShardLog:
    """The entries of one shard by seq; keeps the newest files in memory and reads older ones again when asked."""

    def __init__(self, files: Files, shard: int) -> None:
        self.shard, self._files = shard, files
        self._plan = SegmentPlan([], [])
        self._lost: set[tuple[int, int]] = set()  # ranges of rolled-up entries that are gone or damaged
        self._cache: dict[tuple[int, int], Segment] = {}

    def refresh(self) -> int:
        """Return the next seq: every entry below it is durable and can be read."""
        if not self._plan.starts and not self._list():
            return 0
        while True:
            newest = self._segment(self._plan.starts[-1], fresh=True)
            if newest.key != self._plan.source_of(self._plan.starts[-1]):
                continue  # it was listed anew
            following = newest.next_seq
            data = None if following == newest.first else self._files.read(manifest_path(self.shard, following), 0)
            if data is None:
                return following
            if not self._files.final:
                newest.refresh(self._files.read)  # the old file is finished before the next one is made
            if newest.next_seq == following:
                self._begin(following, data)

    def _begin(self, first: int, data: bytes) -> None:
        """Go on with the manifest file that begins there."""
        file = ManifestFile(self.shard, first)
        file.take(data)
        self._plan.add(first)
        self._cache[first, 0] = file
        self._evict()

    def _list(self) -> bool:
        """Find what there is; False while there is nothing."""
        names = self._files.names(rolled_folder(self.shard))
        chain = chain_of(name for name in names if range_of(name) not in self._lost)
        files: list[int] = []
        if not (chain and self._files.final and self._whole(chain)):
            found = map(first_seq_of, self._files.names(manifest_folder(self.shard)))
            files = sorted(first for first in found if first is not None)
        self._plan = SegmentPlan(chain, files)
        self._cache = {}  # a manifest file is kept from where the plan before needed it
        return bool(self._plan.starts)

    def _whole(self, chain: list[tuple[int, int]]) -> bool:
        """Whether rolled-up entries have no hole and hold all that retention has left: no other list is needed.

        What is lost they hold too: a bucket's newest file is replaced now and then by one with more entries.
        """
        linked = all(one[1] == other[0] for one, other in pairwise(chain))
        again = all(end <= chain[-1][1] for _, end in self._lost)
        return linked and again and chain[0][0] <= self._kept()

    def _segment(self, seq: int, *, fresh: bool = False) -> Segment:
        """Return the segment that a seq is in, or the last one. Raises LandingError, ManifestDamaged."""
        while True:
            key = self._plan.source_of(seq)
            file = self._cache.pop(key, None)
            known = file is not None
            file = file or self._new(key)
            again = fresh and isinstance(file, ManifestFile) and not (self._files.final and len(file))
            if not (again or not known) or file.refresh(self._files.read):
                self._cache[key] = file
                if not known:
                    self._evict()
                return file
            if isinstance(file, ManifestFile) or key in self._lost:
                break
            self._lost.add(key)
            if not self._list():
                break
        raise LandingError(
            f"{manifest_path(self.shard, key[0])} of {self._files.root} is gone: the centre's retention removed it "
            "while this reader still needed it; start again from `earliest` or a later position"
        )

    def _new(self, key: tuple[int, int]) -> Segment:
        first, end = key
        return RolledFile(self.shard, first, end) if end else ManifestFile(self.shard, first, self._plan.begin_of(key))

    def _evict(self) -> None:
        """Forget the files used longest ago beyond CACHED_ENTRIES, but the newest used."""
        kept = sum(len(file) for file in self._cache.values())
        while kept > CACHED_ENTRIES and len(self._cache) > 1:
            kept -= len(self._cache.pop(next(iter(self._cache))))

    def _read_ahead(self, seq: int, end: int) -> None:
        """Read files from the one with seq on together, where each costs a request and they are small."""
        wanted = self._plan.sources(seq, min(end, seq + FILE_ENTRIES), self._files.read_ahead)
        missing = [self._new(key) for key in wanted if key not in self._cache]
        if len(missing) < 2:
            return
        with ThreadPoolExecutor(len(missing)) as pool:
            there = list(pool.map(lambda file: file.refresh(self._files.read), missing))
        self._cache |= {file.key: file for file, found in zip(missing, there, strict=True) if found}

    @property
    def oldest(self) -> int:
        """The first seq that is still in the manifest (after a refresh); its pack may have left already."""
        return self._plan.starts[0] if self._plan.starts else 0

    def _kept(self) -> int:
        try:
            return kept_of(self._files.read(kept_path(self.shard), 0))
        except ManifestDamaged as error:
            raise LandingError(f"{kept_path(self.shard)} of {self._files.root}: {error}") from error

    def begins(self) -> int:
        """Return the first seq that readers may ask for: retention has removed what is below it.

        Raises LandingError.
        """
        return max(self.oldest, self._kept())

    def _segments(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield what holds seqs of start..end, with the seqs to take of each. Raises LandingError, ManifestDamaged."""
        seq = max(start, self.oldest)
        while self._plan.starts and seq < end:
            if self._plan.source_of(seq) not in self._cache:
                self._read_ahead(seq, end)
            file = self._segment(seq)
            stop = self._plan.stop_of(seq)
            if stop is None and file.next_seq < end:
                file.refresh(self._files.read)
            high = end if stop is None else min(end, stop)
            yield file, seq, high
            seq = high

    def entries(self, start: int, end: int) -> Iterator[ManifestEntry]:
        """Yield the entries with start <= seq < end that are there, ascending. Raises LandingError, ManifestDamaged."""
        for file, low, high in self._segments(start, end):
            yield from file.entries(low, high)

    def tables(self, start: int, end: int) -> Iterator[EntryTable]:
        """Yield the same entries as columns, a file at a time. Raises LandingError, ManifestDamaged."""
        for file, low, high in self._segments(start, end):
            table = file.table(low, high)
            if table is not None and len(table):
                yield table

    def name_of(self, seq: int) -> str | None:
        """Return what a seq stands for, None where it is not there."""
        table = next(self.tables(seq, seq + 1), None)
        return None if table is None else table.name_of(0)

    def seq_at_landed(self, landed_ms: int) -> int:
        """Return the first seq landed at or after a time; landed times never decrease in a shard."""
        end = self.refresh()
        low, high = 0, len(self._plan.starts)
        while low < high:  # the first segment that begins at or after the time
            middle = (low + high) // 2
            begins = self._landed(self._plan.starts[middle])
            if begins is not None and begins < landed_ms:
                low = middle + 1
            else:
                high = middle
        for first in self._plan.starts[max(0, low - 1) : low + 1]:
            found = self._segment(first).seq_at_landed(landed_ms)
            if found is not None:
                return found
        return end

    def _landed(self, seq: int) -> int | None:
        table = self._segment(seq).table(seq, seq + 1)
        return int(table.numbers["landed_ms"][0]) if table is not None and len(table) else None


class SegmentPlan:
    """Where each segment of a shard begins, and which file it is in.

    A file is (first seq, 0) of the manifest, (first seq, end) of rolled-up entries.
    """

    def __init__(self, chain: Sequence[tuple[int, int]], files: Sequence[int]) -> None:
        self.starts: list[int] = []
        self._keys: list[tuple[int, int]] = []
        lows, at = [low for low, _ in chain], min([*files[:1], *(low for low, _ in chain[:1])], default=-1)
        while at >= 0:
            rolled = bisect_right(lows, at) - 1
            if rolled >= 0 and at < chain[rolled][1]:
                self._add(at, chain[rolled])
                at = chain[rolled][1]
                if rolled + 1 == len(chain) and not files:
                    return
                continue
            file = bisect_right(files, at) - 1
            if file >= 0:
                self._add(at, (files[file], 0))
            at = min([*lows[rolled + 1 : rolled + 2], *files[file + 1 : file + 2]], default=-1)

    def _add(self, start: int, key: tuple[int, int]) -> None:
        self.starts.append(start)
        self._keys.append(key)

    def add(self, first: int) -> None:
        """Add the manifest file that follows."""
        self._add(first, (first, 0))

    def source_of(self, seq: int) -> tuple[int, int]:
        """Return the file that a seq is in: the last that begins at or below it, or the first one."""
        return self._keys[max(0, bisect_right(self.starts, seq) - 1)]

    def begin_of(self, key: tuple[int, int]) -> int:
        """Return the first seq that is asked of a file."""
        at = bisect_left(self.starts, key[0])
        while at < len(self.starts) and self._keys[at] != key:
            at += 1
        return self.starts[at] if at < len(self.starts) else key[0]

    def stop_of(self, seq: int) -> int | None:
        """Return where the segment with a seq ends, None of the last one."""
        after = bisect_right(self.starts, seq)
        return self.starts[after] if after < len(self.starts) else None

    def sources(self, seq: int, end: int, most: int) -> list[tuple[int, int]]:
        """Return the files of seq..end, at most so many."""
        at = max(0, bisect_right(self.starts, seq) - 1)
        pairs = zip(self.starts[at : at + most], self._keys[at : at + most], strict=True)
        return [key for start, key in pairs if start < end]
