"""From the log to a piece: read durable bytes, walk them, wrap them. Blocks; belongs in a thread.

A mismatch in durable bytes is disk damage: what is up to the next good record goes as a `blob`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from uplink_spark.box.cutting.body_check import first_damaged
from uplink_spark.box.cutting.scan import MAGIC_V1, MAGIC_V2, Scan, pack_index, record_fields, scan_records
from uplink_spark.errors import RecordsBad
from uplink_spark.wire.batch import (
    MAX_RAW_BYTES,
    MIN_RECORD_BYTES,
    PieceContents,
    PieceHeader,
    PieceSource,
    encode_piece,
)
from uplink_spark.wire.frames import FrameType, encode_frame

ReadLog = Callable[[int, int], bytes]
REPLACED = "\ufffd"  # in the name of a topic that is not UTF-8
MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class LogFile(Protocol):
    """A file of the CommitLog: where it begins, how large it will be."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def path(self) -> Path: ...


def yield_control() -> None:
    """Hand the interpreter to a thread that waits for it."""
    time.sleep(0)


@dataclass(frozen=True, slots=True)
class CutOrder:
    """One piece to cut from [start, limit); it ends at a record, at the limit or with the file."""

    source: PieceSource
    start: int
    limit: int  # durable end, hole end, run start, origin or switch: never inside a record of a sound log
    file_end: int  # of the CommitLog file that holds start
    max_bytes: int
    codec: str
    skip: tuple[str, ...] = ()
    pick: tuple[str, ...] = ()  # not empty: a piece of the express lane
    as_blob: bool = False  # the range was refused again and again: send it unparsed


