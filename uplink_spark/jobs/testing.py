"""Records, pieces and small fleets for tests of the Spark side, made with the store's own encoder."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_driver.record import Message, encode_host, encode_properties, encode_record, encode_topic
from uplink_spark.jobs.table.delta import Table
from uplink_spark.spark.rows import Origin, RawPiece
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.wire.batch import PieceSource
from uplink_spark.zone.reader import ZoneReader

STORE_HOST = encode_host("192.168.1.20", 10911)
BORN_HOST = encode_host("192.168.1.10", 50123)
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """What differs between the records of a test."""

    topic: str = "Vitals"
    body: bytes = b"{}"
    properties: Mapping[str, str] | bytes = b""
    sys_flag: int = 0
    born_ms: int = BORN_MS
    stored_ms: int = BORN_MS + 5
    queue_id: int = 0
    queue_offset: int = 0
    born_host: bytes = BORN_HOST
    store_host: bytes = STORE_HOST


def record_bytes(sample: Sample, log_offset: int) -> bytes:
    """Return one stored record."""
    stored = sample.properties if isinstance(sample.properties, bytes) else encode_properties(sample.properties)
    message = Message(
        sample.topic,
        sample.queue_id,
        sample.body,
        stored,
        flag=7,
        sys_flag=sample.sys_flag,
        born_ms=sample.born_ms,
        born_host=sample.born_host,
    )
    topic = encode_topic(sample.topic)
    return encode_record(
        message, topic, sample.queue_offset, log_offset, stored_ms=sample.stored_ms, store_host=sample.store_host
    )


def records(samples: Iterable[Sample], start: int = 0) -> list[bytes]:
    """Return the records of the samples, one after the other from log offset start."""
    made: list[bytes] = []
    at = start
    for sample in samples:
        made.append(record_bytes(sample, at))
        at += len(made[-1])
    return made


def size_index(made: Iterable[bytes]) -> bytes:
    sizes = [len(record) for record in made]
    return struct.pack(f"<{len(sizes)}I", *sizes)


def raw_piece(
    made: list[bytes], *, start: int = 0, box: str = "box-17", seq: int = 0, indexed: bool = True
) -> RawPiece:
    """Return the records as one landed piece whose whole range is used."""
    raw = b"".join(made)
    origin = Origin(box, 0x0123456789ABCDEF, 0, seq, start, start + len(raw), BORN_MS + 900, True)
    return RawPiece(origin, raw, size_index(made) if indexed else None)


def source_of(box: str) -> PieceSource:
    return PieceSource(box=box, epoch=5, run=7, run_start=0, cut_ms=BORN_MS, clock_ok=1)


class Fleet:
    """Lands numbered records of some boxes and knows what must come out."""

    def __init__(self, landing: MadeLanding) -> None:
        self.landing, self._ends, self.expected = landing, Counter[str](), Counter[tuple[str, bytes]]()
        self._landed_ms = BORN_MS

    def land(self, box: str, count: int, *, topic: str = "Vitals", later_ms: int = 1000) -> None:
        records = [MadeRecord(topic=topic, body=b"%s %d" % (box.encode(), self._next(box))) for _ in range(count)]
        piece = log_piece(records, self._ends[box], source=source_of(box))
        self._landed_ms += later_ms
        self.landing.land(piece, now_ms=self._landed_ms)
        self._ends[box] = piece[0].end

    def _next(self, box: str) -> int:
        number = sum(1 for found, _ in self.expected if found == box)
        self.expected[(box, b"%s %d" % (box.encode(), number))] += 1
        return number

    def end(self, box: str) -> int:
        return self._ends[box]


def in_table(root: str) -> Counter[tuple[str, bytes]]:
    """What is in the table, read with the Delta library alone."""
    opened = Table(root).open()
    if opened is None:
        return Counter()
    rows = opened.to_pyarrow_table(filters=[("part", "=", "data")], columns=["box", "body"])
    return Counter(zip(rows["box"].to_pylist(), rows["body"].to_pylist(), strict=True))


def landed_items(landing: object) -> list[tuple[int, bytes]]:
    """Return (shard, encoded entry) of everything in a landing zone of one shard."""
    zone = ZoneReader(str(landing))
    return [(0, entry.encode()) for entry in zone.entries({0: 0}, zone.ends())]
