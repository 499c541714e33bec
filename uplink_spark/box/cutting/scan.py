"""The walk over raw record bytes as the box does it: sizes, times and topics of whole records, nothing but the library.

A record of the CommitLog (RocketMQ 4.9.8 MessageDecoder.decode): size, magic, body CRC, queue id, flag, queue offset,
log offset at 28, sysFlag at 36, born time at 40, born host, store time, store host, ... body, topic, properties.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uplink_spark.errors import RecordsBad

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
BORN_V6, STORE_V6 = 0x10, 0x20
_HEAD = struct.Struct(">II20xqi")  # size, magic, log offset at 28, sysFlag at 36
_COMMON = struct.Struct(">II20xqi16xq20xI")  # the same, then store time at 56 and body length at 84: IPv4 hosts
_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
_PAIR = struct.Struct(">II")
_V1 = MAGIC_V1.to_bytes(4, "big")
HEAD_BYTES = 76  # up to the store time of a record with IPv6 hosts
STRETCH_BYTES = 128 << 10  # about 400 records of 300 bytes: 0.25 ms
FEW = 8  # records: not worth looking whether they are alike
SIZE_MAGIC, PLACE, SYS_FLAG, STORED_MS, BODY_BYTES = (
    range(8),
    range(28, 36),
    range(36, 40),
    range(56, 64),
    range(84, 88),
)


def pack_index(sizes: Sequence[int]) -> bytes:
    """Return the size index of a piece: little-endian u32."""
    return struct.pack(f"<{len(sizes)}I", *sizes)


@dataclass(frozen=True, slots=True)
class Scan:
    """Whole records at the beginning of a buffer, up to the end, a blank, a limit or a fault."""

    length: int  # bytes of whole records
    sizes: list[int]
    stored_ms_min: int
    stored_ms_max: int
    topics: dict[str, tuple[int, int]]
    blank: int = 0  # size of the blank that follows, 0 if none does
    fault: str | None = None  # why the next bytes are no record, None at the end or where more bytes are needed

    def index(self) -> bytes:
        return pack_index(self.sizes)


def record_fields(data: bytes, at: int, left: int, log_offset: int | None) -> tuple[int, int, bytes, int]:
    """Return size, store time, topic and body length of the record at data[at]; log_offset None: not compared.

    Raises RecordsBad. Reads at most `left` bytes; the caller has made sure that the whole record may be there.
    """
    size, magic, place, sys_flag = _HEAD.unpack_from(data, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordsBad(at, f"magic {magic:08x}")
    if size > left or size < 91:
        raise RecordsBad(at, f"size {size} with {left} bytes left")
    if log_offset is not None and place != log_offset:
        raise RecordsBad(at, f"log-offset field {place}, position {log_offset}")
    stored_at = at + (68 if sys_flag & BORN_V6 else 56)
    body_at = stored_at + (40 if sys_flag & STORE_V6 else 28)
    (stored_ms,) = _U64.unpack_from(data, stored_at)
    end = at + size
    if body_at + 4 > end:
        raise RecordsBad(at, f"size {size} ends inside the fixed fields")
    (body_bytes,) = _U32.unpack_from(data, body_at)
    topic_at = body_at + 4 + body_bytes + (1 if magic == MAGIC_V1 else 2)
    if topic_at + 2 > end:
        raise RecordsBad(at, f"body of {body_bytes} bytes in a record of {size}")
    topic_bytes = data[topic_at - 1] if magic == MAGIC_V1 else (data[topic_at - 2] << 8) + data[topic_at - 1]
    rest_at = topic_at + topic_bytes
    if rest_at + 2 > end or rest_at + 2 + (data[rest_at] << 8) + data[rest_at + 1] != end:
        raise RecordsBad(at, "lengths do not add up to the record's size")
    return size, stored_ms, data[topic_at:rest_at], body_bytes


def stored_ms_of(head: bytes, log_offset: int) -> int | None:
    """Return the store time in the first HEAD_BYTES of a record, None where no record of this offset begins."""
    if len(head) < HEAD_BYTES:
        return None
    _, magic, place, sys_flag = _HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or place != log_offset:
        return None
    (stored_ms,) = _U64.unpack_from(head, 68 if sys_flag & BORN_V6 else 56)
    return int(stored_ms)


def _topics_of(bodies: dict[bytes, list[int]]) -> dict[str, tuple[int, int]]:
    topics: dict[str, tuple[int, int]] = {}
    for name, lengths in bodies.items():
        text = name.decode("utf-8", "replace")
        records, body_bytes = topics.get(text, (0, 0))
        topics[text] = (records + len(lengths), body_bytes + sum(lengths))
    return topics


def go_on() -> None:
    """Nothing to do between two stretches of records."""


def scan_records(data: bytes, start: int, max_bytes: int, yield_control: Callable[[], object] = go_on) -> Scan:
    """Walk the records in data, whose first byte has log offset start; at least one record, else at most max_bytes.

    Stops in front of a blank, of a record that is not whole in data, of bytes that are no record (`fault`). The loop,
    0.5 us a record, knows IPv4 and version 1. yield_control: every STRETCH_BYTES, for who waits for the interpreter.
    """
    sizes, times, lengths = list[int](), list[int](), list[int]()
    bodies, known = dict[bytes, list[int]](), None  # known: the topic whose body lengths `lengths` are
    at, total, fault, blank, rest_at = 0, len(data), None, 0, 0
    last, unpack = min(total, max(max_bytes, 0)), _COMMON.unpack_from
    while at + 91 <= total:
        if at >= rest_at:
            yield_control()
            if same := _alike(data, start, at, min(at + STRETCH_BYTES, last)):
                sizes += [same.size] * same.count
                times += same.stored_ms
                bodies.setdefault(same.topic, []).extend([same.body_bytes] * same.count)
                at = rest_at = at + same.size * same.count
                continue
            rest_at = at + STRETCH_BYTES
        size, magic, place, sys_flag, stored_ms, body_bytes = unpack(data, at)
        end, topic_at = at + size, at + 89 + body_bytes
        if end > last and (at or end > total):
            break
        if magic != MAGIC_V1 or place != start + at or sys_flag & 0x30 or topic_at + 2 > end:
            size, stored_ms, topic, body_bytes, blank, fault = _other_record(data, at, start)
            if not size:
                break
            end = at + size
        else:
            topic = data[topic_at : topic_at + data[topic_at - 1]]
        if topic != known:
            known, lengths = topic, bodies.setdefault(topic, [])
        lengths.append(body_bytes)
        sizes.append(size)
        times.append(stored_ms)
        at = end
    if not blank and fault is None and at + 8 <= total and (not sizes or at < last):
        blank, fault = _what_stops(data, at)
    return Scan(at, sizes, min(times, default=0), max(times, default=0), _topics_of(bodies), blank, fault)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Neighbours of one size, topic and body length."""

    count: int
    size: int
    topic: bytes
    body_bytes: int
    stored_ms: tuple[int, int]  # smallest, largest


