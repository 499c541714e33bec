"""Made-up records, pieces and landing zones for the tests of this package and of the jobs over it."""

from __future__ import annotations

import resource
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from storage_driver.log.lineage import AloneRange, CutTold, Switches
from storage_driver.recovery.verdict import RecoveryVerdict
from uplink_spark.box.cutting.scan import scan_records
from uplink_spark.centre.verify import Verified
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece, ShardWriter, open_zone
from uplink_spark.errors import Refused
from uplink_spark.wire.batch import PieceContents, PieceHeader, PieceSource, encode_piece, open_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.zone.manifest import (
    LANDING_NAME,
    ManifestEntry,
    ManifestTail,
    decode_zone,
    manifest_folder,
    shard_of,
)


@contextmanager
def files_end_at(length: int) -> Iterator[None]:
    """A full disk: no file of this process grows beyond length bytes, what is written across it is written in part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


HOST = b"\x7f\x00\x00\x01" + struct.pack(">i", 10911)


@dataclass(frozen=True, slots=True)
class MadeRecord:
    """What one made-up stored message holds."""

    topic: str = "T"
    queue_id: int = 0
    queue_offset: int = 0
    body: bytes = b"hello"
    properties: str = ""
    born_ms: int = 1_700_000_000_000
    stored_ms: int = 1_700_000_000_001
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0


def encode_record(record: MadeRecord, log_offset: int) -> bytes:
    """Return the record as the CommitLog keeps it at log_offset (IPv4 hosts, version 1)."""
    topic, properties = record.topic.encode(), record.properties.encode()
    size = 91 + len(record.body) + len(topic) + len(properties)
    crc = zlib.crc32(record.body) & 0x7FFFFFFF
    head = struct.pack(
        ">iIIiiqqiq", size, 0xDAA320A7, crc, record.queue_id, record.flag, record.queue_offset, log_offset,
        record.sys_flag, record.born_ms,
    )  # fmt: skip
    tail = struct.pack(">q", record.stored_ms) + HOST
    tail += struct.pack(">iqi", record.reconsume_times, record.prepared_offset, len(record.body)) + record.body
    return head + HOST + tail + bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties


def encode_log(records: Sequence[MadeRecord], start: int = 0) -> bytes:
    """Return the records back to back, the first one at log offset start."""
    parts: list[bytes] = []
    at = start
    for record in records:
        parts.append(encode_record(record, at))
        at += len(parts[-1])
    return b"".join(parts)


SOURCE = PieceSource(box="box-17", epoch=0x0123456789ABCDEF, run=7, run_start=0, cut_ms=1_700_000_000_100, clock_ok=1)


@dataclass
class MadeSegment:
    """A file of a made-up log."""

    base: int
    size: int
    path: Path = Path("/nowhere")


@dataclass
class MadeLineage:
    """Epochs and runs as they are told."""

    epochs: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    express: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    cuts: list[CutTold] = field(default_factory=list)
    alone_told: list[AloneRange] = field(default_factory=list)

    def fork(self, log_offset: int) -> None:
        self.epochs.append((self.epochs[-1][0] + 1, log_offset))

    def land(self, landing: str) -> None: ...

    def add_older_express(self, switches: Switches, /) -> None:
        self.express = [*switches, *self.express]

    def switch_express(self, log_offset: int, topics: tuple[str, ...], /, *, first: int = 0) -> None:
        self.express = [*self.express, (log_offset, topics)] if topics else self.express


class MadeLog:
    """A log in memory, all of it committed: what the shipper needs of a store (state.LogSource)."""

    def __init__(self, raw: bytes, *, file_bytes: int = 1 << 20, first: int = 0) -> None:
        self.raw, self.first, self.file_bytes = raw, first, file_bytes
        self.lineage = MadeLineage([(SOURCE.epoch, 0)], [(SOURCE.run, 0)])
        self.waiting: list[tuple[int, Callable[[str | None], None]]] = []
        self.failure: str | None = None
        self.verdict = RecoveryVerdict()

    def damaged(self) -> list[tuple[int, int]]:
        return [(damage.start, damage.end) for damage in self.verdict.quarantined]

    @property
    def committed(self) -> int:
        return len(self.raw)

    def read_log(self, start: int, max_bytes: int) -> bytes:
        end = min(start + max_bytes, len(self.raw), start // self.file_bytes * self.file_bytes + self.file_bytes)
        return self.raw[start:end]

    def is_unreadable(self, start: int, end: int) -> bool:
        return True

    def segments(self) -> list[MadeSegment]:
        return [MadeSegment(base, self.file_bytes) for base in range(0, max(1, len(self.raw)), self.file_bytes)]

    def when_committed(self, log_offset: int, wake: Callable[[str | None], None]) -> None:
        self.waiting.append((log_offset, wake))


def log_piece(
    records: Sequence[MadeRecord], start: int = 0, *, source: PieceSource = SOURCE, codec: str = "zstd", blank: int = 0
) -> tuple[PieceHeader, bytes]:
    """Return a `log` piece of the records, beginning at log offset start."""
    raw = encode_log(records, start)
    return raw_piece(raw, start, source=source, codec=codec, blank=blank)


def raw_piece(
    raw: bytes, start: int, *, source: PieceSource = SOURCE, codec: str = "zstd", blank: int = 0
) -> tuple[PieceHeader, bytes]:
    """Return a `log` piece of record bytes."""
    scan = scan_records(raw, start, len(raw))
    if scan.length != len(raw):
        raise ValueError(f"not whole records: {scan.fault}")
    contents = PieceContents(
        "log", start, start + len(raw) + blank, raw, scan.index(), scan.stored_ms_min, scan.stored_ms_max, scan.topics
    )
    return encode_piece(source, contents, codec)


def gap_piece(start: int, end: int, gap: dict[str, object], *, source: PieceSource = SOURCE) -> NewPiece:
    """Return a `gap` piece ready to land; gap: class, reason, since, until, declared, queues, records, bytes."""
    header, container = encode_piece(source, PieceContents("gap", start, end, encode_map(gap)), "none")
    return NewPiece(header, container, ((start, end),), dict(gap))


class MadeLanding:
    """A landing zone written through the real writer, one pack and one manifest commit per `land`."""

    def __init__(self, root: Path, shards: int = 1) -> None:
        self.root, self.zone = root, open_zone(root, shards)
        self._writers: dict[int, ShardWriter] = {}
        self.covers: dict[int, ShardCover] = {}

    def writer(self, box: str) -> ShardWriter:
        shard = shard_of(box, self.zone.shards)
        if shard not in self._writers:
            self._writers[shard] = ShardWriter(self.root, shard)
            self.covers[shard] = ShardCover()
            self._writers[shard].open(self.covers[shard])
        return self._writers[shard]

    def land(
        self, *pieces: tuple[PieceHeader, bytes] | NewPiece, now_ms: int = 1_700_000_001_000
    ) -> list[ManifestEntry]:
        """Land pieces of one shard; a plain (header, container) is used whole."""
        new = [p if isinstance(p, NewPiece) else NewPiece(p[0], p[1], ((p[0].start, p[0].end),)) for p in pieces]
        box = new[0].header.box
        entries = self.writer(box).commit(new, now_ms)
        for entry in entries:
            self.covers[shard_of(box, self.zone.shards)].note(entry)
        return entries

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def landed_entries(root: Path, box: str) -> list[ManifestEntry]:
    """Return the visible entries of a box, read as Spark reads them."""
    zone = decode_zone((root / LANDING_NAME).read_bytes())
    shard = shard_of(box, zone.shards)

    def read(path: str, at: int) -> bytes | None:
        file = root / path
        return file.read_bytes()[at:] if file.exists() else None

    names = [path.name for path in (root / manifest_folder(shard)).iterdir()]
    return [entry for entry in ManifestTail(shard, names, read).poll() if entry.box == box]


def landed_log(root: Path, box: str) -> dict[int, bytes]:
    """Return the records of a box's `log` pieces by log offset. Raises ValueError for one that landed twice."""
    records: dict[int, bytes] = {}
    for entry in landed_entries(root, box):
        if entry.kind != "log":
            continue
        piece = open_piece((root / entry.pack).read_bytes()[entry.offset :][: entry.stored_bytes])
        raw, at = piece.raw(), piece.header.start
        piece.check_sha(raw)
        for size in scan_records(raw, at, len(raw)).sizes:
            if at in records and entry.start <= at < entry.end:
                raise ValueError(f"record at {at} landed twice")
            if entry.start <= at < entry.end:
                records[at] = raw[at - piece.header.start :][:size]
            at += size
    return records


class RecordingSender:
    """A connection that notes what it hears, in order."""

    def __init__(self) -> None:
        self.heard, self.flushed = list[tuple[object, ...]](), trio.Event()

    def landed(self, number: int, piece: Verified, seq: int, dup: int) -> None:
        self.heard.append(("landed", number, seq, dup))

    def refused(self, number: int, piece: Verified, reason: Refused) -> None:
        self.heard.append(("refused", number, reason.code))

    def dropped(self, number: int, piece: Verified) -> None:
        """Heard of in `failed`."""

    def failed(self, code: str, text: str) -> None:
        self.heard.append(("failed", code, text))

    def flush(self, shard: int) -> None:
        self.heard.append(("flush", shard))
        self.flushed.set()
