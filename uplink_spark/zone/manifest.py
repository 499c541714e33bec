"""What has landed: the layout of a landing zone and the bytes of its manifest, entries and marks.

A file is "RBM1", u32 shard, u64 first seq, then items: u32 length, u32 CRC-32, CBOR entry. An item of length 0 is a
mark whose CRC field holds the low 32 bits of the next seq. Readers use entries up to the last mark only: what is
behind may be taken back by a power cut. The next file is named by the next seq: nobody lists a folder while following.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import cbor2

from uplink_spark.errors import ManifestDamaged, PieceDamaged
from uplink_spark.wire.batch import PieceHeader
from uplink_spark.wire.cbor import Fields, decode_map, encode_map

MAGIC = b"RBM1"
FILE_HEAD = struct.Struct(">4sIQ")
ITEM_HEAD = struct.Struct(">II")
FILE_ENTRIES = 65536
MAX_ENTRY_BYTES = 1 << 20
LANDING_NAME = "LANDING"
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Zone:
    """The file LANDING: which zone this is and over how many shards boxes are spread."""

    landing_id: bytes
    shards: int

    def encode(self) -> bytes:
        return encode_map({"v": 1, "id": self.landing_id, "shards": self.shards})


def decode_zone(data: bytes) -> Zone:
    """Return what LANDING says. Raises ManifestDamaged."""
    try:
        fields = Fields(decode_map(data), LANDING_NAME)
        if fields.uint("v") != 1:
            raise ManifestDamaged(f"LANDING has layout {fields.uint('v')}, this program knows 1: update it")
        return Zone(fields.octets("id", 16), fields.uint("shards", most=65536))
    except PieceDamaged as error:
        raise ManifestDamaged(f"LANDING: {error}") from error


def shard_of(box: str, shards: int) -> int:
    """The shard that holds every entry of a box."""
    return hashlib.sha256(box.encode()).digest()[0] % shards


def manifest_folder(shard: int) -> str:
    return f"manifest/{shard:04x}"


def manifest_path(shard: int, first_seq: int, ending: str = "log") -> str:
    return f"manifest/{shard:04x}/{first_seq:020d}.{ending}"


def runs_folder(shard: int) -> str:
    """Where a file of each box that was admitted has its run lists."""
    return f"manifest/{shard:04x}/runs"


def retired_folder(shard: int) -> str:
    """Where an empty file says of each box in it that it is not admitted any more."""
    return f"manifest/{shard:04x}/retired"


def kept_path(shard: int) -> str:
    """Where retention writes down what it removes: {"v": 1, "shard": 0, "seq": the lowest whose pack stays}."""
    return f"retention/{shard:04x}.json"


def kept_of(data: bytes | None) -> int:
    """Return the seq that kept_path names, 0 while there is no such file. Raises ManifestDamaged."""
    if data is None:
        return 0
    try:
        return int(json.loads(data)["seq"])
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestDamaged(f"{data[:80]!r} names no seq") from error


def pack_path(shard: int, landed_ms: int, first_seq: int) -> str:
    day = datetime.fromtimestamp(landed_ms / 1000, UTC).date().isoformat()
    return f"pack/{shard:04x}/{day}/{first_seq:020d}.pack"


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One range that has landed: where its piece is and which part of it is to be used."""

    seq: int
    kind: str  # log, pick, gap, blob
    box: str
    epoch: int
    run: int
    pack: str  # path below the landing zone
    offset: int  # of the piece in the pack
    stored_bytes: int  # whole container
    start: int  # the part to use: log offsets
    end: int
    records: int  # of the whole piece
    raw_bytes: int
    stored_ms_min: int
    stored_ms_max: int
    landed_ms: int
    cut_ms: int
    clock_ok: int
    topics: dict[str, tuple[int, int]] | None = None
    skip: tuple[str, ...] = ()
    gap: dict[str, Any] | None = None  # of a gap or blob; an absent "records" means: not known
    heals: int = 0  # 1: these bytes had been declared lost

    def encode(self) -> bytes:
        topics = None if self.topics is None else {name: list(pair) for name, pair in self.topics.items()}
        return encode_map(
            {
                "s": self.seq,
                "k": self.kind,
                "b": self.box,
                "e": self.epoch,
                "r": self.run,
                "p": self.pack,
                "o": self.offset,
                "z": self.stored_bytes,
                "f": self.start,
                "t": self.end,
                "n": self.records,
                "w": self.raw_bytes,
                "a": self.stored_ms_min,
                "x": self.stored_ms_max,
                "l": self.landed_ms,
                "c": self.cut_ms,
                "q": self.clock_ok,
                "y": topics,
                "j": list(self.skip) or None,
                "g": self.gap,
                "h": self.heals or None,
            }
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a landing commit put one piece, and the part of it that was new."""

    seq: int
    pack: str
    offset: int
    start: int
    end: int
    landed_ms: int
    heals: int = 0


def entry_of(
    header: PieceHeader, container_bytes: int, place: Placement, gap: dict[str, Any] | None = None
) -> ManifestEntry:
    """Return the manifest entry of one part of a piece."""
    return ManifestEntry(
        seq=place.seq,
        kind=header.kind,
        box=header.box,
        epoch=header.epoch,
        run=header.run,
        pack=place.pack,
        offset=place.offset,
        stored_bytes=container_bytes,
        start=place.start,
        end=place.end,
        records=header.records,
        raw_bytes=header.raw_bytes,
        stored_ms_min=header.stored_ms_min,
        stored_ms_max=header.stored_ms_max,
        landed_ms=place.landed_ms,
        cut_ms=header.cut_ms,
        clock_ok=header.clock_ok,
        topics=header.topics,
        skip=header.skip,
        gap=gap,
        heals=place.heals,
    )


def decode_entry(data: bytes) -> ManifestEntry:
    """Return the entry of one item, whose CRC has been checked. Raises ManifestDamaged."""
    try:
        m = cbor2.loads(data)
        topics = m.get("y")
        return ManifestEntry(
            m["s"],
            m["k"],
            m["b"],
            m["e"],
            m["r"],
            m["p"],
            m["o"],
            m["z"],
            m["f"],
            m["t"],
            m["n"],
            m["w"],
            m["a"],
            m["x"],
            m["l"],
            m["c"],
            m["q"],
            None if topics is None else {name: (pair[0], pair[1]) for name, pair in topics.items()},
            tuple(m.get("j", ())),
            m.get("g"),
            m.get("h", 0),
        )
    except (cbor2.CBORDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ManifestDamaged(f"an entry with a right CRC does not decode: {error}") from error


def file_head(shard: int, first_seq: int) -> bytes:
    return FILE_HEAD.pack(MAGIC, shard, first_seq)


def encode_items(entries: Iterable[ManifestEntry]) -> bytes:
    parts = []
    for entry in entries:
        body = entry.encode()
        parts += [ITEM_HEAD.pack(len(body), zlib.crc32(body)), body]
    return b"".join(parts)


def encode_mark(next_seq: int) -> bytes:
    return ITEM_HEAD.pack(0, next_seq & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Slice:
    """What a stretch of a manifest file holds, beginning at an item."""

    entries: tuple[ManifestEntry, ...]  # in front of the last mark
    marked: int  # bytes up to and with the last mark
    next_seq: int  # at the last mark
    pending: tuple[ManifestEntry, ...]  # whole entries after the last mark
    whole: int  # bytes up to the end of the last whole item
    fault: str | None  # what is wrong behind `whole`, None if nothing is there


class Walk(NamedTuple):
    """Where the items of a stretch of a manifest file are."""

    borders: list[tuple[int, int]]  # of the bodies of whole entries
    counted: int  # of them in front of the last mark
    marked: int  # bytes up to and with the last mark
    whole: int  # bytes up to the end of the last whole item
    fault: str | None  # what is wrong behind `whole`


def walk_items(data: bytes, next_seq: int) -> Walk:
    """Find the items in data, whose first entry has seq next_seq; their CRC and the marks are checked."""
    borders: list[tuple[int, int]] = []
    at = marked = counted = 0
    fault = None
    while at < len(data) and fault is None:
        if at + ITEM_HEAD.size > len(data):
            fault = f"{len(data) - at} bytes of an item"
            break
        length, crc = ITEM_HEAD.unpack_from(data, at)
        body_at = at + ITEM_HEAD.size
        seq = next_seq + len(borders)
        if not length:
            if crc != seq & 0xFFFFFFFF:
                fault = f"a mark for seq {crc}, expected {seq}"
                break
            at = marked = body_at
            counted = len(borders)
            continue
        body = data[body_at : body_at + length]
        if length > MAX_ENTRY_BYTES or len(body) < length or zlib.crc32(body) != crc:
            fault = f"an entry of {length} bytes that is cut or damaged"
            break
        at = body_at + length
        borders.append((body_at, at))
    return Walk(borders, counted, marked, at, fault)


def read_items(data: bytes, next_seq: int) -> Slice:
    """Read the items in data; the first entry in it has seq next_seq. Raises ManifestDamaged on a seq out of turn."""
    found = walk_items(data, next_seq)
    entries = tuple(decode_entry(data[start:end]) for start, end in found.borders)
    for seq, entry in enumerate(entries, next_seq):
        if entry.seq != seq:
            raise ManifestDamaged(f"seq {entry.seq} where {seq} belongs")
    counted = found.counted
    return Slice(entries[:counted], found.marked, next_seq + counted, entries[counted:], found.whole, found.fault)


def goes_on(data: bytes, at: int, next_seq: int) -> bool:
    """Tell whether a mark for a later seq is behind a fault: what the fault hides was synced then, no torn tail."""
    found = data.find(_MARK_START, at)
    while 0 <= found <= len(data) - ITEM_HEAD.size:
        seq = ITEM_HEAD.unpack_from(data, found)[1]
        most = next_seq + (found - at) // SMALLEST_ENTRY
        if next_seq < seq <= most and _is_item(data[found + ITEM_HEAD.size :], seq):
            return True
        found = data.find(_MARK_START, found + 1)
    return False


def _is_item(data: bytes, next_seq: int) -> bool:
    """Tell whether data begins as it does behind a mark; at the file's end there is nothing."""
    try:
        return not data or read_items(data, next_seq).whole > 0
    except ManifestDamaged:
        return False


def read_head(data: bytes, shard: int, first_seq: int) -> int:
    """Check the head of a manifest file and return where its items begin; 0 while the head is not whole."""
    if len(data) < FILE_HEAD.size:
        return 0
    found = FILE_HEAD.unpack_from(data)
    if found != (MAGIC, shard, first_seq):
        raise ManifestDamaged(f"the head says {found}, expected shard {shard} from seq {first_seq}")
    return FILE_HEAD.size


def first_seq_of(name: str) -> int | None:
    """The seq in the name of a manifest file, None for any other name."""
    return _seq_of(name, "log")


def state_seq_of(name: str) -> int | None:
    """The seq in the name of a state, None for any other name."""
    return _seq_of(name, "state")


def _seq_of(name: str, wanted: str) -> int | None:
    stem, _, ending = name.rpartition("/")[2].partition(".")
    return int(stem) if ending == wanted and len(stem) == 20 and stem.isdigit() else None


SMALLEST_ENTRY = 64  # bytes; real ones have more than twice as many
_MARK_START = bytes(4)
ReadFrom = Callable[[str, int], bytes | None]


class ManifestTail:
    """Follows one shard: each `poll` returns the entries that have become visible since the last one.

    read(path, at) returns the bytes of a file from `at` to its end, None where there is no such file.
    names: the manifest files there are (asked once, to find the oldest); seq: the first entry wanted.
    """

    def __init__(self, shard: int, names: Iterable[str], read: ReadFrom, seq: int = 0) -> None:
        firsts = sorted(first for first in map(first_seq_of, names) if first is not None)
        self.shard, self._read = shard, read
        self.oldest = firsts[0] if firsts else 0  # nothing below it is in the manifest any more
        self.first = max((first for first in firsts if first <= seq), default=self.oldest)
        self.next_seq = self.first  # of the next entry in the file
        self._wanted, self._at = seq, 0

    def poll(self) -> list[ManifestEntry]:
        found: list[ManifestEntry] = []
        while True:
            data = self._read(manifest_path(self.shard, self.first), self._at)
            if data:
                found += self._take(data)
            if self.next_seq == self.first or self._read(manifest_path(self.shard, self.next_seq), 0) is None:
                return found
            late = self._read(manifest_path(self.shard, self.first), self._at)
            if late:  # written between the two looks; the old file is finished before the next one is made
                found += self._take(late)
            self.first, self._at = self.next_seq, 0

    def _take(self, data: bytes) -> list[ManifestEntry]:
        head = 0 if self._at else read_head(data, self.shard, self.first)
        if not self._at and not head:
            return []
        part = read_items(data[head:], self.next_seq)
        self._at += head + part.marked
        self.next_seq = part.next_seq
        return [entry for entry in part.entries if entry.seq >= self._wanted]