@dataclass(frozen=True, slots=True)
class CutPiece:
    """A piece ready to leave."""

    header: PieceHeader
    frame: bytes
    sizes: bytes = b""  # of its records, little-endian u32: where a refused range can be halved
    damage: str | None = None  # set when durable bytes were no records


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece will hold, read and walked; to compress and hash it needs neither the log nor the interpreter."""

    order: CutOrder
    contents: PieceContents
    sizes: bytes = b""
    damage: str | None = None

    def wrap(self) -> CutPiece:
        """Return the piece. Blocks."""
        header, container = encode_piece(self.order.source, self.contents, self.order.codec)
        return CutPiece(header, encode_frame(FrameType.PIECE, container), self.sizes, self.damage)


def cut_piece(read: ReadLog, order: CutOrder) -> CutPiece:
    """Return the next piece of the order. Raises OSError when the log cannot be read."""
    return take_piece(read, order).wrap()


def take_piece(read: ReadLog, order: CutOrder) -> Taken:
    """Return what the next piece of the order holds. Raises OSError when the log cannot be read."""
    raw = _read(read, order.start, min(order.max_bytes, order.limit - order.start))
    if order.as_blob:
        return _blob(order, raw[:MAX_RAW_BYTES], "refused repeatedly as bad records")
    scan = scan_records(raw, order.start, order.max_bytes, yield_control)
    if not scan.sizes and not scan.blank and not scan.fault:  # one record larger than a piece
        raw = _read(read, order.start, min(MAX_RAW_BYTES, order.limit - order.start))
        scan = scan_records(raw, order.start, order.max_bytes, yield_control)
    scan = _sound(raw, order, scan)
    end = order.start + scan.length
    fault = scan.fault
    if scan.blank:
        fault = None if end + scan.blank == order.file_end else f"a blank of {scan.blank} bytes at {end}"
        end = order.file_end if fault is None else end
    if end > order.start:
        return _log_piece(order, raw, scan, end)
    fault = fault or f"a record at {order.start} that is not whole below {order.limit}"
    return _blob(order, _bad_bytes(read, order), fault)


def readable_end(raw: bytes, order: CutOrder) -> int | None:
    """Return where a piece of these bytes ends that begins an order, None when they hold no whole record."""
    scan = _sound(raw, order, scan_records(raw, order.start, len(raw), yield_control))
    if scan.blank:
        return order.start + len(raw)
    return order.start + scan.length if scan.sizes else None


def _sound(raw: bytes, order: CutOrder, scan: Scan) -> Scan:
    """Return the walk up to the first record whose body or topic is not what was stored."""
    bad, what = first_damaged(raw, scan.sizes, yield_control), "the body of the record at {} does not match its CRC"
    if any(REPLACED in topic for topic in scan.topics):
        illegible = _first_illegible(raw, scan.sizes)
        if illegible is not None and (bad is None or illegible < bad):
            bad, what = illegible, "the topic of the record at {} is not UTF-8"
    if bad is None:
        return scan
    good = sum(scan.sizes[:bad])
    before = scan_records(raw[:good], order.start, good, yield_control) if good else Scan(0, [], 0, 0, {})
    return replace(before, blank=0, fault=what.format(order.start + good))


def _first_illegible(raw: bytes, sizes: Sequence[int]) -> int | None:
    """Return the first record whose topic is not UTF-8."""
    at = 0
    for number, size in enumerate(sizes):
        try:
            record_fields(raw, at, size, None)[2].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return number
        at += size
    return None


def _read(read: ReadLog, start: int, length: int) -> bytes:
    """Read until the length is there or the log gives no more."""
    parts, got = [], 0
    while got < length:
        part = read(start + got, length - got)
        if not part:
            break
        parts.append(part)
        got += len(part)
    if not got:
        raise OSError(f"the log returned no bytes at {start}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _log_piece(order: CutOrder, raw: bytes, scan: Scan, end: int) -> Taken:
    if order.pick:
        return _pick_piece(order, raw, scan, end)
    sizes = scan.index()
    whole = memoryview(raw)[: scan.length]
    contents = PieceContents(
        "log", order.start, end, whole, sizes, scan.stored_ms_min, scan.stored_ms_max, scan.topics, skip=order.skip
    )
    return Taken(order, contents, sizes)


def _pick_piece(order: CutOrder, raw: bytes, scan: Scan, end: int) -> Taken:
    """Select the records of the express topics of a scanned range."""
    wanted = {topic.encode() for topic in order.pick}
    parts: list[bytes] = []
    times: list[int] = []
    topics: dict[str, tuple[int, int]] = {}
    at = 0
    for size in scan.sizes:
        _, stored_ms, topic, body_bytes = record_fields(raw, at, size, None)
        if topic in wanted:
            parts.append(raw[at : at + size])
            times.append(stored_ms)
            records, total = topics.get(topic.decode(), (0, 0))
            topics[topic.decode()] = (records + 1, total + body_bytes)
        at += size
    contents = PieceContents(
        "pick",
        order.start,
        end,
        b"".join(parts),
        pack_index([len(part) for part in parts]),
        min(times, default=0),
        max(times, default=0),
        topics,
        pick=order.pick,
    )
    return Taken(order, contents)


def _blob(order: CutOrder, raw: bytes, reason: str) -> Taken:
    contents = PieceContents("blob", order.start, order.start + len(raw), raw)
    return Taken(order, contents, damage=f"log offset {order.start}, {len(raw)} bytes: {reason}")


def _bad_bytes(read: ReadLog, order: CutOrder) -> bytes:
    """The bytes from start up to the next good record, the file's end or the limit."""
    end = min(order.limit, order.file_end, order.start + MAX_RAW_BYTES)
    raw = _read(read, order.start, end - order.start)
    at = next_record(raw, order.start, 1)
    return raw[:at] if at is not None else raw


def next_record(raw: bytes, start: int, at: int) -> int | None:
    """Return the first position from `at` on where a good record begins: both magics are looked for at any byte."""
    while True:
        hits = [hit for hit in (raw.find(magic, at + 4) for magic in MAGICS) if hit >= 0]
        if not hits:
            return None
        found = min(hits) - 4
        try:
            if found + MIN_RECORD_BYTES <= len(raw):
                record_fields(raw, found, len(raw) - found, start + found)
                return found
        except (RecordsBad, IndexError):
            pass
        at = found + 1


def drop_cache(files: Iterable[LogFile], start: int, end: int) -> None:
    """What was shipped long after it was written need not stay in the page cache. Blocks."""
    for file in files:
        if file.base <= start < file.base + file.size:
            fd = os.open(file.path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, start - file.base, end - start, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
