"""Key → log offsets, in RocketMQ's index files: header 40 bytes, hash slots i32, units of 20 bytes.

Everything here can be rebuilt from the log. Slots and units are read and written in place, never mapped.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeVar

from storage_driver.disk import Disk, DiskFile, FileFacts, make_fixed
from storage_driver.record import index_keys, java_hash

HEADER = Struct(">qqqqii")
UNIT = Struct(">iqii")
_SLOT = Struct(">i")
SLOTS, UNITS = 5_000_000, 20_000_000
MOST_FOUND = 64
UNKNOWN = -1  # in a unit: older ones of its slot cannot be reached through it; Apache takes it for the end of the chain
SEARCH_UNITS = 50_000
BLOCK_SLOTS = 16384  # slots that are read and written together
BREATH_EVERY, BREATH_S = 256, 0.0003  # without breaths p99 of sends is 5 ms worse
LONGEST_KNOWN = 128  # where a UNIQ_KEY ends whose beginning is worth remembering
SPARSE = 8  # below 8 slots a block each is read and written by itself
T = TypeVar("T")
Groups = Sequence[tuple[int, list[int]]]
"""Slots that are read and written together, behind the first slot of their block."""


def breathing(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield items in pieces, a breath before each: a thread that computes lets the loop of the sends go first."""
    for at in range(0, len(items), BREATH_EVERY):
        time.sleep(BREATH_S)
        yield items[at : at + BREATH_EVERY]


class IndexSize(NamedTuple):
    """Numbers of slots and units of each file."""

    slots: int = SLOTS
    units: int = UNITS

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        return HEADER.size + 4 * self.slots + 20 * self.units


IndexKey = tuple[int, int, int]
"""One entry to be added: `key_hash` of topic#key, log offset, store time in ms."""


def key_hash(text: str) -> int:
    """Return the hash that files hold: the absolute Java hash, 0 for the one value that has none."""
    value = abs(java_hash(text))
    return value if value < 1 << 31 else 0


def key_hashes(topic: str, properties: bytes) -> list[int]:
    """Return `key_hash` of each of a record's `index_keys`.

    Most records have UNIQ_KEY alone, in front, and those of one sender and millisecond differ in its last characters.
    """
    if properties.rfind(b"KEY") == 5 and properties.startswith(b"UNIQ_KEY\x01"):  # no other name with KEY in it
        end = properties.find(b"\x02")
        end = len(properties) if end < 0 else end
        head, tail = properties[9 : end - 4], properties[end - 4 : end]
        if 13 < end <= LONGEST_KNOWN and head.isascii() and tail.isascii():
            a, b, c, d = tail
            value = (_hash_of_head(topic, head) * 923521 + a * 29791 + b * 961 + c * 31 + d) & 0xFFFFFFFF
            return [value if value < 1 << 31 else (1 << 32) - value & 0x7FFFFFFF]
    return [key_hash(text) for text in index_keys(topic, properties)]


def batch_hashes(topic: str, properties: Sequence[bytes]) -> list[int] | None:
    """Return the one `key_hashes` of each message of a batch, None unless they differ in the end of UNIQ_KEY alone."""
    first = properties[0]
    end = first.find(b"\x02")
    if not first.startswith(b"UNIQ_KEY\x01") or first.rfind(b"KEY") != 5 or not 13 < end <= LONGEST_KNOWN:
        return None
    before, behind, size = first[: end - 4], first[end:], len(first)
    alike = [one for one in properties if one.startswith(before) and one.endswith(behind) and len(one) == size]
    tails = b"".join([one[end - 4 : end] for one in alike])
    if len(alike) < len(properties) or b"\x02" in tails or not (before.isascii() and tails.isascii()):
        return None
    base, columns = _hash_of_head(topic, before[9:]) * 923521, (tails[at::4] for at in range(4))
    return [
        abs(((base + a * 29791 + b * 961 + c * 31 + d + 0x80000000) & 0xFFFFFFFF) - 0x80000000) & 0x7FFFFFFF
        for a, b, c, d in zip(*columns, strict=True)
    ]


@lru_cache(256)
def _hash_of_head(topic: str, head: bytes) -> int:
    return java_hash(f"{topic}#{head.decode()}")


