"""Entries of a manifest as columns: what planning asks of many entries, as numbers, not as objects.

A word (box, kind, pack, names of topics) is kept once; each entry has its number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cbor2
import numpy as np
import numpy.typing as npt

from uplink_spark.errors import ManifestDamaged
from uplink_spark.wire.cbor import HOSTILE, NO_TAGS

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NUMBERS = {  # column → its key in an encoded entry
    "epoch": "e",
    "offset": "o",
    "stored_bytes": "z",
    "start": "f",
    "end": "t",
    "records": "n",
    "raw_bytes": "w",
    "stored_ms_min": "a",
    "stored_ms_max": "x",
    "landed_ms": "l",
    "clock_ok": "q",
}
WORDS = {"kind": "k", "box": "b", "pack": "p", "topics": "y", "skip": "j"}
LISTS = ("topics", "skip")
MAX_DEPTH = 5  # of encoded columns: a name in a list of topics


class Words(NamedTuple):
    """One of `values` for each entry, by its number."""

    codes: npt.NDArray[np.int32]
    values: list[Any]

    def where(self, accepts: Callable[[Any], bool]) -> Flags:
        """Ask once per different value, answer per entry."""
        table = np.fromiter(map(accepts, self.values), np.bool_, len(self.values))
        answer: Flags = table[self.codes] if len(table) else np.zeros(0, np.bool_)
        return answer

    def at(self, which: Any) -> Words:
        """Return those of some entries, with the values they use alone."""
        used, codes = np.unique(self.codes[which], return_inverse=True)
        return Words(codes.astype(np.int32), [self.values[code] for code in used.tolist()])

    def __getitem__(self, index: Any) -> Any:
        return self.values[self.codes[index]]


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Entries of one shard in order; `seq` rises, by one where nothing was left out."""

    seq: Ints
    numbers: Mapping[str, Ints]
    words: Mapping[str, Words]

    def __len__(self) -> int:
        return len(self.seq)

    def part(self, start: int, end: int) -> EntryTable:
        """Return the entries with start <= seq < end, without a copy."""
        low, high = np.searchsorted(self.seq, (start, end))
        if low == 0 and high == len(self.seq):
            return self
        cut = slice(int(low), int(high))
        words = {name: Words(word.codes[cut], word.values) for name, word in self.words.items()}
        return EntryTable(self.seq[cut], {name: column[cut] for name, column in self.numbers.items()}, words)

    def name_of(self, row: int) -> str:
        """What a seq stands for, wherever and whenever it landed."""
        number, word = self.numbers, self.words
        place = f"{number['start'][row]}..{number['end'][row]}"
        return f"seq {self.seq[row]}: {word['box'][row]} {number['epoch'][row]:x} {word['kind'][row]} {place}"


def table_of(first: int, encoded: Sequence[bytes | memoryview]) -> EntryTable:
    """Return encoded entries, the first of which has seq `first`, as columns. Raises ManifestDamaged."""
    try:
        maps = [cbor2.loads(data) for data in encoded]
        seq = np.arange(first, first + len(maps))
        found = np.fromiter((one["s"] for one in maps), np.int64, len(maps))
        if (seq != found).any():
            raise ManifestDamaged(f"seq {found[np.argmax(seq != found)]} where {seq[np.argmax(seq != found)]} belongs")
        numbers = {name: np.fromiter((one[key] for one in maps), np.int64, len(maps)) for name, key in NUMBERS.items()}
        words = {name: _words(one.get(key) for one in maps) for name, key in WORDS.items()}
    except (cbor2.CBORDecodeError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ManifestDamaged(f"an entry with a right CRC does not decode: {error}") from error
    return EntryTable(seq, numbers, words)


def _words(values: Iterable[Any]) -> Words:
    """Number different values; of a map or list of topics the names count."""
    known: dict[Hashable, int] = {}
    codes = []
    for value in values:
        key = tuple(value) if isinstance(value, (dict, list)) else value
        codes.append(known.setdefault(key, len(known)))
    return Words(np.array(codes, np.int32), list(known))


def encode_table(table: EntryTable) -> bytes:
    """Return a table whose seqs have no hole as bytes."""
    first = int(table.seq[0]) if len(table) else 0
    numbers = {name: column.astype("<i8").tobytes() for name, column in table.numbers.items()}
    words = {name: [word.codes.astype("<i4").tobytes(), word.values] for name, word in table.words.items()}
    return cbor2.dumps({"v": 1, "first": first, "count": len(table), "numbers": numbers, "words": words})


def decode_table(data: bytes) -> EntryTable:
    """Return the table of encode_table. Raises ManifestDamaged."""
    try:
        m = cbor2.loads(
            data,
            allow_indefinite=False,
            max_depth=MAX_DEPTH,
            semantic_decoders=NO_TAGS,  # type: ignore[arg-type]
        )
        first, count = int(m["first"]), int(m["count"])
        numbers = {name: np.frombuffer(m["numbers"][name], "<i8") for name in NUMBERS}
        words = {name: _decoded_words(name, *m["words"][name]) for name in WORDS}
        columns: list[npt.NDArray[Any]] = [*numbers.values(), *(word.codes for word in words.values())]
        if any(len(column) != count for column in columns):
            raise ManifestDamaged(f"columns of different length, expected {count} entries")
        return EntryTable(np.arange(first, first + count), numbers, words)
    except HOSTILE as error:
        raise ManifestDamaged(f"columns do not decode: {type(error).__name__}: {error}"[:200]) from error


def _decoded_words(name: str, codes: bytes, values: list[Any]) -> Words:
    """Return one column of words. Raises ValueError for other values than entries have."""
    numbers = np.frombuffer(codes, "<i4")
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(values):
        raise ValueError(f"a number of {name} that no value has")
    if name not in LISTS:
        if not all(type(value) is str for value in values):
            raise ValueError(f"{name} of another type than text")
        return Words(numbers, values)
    if not all(value is None or (type(value) is list and all(type(one) is str for one in value)) for value in values):
        raise ValueError(f"{name} of another type than a list of texts")
    return Words(numbers, [None if value is None else tuple(value) for value in values])


def joined(tables: Sequence[EntryTable]) -> EntryTable:
    """Return tables with the same columns, at least one, as one."""
    if len(tables) == 1:
        return tables[0]
    numbers = {name: np.concatenate([table.numbers[name] for table in tables]) for name in tables[0].numbers}
    words = {name: _merged([table.words[name] for table in tables]) for name in tables[0].words}
    return EntryTable(np.concatenate([table.seq for table in tables]), numbers, words)


def _merged(parts: Sequence[Words]) -> Words:
    known: dict[Hashable, int] = {}
    codes = []
    for part in parts:
        numbers = [known.setdefault(value, len(known)) for value in part.values]
        codes.append(np.array(numbers, np.int32)[part.codes])
    return Words(np.concatenate(codes), list(known))
