"""Compares the index files with the log, unit by unit in the order of both: no key missing, no chain broken."""

import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.files.disk import Disk
from storage_driver.index.index_file import SEARCH_UNITS, UNIT, IndexFile, IndexSize, list_index
from storage_driver.index.index_keys import key_hash
from storage_driver.index.index_slots import BLOCK_SLOTS, HEADER, UNKNOWN
from storage_driver.log.scan import is_filler
from storage_driver.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK, DispatchEntry, index_keys


class IndexCheck:
    """Takes the records of a log that begins at `first`, in order; `synced` says how far the index is on the disk.

    What came later may be missing, or be there in part after a power cut, until the next start has repaired it.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        note: Callable[[str], None],
        *,
        first: int,
        synced: CheckpointValues | None,
        size: IndexSize,
    ) -> None:
        self.units = 0
        self._first = first
        self._upto, self._last_count = (synced.index_to, synced.index_count) if synced is not None else (0, 0)
        self._disk, self._folder, self._note, self._size = disk, root / "index", note, size
        self._missing: list[str] = []  # the first, and how many
        self._nowhere: list[int] = []
        self._missing_count = self._nowhere_count = 0
        self._stream = self._all_units()
        self._next = next(self._stream, None)

    def expect(self, entry: DispatchEntry) -> None:
        """Compare one record of the log. Raises OSError."""
        if entry.log_offset >= self._upto:
            return
        self._skip(entry.log_offset)
        if is_filler(entry):
            while self._next is not None and self._next[1] < entry.log_offset + entry.size:
                self._next = next(self._stream, None)  # of a message that was lost
            return
        have = set()
        while self._next is not None and self._next[1] == entry.log_offset:
            have.add(self._next[0])
            self._next = next(self._stream, None)
        if entry.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        for text in index_keys(entry.topic, entry.properties):
            if key_hash(text) not in have:
                self._missing_count += 1
                self._missing = self._missing or [f"{text!r} of the record at {entry.log_offset}"]

    def finish(self) -> None:
        """Note what was found. Raises OSError."""
        for _ in self._stream:
            pass  # to the end, for the chains
        if self._missing_count:
            self._note(f"index: {self._missing_count} keys are missing, first {self._missing[0]}; --rebuild adds them")
        if self._nowhere_count:
            self._note(f"index: {self._nowhere_count} entries point to no record, first at {self._nowhere[0]}")

    def _skip(self, log_offset: int) -> None:
        """Pass over units below a log offset: no record was there, or it has left with the log's oldest files."""
        while self._next is not None and self._next[1] < log_offset:
            if self._next[1] >= self._first:
                self._nowhere_count += 1
                self._nowhere = self._nowhere or [self._next[1]]
            self._next = next(self._stream, None)

    def _all_units(self) -> Iterator[tuple[int, int]]:
        found = list_index(self._disk, self._folder)
        for facts in found:
            path = self._folder / facts.name
            file = IndexFile(self._disk.open(path, read_only=True), path, self._size)
            problem = file.damage or (
                f"{facts.name}: {facts.size} bytes, expected {self._size.file_bytes}"
                if facts.size != self._size.file_bytes
                else None
            )
            if problem is not None:
                self._note(f"index/{problem}")
            else:
                if facts == found[-1]:
                    file.count = 1 if file.begin_offset >= self._upto else min(file.count, self._last_count)
                yield from self._units(file)

    def _units(self, file: IndexFile) -> Iterator[tuple[int, int]]:
        """Yield hash and log offset of each unit; each must lead to the one before it in its slot."""
        slots = self._size.slots
        heads = array("i", bytes(4 * slots))
        number, broken = 1, None
        while number < file.count:
            at = HEADER.size + 4 * slots + UNIT.size * number
            raw = file.file.read(UNIT.size * min(SEARCH_UNITS, file.count - number), at)
            for value, log_offset, _, before in UNIT.iter_unpack(raw):
                slot = value % slots
                if before != heads[slot] and before != UNKNOWN and broken is None:
                    broken = f"unit {number} leads to {before}, the one before it is {heads[slot]}"
                heads[slot] = number
                number += 1
                self.units += 1
                yield value, log_offset
        broken = broken or self._wrong_slot(file, heads)
        if broken is not None:
            self._note(f"index/{file.path.name}: {broken}; --rebuild rebuilds it")

    def _wrong_slot(self, file: IndexFile, heads: "array[int]") -> str | None:
        """Return which slot leads to another unit than its newest; one after the end is searched for, not followed."""
        for start in range(0, self._size.slots, BLOCK_SLOTS):
            found, wanted = array("i"), heads[start : start + BLOCK_SLOTS]
            found.frombytes(file.file.read(4 * len(wanted), HEADER.size + 4 * start))
            if sys.byteorder == "little":
                found.byteswap()
            if found != wanted:
                pairs = enumerate(zip(found, wanted, strict=True), start)
                wrong = ((slot, have, want) for slot, (have, want) in pairs if have != want and 0 <= have < file.count)
                for slot, have, want in wrong:
                    return f"slot {slot} leads to unit {have}, its newest is {want}"
        return None