def _alike(data: bytes, start: int, at: int, limit: int) -> _Alike | None:
    """Return all records of [at, limit) that are whole when they are alike, else None; the checks are the loop's.

    Messages of a fixed layout are: the bytes at one place of each, taken with a stride, cost half of what the loop
    does. Others are known by the last of them, at no cost to speak of.
    """
    size, _, _, sys_flag, _, body_bytes = _COMMON.unpack_from(data, at)
    count = (limit - at) // max(size, 91)
    end, topic_at = at + size * count, at + 89 + body_bytes
    if count < FEW or size < 91 or sys_flag & 0x30 or topic_at + 2 > at + size:
        return None
    if data[at + 4 : at + 8] != _V1 or data[at : at + 8] != data[end - size : end - size + 8]:
        return None
    topic = data[topic_at : topic_at + data[topic_at - 1]]
    name = range(88 + body_bytes, 89 + body_bytes + len(topic))
    for constant in (name, BODY_BYTES, SIZE_MAGIC, SYS_FLAG):
        for byte in constant:
            if data[at + byte : end : size] != data[at + byte : at + byte + 1] * count:
                return None
    places = _big_endian(array("q", range(start + at, start + end, size))).tobytes()
    if any(data[at + byte : end : size] != places[nth::8] for nth, byte in enumerate(PLACE)):
        return None
    columns = bytearray(8 * count)
    for nth, byte in enumerate(STORED_MS):
        columns[nth::8] = data[at + byte : end : size]
    stored_ms = _big_endian(array("q", bytes(columns)))
    return _Alike(count, size, topic, body_bytes, (min(stored_ms), max(stored_ms)))


def _big_endian(numbers: array[int]) -> array[int]:
    """Turn numbers of this machine to the log's order of bytes or back."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _other_record(data: bytes, at: int, start: int) -> tuple[int, int, bytes, int, int, str | None]:
    """Return size, store time, topic, body length of a record of another shape; size 0: a blank or a fault."""
    blank, fault = _what_stops(data, at)
    if blank or fault:
        return 0, 0, b"", 0, blank, fault
    try:
        return (*record_fields(data, at, len(data) - at, start + at), 0, None)
    except RecordsBad as error:
        return 0, 0, b"", 0, 0, error.reason


def _what_stops(data: bytes, at: int) -> tuple[int, str | None]:
    """Return the size of the blank at data[at], or why no record begins there; (0, None): one may."""
    size, magic = _PAIR.unpack_from(data, at)
    if magic == MAGIC_BLANK:
        return size, None
    if magic not in (MAGIC_V1, MAGIC_V2) or size < 91:
        return 0, f"size {size}, magic {magic:08x}"
    return 0, None
