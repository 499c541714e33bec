"""The hash slots of one index file: which unit is the newest of each; read and written in place, block by block."""

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from storage_driver.files.disk import DiskFile
from storage_driver.files.unreadable import BLOCK, unreadable_in

HEADER: Final = Struct(">qqqqii")  # slots follow it
_SLOT: Final = Struct(">i")
# In a unit: older ones of its slot cannot be reached through it. Apache takes it for the end of the chain.
UNKNOWN: Final = -1
BLOCK_BITS: Final = 14
BLOCK_SLOTS: Final = 1 << BLOCK_BITS  # that are read and written together, unless there are few keys
SWAPPED: Final = sys.byteorder == "little"  # the files are big-endian


def slot_in(file: DiskFile, slot: int) -> int:
    """Return the newest unit of a slot, 0 for none, UNKNOWN where the disk does not give it back. Raises OSError."""
    at = HEADER.size + 4 * slot
    raw = file.read(4, at)
    found = int(_SLOT.unpack(raw)[0]) if len(raw) == 4 else 0
    return UNKNOWN if not found and unreadable_in(file, at, at + 4) else found


class HashSlots:
    """The slots of one file during a round, in which values become units; each is read and written by itself."""

    def __init__(self, file: DiskFile, total: int) -> None:
        self._file, self._total = file, total
        self._first = 0
        self._values: Sequence[int] = ()
        self._known: dict[int, int] = {}

    def begin(self, values: Sequence[int], first: int) -> None:
        """Begin a round, in which these values become the units from `first` on."""
        self._values, self._first = values, first

    def put(self, begin: int, end: int) -> list[int]:
        """Make units of values[begin:end], each the newest of its slot; return which was so before, 0 for none.

        UNKNOWN where a power cut took it. Raises OSError.
        """
        befores: list[int] = []
        for number, value in enumerate(self._values[begin:end], self._first + begin):
            slot = value % self._total
            found = self._known.get(slot)
            if found is None:
                found = slot_in(self._file, slot)
            befores.append(self._before(found, number, slot))
            self._known[slot] = number
        return befores

    def _before(self, found: int, number: int, slot: int) -> int:
        """Return what a unit may say was before it: an older unit, or one that this round put into the slot."""
        if 0 <= found < self._first:
            return found
        mine = self._first <= found < number and self._values[found - self._first] % self._total == slot
        return found if mine else UNKNOWN

    def write(self) -> None:
        """Write what changed. Raises OSError."""
        for slot, number in self._known.items():
            self._forget_unreadable(HEADER.size + 4 * slot)
            self._file.write([_SLOT.pack(number)], HEADER.size + 4 * slot)

    def _forget_unreadable(self, at: int) -> None:
        """Have the slots of a block that the disk does not give back be unknown, not empty as zeros say."""
        first, end = HEADER.size, HEADER.size + 4 * self._total
        for low, high in unreadable_in(self._file, at, at + 4):
            start, stop = max(first, low - low % BLOCK), min(end, -(-high // BLOCK) * BLOCK)
            self._file.write([b"\xff" * (stop - start)], start)


class KeptSlots(HashSlots):
    """The same for many keys: read and written in blocks, and blocks that were read stay in memory, 20 MB."""

    def __init__(self, file: DiskFile, total: int) -> None:
        super().__init__(file, total)
        self._newest = array("i", (0,)) * total
        self._read: set[int] = set()  # blocks
        self._changed: set[int] = set()

    def put(self, begin: int, end: int) -> list[int]:
        newest, total, number = self._newest, self._total, self._first + begin
        slots = [value % total for value in self._values[begin:end]]
        blocks = {slot >> BLOCK_BITS for slot in slots}
        for block in blocks - self._read:
            self._read_in(block)
        self._changed |= blocks
        befores: list[int] = []
        for at, slot in enumerate(slots, number):
            befores.append(newest[slot])
            newest[slot] = at
        if min(befores) < 0 or max(befores) >= self._first:
            rows = zip(befores, range(number, number + len(slots)), slots, strict=True)
            befores = [self._before(*row) for row in rows]
        return befores

    def _read_in(self, block: int) -> None:
        start, stop = self._bounds(block)
        raw = self._file.read(4 * (stop - start), HEADER.size + 4 * start)
        slots = array("i", raw.ljust(4 * (stop - start), b"\0"))
        if SWAPPED:
            slots.byteswap()
        first = HEADER.size + 4 * start
        for low, high in unreadable_in(self._file, first, first + 4 * (stop - start)):
            begin, end = (low - first) // 4, -(-(high - first) // 4)
            slots[begin:end] = array("i", [UNKNOWN]) * (end - begin)
        self._newest[start:stop] = slots
        self._read.add(block)

    def write(self) -> None:
        for block in sorted(self._changed):  # a write of 64 KiB costs as much as ten of 4 bytes
            start, stop = self._bounds(block)
            slots = self._newest[start:stop]
            if SWAPPED:
                slots.byteswap()
            self._file.write([slots.tobytes()], HEADER.size + 4 * start)
        self._changed = set()

    def _bounds(self, block: int) -> tuple[int, int]:
        return block << BLOCK_BITS, min((block + 1) << BLOCK_BITS, self._total)
