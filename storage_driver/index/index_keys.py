"""Records → the hashes under which index files hold them: Java's hash of topic#key, without its sign."""

from collections.abc import Sequence
from functools import lru_cache
from struct import unpack
from typing import Final

from storage_driver.named_tuple import NamedTuple
from storage_driver.record import index_keys, java_hash

DIFFERING: Final = 16  # characters at the end of a UNIQ_KEY: its time and its counter
LONGEST_KNOWN: Final = 128  # where a UNIQ_KEY ends whose beginning is worth remembering


class IndexKeys(NamedTuple):
    """Entries to be added, column by column: `key_hash` of topic#key, log offset, store time in ms."""

    values: list[int]
    log_offsets: list[int]
    times: list[int]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> "IndexKeys":
        """Return the columns of entries."""
        return cls([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])

    def behind(self, count: int) -> "IndexKeys":
        """Return all but the first entries."""
        return IndexKeys(self.values[count:], self.log_offsets[count:], self.times[count:])


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


def alike_hashes(topic: str, properties: Sequence[bytes]) -> list[int] | None:
    """Return the one `key_hashes` of each record, None unless they differ at the end of UNIQ_KEY alone.

    Those of one client do, batch or not: an address, a process and a class loader, then a time and a counter. Of the
    columns that differ each one adds its share to the hash of all.
    """
    first, count = properties[0], len(properties)
    end, size = first.find(b"\x02"), len(first)
    if not first.startswith(b"UNIQ_KEY\x01") or first.rfind(b"KEY") != 5 or not 13 < end <= LONGEST_KNOWN:
        return None
    joined = b"".join(properties)
    if len(joined) != count * size or set(map(len, properties)) != {size}:
        return None
    alike, differing = bytearray(joined), []
    for at in range(max(9, end - DIFFERING), end):
        column = joined[at::size]
        if column.count(first[at]) < count:
            alike[at::size] = bytes((first[at],)) * count
            differing.append((pow(31, end - 1 - at, 1 << 32), first[at], column))
    if alike != first * count or not all(column.isascii() and 2 not in column for _, _, column in differing):
        return None
    if not first[9:end].isascii():
        return None
    base = java_hash(f"{topic}#{first[9:end].decode()}") - sum([factor * known for factor, known, _ in differing])
    total = _lanes(b"\1" * count) * (base & 0xFFFFFFFF) + sum([factor * _lanes(unit) for factor, _, unit in differing])
    values = list(map(abs, unpack("<" + "i4x" * count, total.to_bytes(8 * count, "little"))))
    return values if max(values) < 1 << 31 else [value if value < 1 << 31 else 0 for value in values]


def _lanes(column: bytes) -> int:
    """Return one number that holds each byte in 64 bits of its own: a product with it is one with each of them.

    Sums of 16 products of a byte with 32 bits have room there.
    """
    spread = bytearray(8 * len(column))
    spread[::8] = column
    return int.from_bytes(spread, "little")


@lru_cache(256)
def _hash_of_head(topic: str, head: bytes) -> int:
    return java_hash(f"{topic}#{head.decode()}")
