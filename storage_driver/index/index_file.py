"""Key → log offsets, in RocketMQ's index files: header 40 bytes, hash slots i32, units of 20 bytes.

Everything here can be rebuilt from the log. Slots and units are read and written in place, never mapped.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct, pack
from typing import Final

from storage_driver.files.disk import Disk, DiskFile, FileFacts, make_fixed
from storage_driver.files.unreadable import unreadable_in
from storage_driver.index.index_keys import IndexKeys, key_hash
from storage_driver.index.index_slots import BLOCK_BITS, HEADER, UNKNOWN, HashSlots, KeptSlots, slot_in
from storage_driver.named_tuple import NamedTuple

UNIT: Final = Struct(">iqii")
_ZERO_UNIT: Final = bytes(UNIT.size)
SLOTS, UNITS = 5_000_000, 20_000_000
MOST_FOUND: Final = 64
SEARCH_UNITS: Final = 50_000
MOST_SECONDS: Final = 0x7FFFFFFF
YIELD_EVERY, YIELD_S = 512, 0.0003  # keys between yields: without any p99 of sends is 5 ms worse
SPARSE: Final = 8  # below 8 keys a block each slot is read and written by itself


class IndexSize(NamedTuple):
    """Numbers of slots and units of each file."""

    slots: int = SLOTS
    units: int = UNITS

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        return HEADER.size + 4 * self.slots + 20 * self.units


class IndexFile:
    """One index file; the header is kept in memory and written after the entries it counts."""

    def __init__(self, file: DiskFile, path: Path, size: IndexSize) -> None:
        self.path, self.size, self.file = path, size, file
        self._slots: KeptSlots | None = None  # nothing of a round that failed may stay
        raw = file.read(HEADER.size, 0).ljust(HEADER.size, b"\0")
        self.begin_ms: int
        self.end_ms: int
        self.begin_offset: int
        self.end_offset: int
        self.used_slots: int
        self.count: int
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, self.count = HEADER.unpack(raw)
        self.count = max(1, self.count)

    @property
    def full(self) -> bool:
        """Tell whether no entry fits any more."""
        return self.count >= self.size.units

    @property
    def damage(self) -> str | None:
        """Return why this header is impossible, None if it is possible."""
        if unreadable_in(self.file, 0, HEADER.size):
            return f"{self.path.name}: the disk does not give back its header"
        if self.count > self.size.units or not 0 <= self.used_slots <= self.size.slots:
            return f"{self.path.name}: {self.count} entries, {self.used_slots} slots"
        if self.count > 1 and not 0 <= self.begin_offset <= self.end_offset:
            return f"{self.path.name}: covers {self.begin_offset}..{self.end_offset}"
        return None

    def add(self, keys: IndexKeys) -> int:
        """Add as many keys as fit, return their number: units first, then slots, then the header. Raises OSError."""
        values, log_offsets, times = keys
        first, count = self.count, min(len(values), self.size.units - self.count)
        if not count:
            return 0
        if first == 1:
            self.begin_offset, self.begin_ms = log_offsets[0], times[0]
        slots, used_slots = self._slots_for(count), self.used_slots
        self._slots = None
        slots.begin(values[:count], first)
        units: list[bytes] = []
        for at in range(0, count, YIELD_EVERY):
            time.sleep(YIELD_S)  # a thread that computes lets the loop of the sends go first
            here = slice(at, min(at + YIELD_EVERY, count))
            befores = slots.put(here.start, here.stop)
            used_slots += befores.count(0) + befores.count(UNKNOWN)
            columns: list[int] = [0] * (4 * len(befores))
            columns[0::4], columns[1::4] = values[here], log_offsets[here]
            columns[2::4], columns[3::4] = self._seconds(times[here]), befores
            units.append(pack(">" + "iqii" * len(befores), *columns))
        self.file.write([b"".join(units)], HEADER.size + 4 * self.size.slots + UNIT.size * first)
        slots.write()
        self._slots = slots if isinstance(slots, KeptSlots) and not self.full else None
        self.count = first + count
        self.end_offset, self.end_ms = log_offsets[count - 1], times[count - 1]
        self.used_slots = min(used_slots, self.size.slots)
        self.write_header()
        return count

    def _slots_for(self, count: int) -> HashSlots:
        if count < SPARSE * (self.size.slots >> BLOCK_BITS):
            return HashSlots(self.file, self.size.slots)
        return self._slots or KeptSlots(self.file, self.size.slots)

    def rest(self) -> None:
        """Keep no slots in memory: few keys come, or none."""
        self._slots = None

    def _seconds(self, times: Sequence[int]) -> list[int]:
        """Return the whole seconds since the file began, as many as its units can hold."""
        begin_ms = self.begin_ms
        if begin_ms <= 0:
            return [0] * len(times)
        first, last = (min(times) - begin_ms) // 1000, (max(times) - begin_ms) // 1000
        if 0 <= first == last <= MOST_SECONDS:
            return [first] * len(times)
        if first >= 0 and last <= MOST_SECONDS:
            return [(stored_ms - begin_ms) // 1000 for stored_ms in times]
        return [max(0, min((stored_ms - begin_ms) // 1000, MOST_SECONDS)) for stored_ms in times]

    def log_offset_of(self, number: int) -> int:
        """Return where the record of a unit is; -1 where the file has none. Raises OSError."""
        raw = self.file.read(UNIT.size, HEADER.size + 4 * self.size.slots + UNIT.size * number)
        return int(UNIT.unpack(raw)[1]) if len(raw) == UNIT.size else -1

    def units_of(self, log_offset: int) -> int:
        """Return how many of the newest units are of one record. Raises OSError."""
        number = self.count
        while number > 1 and self.log_offset_of(number - 1) == log_offset:
            number -= 1
        return self.count - number

    def write_header(self) -> None:
        """Write the header. Raises OSError."""
        raw = HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, self.count)
        self.file.write([raw], 0)

    def find(self, text: str, most: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return log offsets under a key's hash, newest first, stored within [begin_ms, end_ms] to the second."""
        if self.count <= 1:
            return []
        value = key_hash(text)
        found: list[int] = []
        number = slot_in(self.file, value % self.size.slots)
        if not 0 <= number < self.count:
            return self._search(value, self.count, most, begin_ms, end_ms)  # its newest unit was lost
        while 0 < number < self.count and len(found) < most:
            at = HEADER.size + 4 * self.size.slots + UNIT.size * number
            raw = self.file.read(UNIT.size, at)
            if len(raw) < UNIT.size:
                break
            if raw == _ZERO_UNIT:  # the disk lost it, or did not give it back
                return found + self._search(value, number, most - len(found), begin_ms, end_ms)
            unit_hash, log_offset, seconds, before = UNIT.unpack(raw)
            stored_ms = self.begin_ms + seconds * 1000
            if seconds < 0 or stored_ms + 999 < begin_ms:
                break
            if unit_hash == value and stored_ms <= end_ms:
                found.append(log_offset)
            if before == UNKNOWN:
                return found + self._search(value, number, most - len(found), begin_ms, end_ms)
            if before >= number:
                break  # chains fall: anything else is damage
            number = before
        return found

    def _search(self, value: int, below: int, most: int, begin_ms: int, end_ms: int) -> list[int]:
        """Look through all units below one, newest first: the chain of this slot is broken. 1 s for a full file."""
        wanted = value.to_bytes(4, "big")
        found: list[int] = []
        while below > 1 and len(found) < most:
            first = max(1, below - SEARCH_UNITS)
            raw = self.file.read(UNIT.size * (below - first), HEADER.size + 4 * self.size.slots + UNIT.size * first)
            at = raw.rfind(wanted)
            while at >= 0:
                if at % UNIT.size == 0 and at + UNIT.size <= len(raw):
                    _, log_offset, seconds, _ = UNIT.unpack_from(raw, at)
                    stored_ms = self.begin_ms + seconds * 1000
                    matches = seconds >= 0 and stored_ms <= end_ms and stored_ms + 999 >= begin_ms
                    found += [log_offset] if matches else []
                at = raw.rfind(wanted, 0, at + 3)
            below = first
        return found[:most]

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Tell whether the file may hold entries of these times."""
        return self.count > 1 and begin_ms <= self.end_ms + 999 and end_ms >= self.begin_ms


def list_index(disk: Disk, folder: Path) -> list[FileFacts]:
    """Return the index files of a folder by their names, whatever is in them."""
    return [facts for facts in disk.list(folder) if facts.name.isdecimal() and not facts.is_folder]


class Index:
    """All index files, oldest first. Adding happens in one thread at a time; finding may run beside it."""

    def __init__(self, disk: Disk, root: Path, size: IndexSize) -> None:
        self.files: list[IndexFile] = []
        self.dropped: list[str] = []  # damaged files that were set aside
        self._disk, self._root, self._size = disk, root, size
        self._folder = root / "index"
        self._last_name = 0

    def load(self, aside: Path) -> None:
        """Open the files found; a damaged one is moved to `aside`, newer ones go. Raises OSError.

        An index that ends before the damage comes again from the log, and from there on all of it.
        """
        for facts in list_index(self._disk, self._folder):
            path = self._folder / facts.name
            if self.dropped:
                self._disk.remove(path)
                continue
            file = IndexFile(self._disk.open(path), path, self._size)
            if facts.size < self._size.file_bytes and file.damage is None:
                file.file.resize(self._size.file_bytes)
            if file.damage is not None or facts.size > self._size.file_bytes:
                self.dropped.append(
                    file.damage or f"{facts.name}: {facts.size} bytes, expected {self._size.file_bytes}"
                )
                self._disk.make_folder(aside)
                self._disk.rename(path, aside / f"index-{facts.name}")
                continue
            self.files.append(file)
        while self.files and self.files[-1].count == 1:  # made, then the power or the process went
            self._disk.remove(self.files.pop().path)

    def set_back(self, log_offset: int, count: int) -> None:
        """After a power cut: trust only what was synced, the entries of the log below an offset. Raises OSError."""
        while self.files and self.files[-1].begin_offset >= log_offset:
            self._disk.remove(self.files.pop().path)
        if self.files and self.files[-1].end_offset >= log_offset:
            file = self.files[-1]
            file.count = max(1, min(file.count, count))
            file.end_offset = file.log_offset_of(file.count - 1)
            file.write_header()

    def lost_from(self, index_to: int, index_count: int) -> int | None:
        """Return where the record begins from which on entries may be gone, None when none are.

        A position says: the log below `index_to` is covered, the newest file had `index_count` units then.
        """
        if not self.files:
            return 0 if index_count > 1 or self.dropped else None
        last = self.files[-1]
        if last.count < index_count or (last.full and last.end_offset < index_to):
            return min(index_to, last.log_offset_of(last.count - 1))
        return None

    def last_record(self) -> tuple[int, int]:
        """Return the log offset of the newest record that has entries and how many it has, (-1, 0) without any.

        A record whose keys filled a file has the others in the next one, if they got that far. Raises OSError.
        """
        log_offset, count = -1, 0
        for file in reversed(self.files):
            if file.count > 1:
                if 0 <= log_offset != file.end_offset:
                    break
                log_offset = file.end_offset
                found = file.units_of(log_offset)
                count += found
                if found < file.count - 1:
                    break
        return log_offset, count

    def add(self, keys: IndexKeys, now_ms: int) -> None:
        """Add entries, making files as needed; a full file is synced before the next begins. Raises OSError."""
        while keys.values:
            if not self.files or self.files[-1].full:
                if self.files:
                    self.files[-1].file.sync()
                self.files.append(self._make(now_ms))
            keys = keys.behind(self.files[-1].add(keys))

    def _make(self, now_ms: int) -> IndexFile:
        self._disk.make_folder(self._folder)
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        number = max(int(stamp), self._last_name + 1, int(self.files[-1].path.name) + 1 if self.files else 0)
        self._last_name = number
        path = self._folder / f"{number:017d}"
        file = make_fixed(self._disk, self._root / "index.tmp", path, size=self._size.file_bytes, sparse=True)
        self._disk.sync_folder(self._folder)
        return IndexFile(file, path, self._size)

    def rest(self) -> None:
        """Free memory while no entries arrive."""
        if self.files:
            self.files[-1].rest()

    def sync(self) -> None:
        """Return once all entries are on stable storage. Raises OSError."""
        if self.files:
            self.files[-1].file.sync()

    def find(self, text: str, most: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return log offsets under a key, lowest first, at most 64; a hash may collide, so the caller compares keys."""
        most = min(most, MOST_FOUND)
        found: list[int] = []
        files = self.files
        for file in reversed(files):
            if len(found) >= most:
                break
            if file.overlaps(begin_ms, end_ms):
                found += file.find(text, most - len(found), begin_ms, end_ms)
        return sorted(set(found))

    def drop_before(self, log_offset: int) -> None:
        """Delete files that only cover the log below an offset, never the newest. Raises OSError."""
        while len(self.files) > 1 and self.files[0].end_offset < log_offset:
            self._disk.remove(self.files[0].path)
            self.files = self.files[1:]  # a search under way keeps its list