def _blocks(slots: Iterable[int], total: int) -> Iterator[tuple[int, list[int]]]:
    """Yield slots in groups that lie in one block, in order; one by one when there are few for the file's size."""
    wanted = sorted(set(slots))
    if len(wanted) < SPARSE * (total // BLOCK_SLOTS):
        for slot in wanted:
            yield slot, [slot]
        return
    for block, group in groupby(wanted, lambda slot: slot // BLOCK_SLOTS):
        yield block * BLOCK_SLOTS, list(group)


class IndexFile:
    """One index file; the header is kept in memory and written after the entries it counts."""

    def __init__(self, file: DiskFile, path: Path, size: IndexSize) -> None:
        self.path, self.size, self.file = path, size, file
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
        """Why this header cannot be true, None when it can."""
        if self.count > self.size.units or not 0 <= self.used_slots <= self.size.slots:
            return f"{self.path.name}: {self.count} entries, {self.used_slots} slots"
        if self.count > 1 and not 0 <= self.begin_offset <= self.end_offset:
            return f"{self.path.name}: covers {self.begin_offset}..{self.end_offset}"
        return None

    def add(self, keys: list[IndexKey]) -> int:
        """Add as many keys as fit, return how many: units first, then slots, then the header. Raises OSError."""
        keys = keys[: self.size.units - self.count]
        if not keys:
            return 0
        file, size, first = self.file, self.size, self.count
        if first == 1:
            _, self.begin_offset, self.begin_ms = keys[0]
        slots = [value % size.slots for value, _, _ in keys]
        groups = list(_blocks(slots, size.slots))
        heads = self._heads(groups, first)
        units: list[bytes] = []
        number, used_slots, known_ms, seconds = first, self.used_slots, -1, 0
        rested = chain.from_iterable(breathing(keys))
        for (value, log_offset, stored_ms), slot in zip(rested, slots, strict=True):
            before = heads[slot]
            if before <= 0:
                used_slots += 1
            heads[slot] = number
            if stored_ms != known_ms:  # those of a batch are the same
                known_ms, seconds = stored_ms, self._seconds(stored_ms)
            units.append(UNIT.pack(value, log_offset, seconds, before))
            number += 1
        file.write([b"".join(units)], HEADER.size + 4 * size.slots + UNIT.size * first)
        self._write_heads(groups, heads)
        self.count = first + len(keys)
        _, self.end_offset, self.end_ms = keys[-1]
        self.used_slots = min(used_slots, size.slots)
        self.write_header()
        return len(keys)

    def _seconds(self, stored_ms: int) -> int:
        return max(0, min((stored_ms - self.begin_ms) // 1000, 0x7FFFFFFF)) if self.begin_ms > 0 else 0

    def _heads(self, groups: Groups, first: int) -> dict[int, int]:
        """Return the newest unit under each of these slots, 0 for none, UNKNOWN when a power cut took it."""
        file, heads = self.file, {}
        for start, group in groups:
            if len(group) == 1:
                start, raw = group[0], file.read(4, HEADER.size + 4 * group[0])
            else:
                raw = file.read(4 * min(BLOCK_SLOTS, self.size.slots - start), HEADER.size + 4 * start)
            for slot in group:
                (before,) = _SLOT.unpack_from(raw, 4 * (slot - start))
                heads[slot] = before if 0 < before < first else UNKNOWN if before else 0
        return heads

    def _write_heads(self, groups: Groups, heads: dict[int, int]) -> None:
        """Write slots, many together: a write of 64 KiB costs as much as ten of 4 bytes."""
        file = self.file
        for start, group in groups:
            if len(group) == 1:
                file.write([_SLOT.pack(heads[group[0]])], HEADER.size + 4 * group[0])
                continue
            raw = bytearray(file.read(4 * min(BLOCK_SLOTS, self.size.slots - start), HEADER.size + 4 * start))
            for slot in group:
                _SLOT.pack_into(raw, 4 * (slot - start), heads[slot])
            file.write([bytes(raw)], HEADER.size + 4 * start)

    def units_of(self, log_offset: int) -> int:
        """Return how many of the newest units are of one record. Raises OSError."""
        number = self.count
        while number > 1:
            raw = self.file.read(UNIT.size, HEADER.size + 4 * self.size.slots + UNIT.size * (number - 1))
            if len(raw) < UNIT.size or UNIT.unpack(raw)[1] != log_offset:
                break
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
        raw = self.file.read(4, HEADER.size + 4 * (value % self.size.slots))
        number = _SLOT.unpack(raw)[0] if len(raw) == 4 else 0
        if not 0 <= number < self.count:
            return self._search(value, self.count, most, begin_ms, end_ms)  # its newest unit was lost
        while 0 < number < self.count and len(found) < most:
            raw = self.file.read(UNIT.size, HEADER.size + 4 * self.size.slots + UNIT.size * number)
            if len(raw) < UNIT.size:
                break
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
                    if seconds >= 0 and stored_ms <= end_ms and stored_ms + 999 >= begin_ms:
                        found.append(log_offset)
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
        """Open the files found; a damaged one is moved to `aside`. Raises OSError."""
        for facts in list_index(self._disk, self._folder):
            path = self._folder / facts.name
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
            file.count, file.end_offset = max(1, min(file.count, count)), log_offset - 1
            file.write_header()

    def lost_from(self, index_to: int, index_count: int) -> int | None:
        """Return the log offset from which entries are gone, None when none are.

        A position says: the log below `index_to` is covered, the newest file had `index_count` units then.
        """
        if not self.files:
            return 0 if index_count > 1 else None
        last = self.files[-1]
        if last.count < index_count or (last.full and last.end_offset + 1 < index_to):
            return min(index_to, last.end_offset + 1)
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

    def add(self, keys: list[IndexKey], now_ms: int) -> None:
        """Add entries, making files as needed; a full file is synced before the next begins. Raises OSError."""
        while keys:
            if not self.files or self.files[-1].full:
                if self.files:
                    self.files[-1].file.sync()
                self.files.append(self._make(now_ms))
            keys = keys[self.files[-1].add(keys) :]

    def _make(self, now_ms: int) -> IndexFile:
        self._disk.make_folder(self._folder)
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        number = max(int(stamp), self._last_name + 1, int(self.files[-1].path.name) + 1 if self.files else 0)
        self._last_name = number
        path = self._folder / f"{number:017d}"
        file = make_fixed(self._disk, self._root / "index.tmp", path, size=self._size.file_bytes, sparse=True)
        self._disk.sync_folder(self._folder)
        return IndexFile(file, path, self._size)

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
