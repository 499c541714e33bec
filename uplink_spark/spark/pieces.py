"""The pieces a task reads, as columns: a hundred thousand of them are planned, pickled and kept as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uplink_spark.spark.packs import PieceRef
from uplink_spark.spark.rows import Origin
from uplink_spark.zone.entry_table import EntryTable, Words, joined

NUMBERS = ("epoch", "offset", "stored_bytes", "start", "end", "raw_bytes", "landed_ms", "clock_ok")
WORDS = ("box", "pack", "skip")


def narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column in as few bytes as its values need."""
    if not len(column) or column.min() < 0:
        return column
    return column.astype(np.min_scalar_type(column.max()))


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one shard, in order."""

    shard: int
    table: EntryTable

    def __len__(self) -> int:
        return len(self.table)

    def cut(self, low: int, high: int) -> Pieces:
        """Return those at positions low..high."""
        part = slice(low, high)
        numbers = {name: column[part] for name, column in self.table.numbers.items()}
        words = {name: Words(word.codes[part], word.values) for name, word in self.table.words.items()}
        return Pieces(self.shard, EntryTable(self.table.seq[part], numbers, words))

    def packed(self) -> Pieces:
        """Return the same in as little memory as it needs: each column narrow, each word once."""
        numbers = {name: narrow(column) for name, column in self.table.numbers.items()}
        words = {}
        for name, word in self.table.words.items():
            used = word.at(slice(None))
            words[name] = Words(narrow(used.codes), used.values)
        return Pieces(self.shard, EntryTable(narrow(self.table.seq), numbers, words))

    def refs(self) -> Iterator[PieceRef]:
        """Yield what a task reads, piece by piece."""
        table = self.table
        numbers = [table.numbers[name].tolist() for name in NUMBERS]
        words = [[table.words[name].values[code] for code in table.words[name].codes.tolist()] for name in WORDS]
        for seq, epoch, offset, stored, start, end, raw, landed, clock, box, pack, skip in zip(
            table.seq.tolist(), *numbers, *words, strict=True
        ):
            origin = Origin(box, epoch, self.shard, seq, start, end, landed, bool(clock), tuple(skip or ()))
            yield PieceRef(origin, pack, offset, stored, raw)


def pieces_of(shard: int, table: EntryTable, which: Any) -> Pieces:
    """Return those of a table's entries whose positions are in `which`."""
    numbers = {name: table.numbers[name][which] for name in NUMBERS}
    return Pieces(shard, EntryTable(table.seq[which], numbers, {name: table.words[name].at(which) for name in WORDS}))


class TaskCutter:
    """Cuts pieces, in order, into tasks of about partition_bytes raw bytes; at least one piece each."""

    def __init__(self, partition_bytes: int) -> None:
        self._most, self._open, self._size = partition_bytes, list[Pieces](), 0
        self._tasks: list[tuple[Pieces, ...]] = []

    def add(self, pieces: Pieces) -> None:
        sums = np.cumsum(pieces.table.numbers["raw_bytes"])
        at, before = 0, 0
        while at < len(pieces):
            end = int(np.searchsorted(sums, before + self._most - self._size, "right"))
            if end <= at and self._size:  # the open task takes none of them
                self._close()
                continue
            end = max(end, at + 1)
            self._open.append(pieces.cut(at, end))
            self._size += int(sums[end - 1]) - before
            at, before = end, int(sums[end - 1])
            if at < len(pieces):
                self._close()

    def _close(self) -> None:
        if self._open:
            shards = dict.fromkeys(part.shard for part in self._open)
            self._tasks.append(tuple(_one(shard, self._open).packed() for shard in shards))
        self._open, self._size = [], 0

    def tasks(self) -> list[tuple[Pieces, ...]]:
        """Return all tasks; nothing is added afterwards."""
        self._close()
        return self._tasks


def _one(shard: int, parts: Sequence[Pieces]) -> Pieces:
    return Pieces(shard, joined([part.table for part in parts if part.shard == shard]))
