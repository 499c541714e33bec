"""What POP writes to its journal: one record per change of a queue. Sans I/O.

    Q  number u32, next i64, queue id u32, length of group u16, length of topic u16, both in UTF-8: a queue is known
    T  number u32, pop_ms i64, due_ms i64, next i64, deliveries u16, order u8, count u16, offsets i64: a take, a renewal
    D  number u32, count u16, offsets i64: done
    C  number u32, start i64, length of topic u16, count u16, topic, offsets i64: about to be stored again in queue 0 of
       that topic, not before `start`; done if a copy is there
    R  number u32, next i64: a reset
    F  number u32, floor i64: what is below was consumed by others
    X  number u32: forgotten

Records are whole inside a frame whose checksum was right, so one that cannot be read is of a later version.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, pack, unpack_from

from appliance.broker.pop.pop_queue import CopyPlace, PopKey, PopQueue, Take
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

_QUEUE, _TAKE, _DONE = Struct(">cIqIHH"), Struct(">cIqqqHBH"), Struct(">cIH")
_COPYING, _AT, _FORGOTTEN = Struct(">cIqHH"), Struct(">cIq"), Struct(">cI")
MOST_DELIVERIES = 65_535  # what has come again more often counts as so often


class RecordUnknown(ValueError):
    """A record that this version cannot read."""


class OpenedRecord(NamedTuple):
    """Q"""

    number: int
    start: int
    key: PopKey


class TakenRecord(NamedTuple):
    """T"""

    number: int
    pop_ms: int
    due_ms: int
    following: int
    deliveries: int
    order: bool
    offsets: tuple[int, ...]


class DoneRecord(NamedTuple):
    """D"""

    number: int
    offsets: tuple[int, ...]


class CopyingRecord(NamedTuple):
    """C"""

    number: int
    place: CopyPlace
    offsets: tuple[int, ...]


class ResetRecord(NamedTuple):
    """R"""

    number: int
    start: int


class FloorRecord(NamedTuple):
    """F"""

    number: int
    floor: int


class ForgottenRecord(NamedTuple):
    """X"""

    number: int


PopRecord = OpenedRecord | TakenRecord | DoneRecord | CopyingRecord | ResetRecord | FloorRecord | ForgottenRecord


def opened(queue: PopQueue) -> bytes:
    """Return the record of a queue that begins where it stands."""
    group, topic = queue.key.group.encode(), queue.key.queue.topic.encode()
    head = _QUEUE.pack(b"Q", queue.number, queue.next, queue.key.queue.queue_id, len(group), len(topic))
    return head + group + topic


def taken(take: Take, offsets: Sequence[int] | None = None) -> bytes:
    """Return the record of a take, or of what is left of it."""
    offsets = take.offsets if offsets is None else offsets
    queue, count = take.queue, len(offsets)
    deliveries = min(take.deliveries, MOST_DELIVERIES)
    head = (b"T", queue.number, take.pop_ms, take.due_ms, queue.next, deliveries, take.order, count)
    return _TAKE.pack(*head) + pack(f">{count}q", *offsets)


def done(queue: PopQueue, offsets: Sequence[int]) -> bytes:
    """Return the record of messages that need nothing more."""
    return _DONE.pack(b"D", queue.number, len(offsets)) + pack(f">{len(offsets)}q", *offsets)


def copying(queue: PopQueue, offsets: Sequence[int], place: CopyPlace) -> bytes:
    """Return the record of messages that are about to be stored again."""
    topic = place.topic.encode()
    head = _COPYING.pack(b"C", queue.number, place.start, len(topic), len(offsets))
    return head + topic + pack(f">{len(offsets)}q", *offsets)


def reset(queue: PopQueue) -> bytes:
    """Return the record of a queue that was reset to where it stands."""
    return _AT.pack(b"R", queue.number, queue.next)


def floor_moved(queue: PopQueue) -> bytes:
    """Return the record of what others of the group consumed."""
    return _AT.pack(b"F", queue.number, queue.floor)


def forgotten(queue: PopQueue) -> bytes:
    """Return the record of a queue whose topic or group is gone."""
    return _FORGOTTEN.pack(b"X", queue.number)


def snapshot(queues: Iterable[PopQueue]) -> list[bytes]:
    """Return records that amount to these queues, a payload per queue."""
    payloads = []
    for queue in queues:
        takes: dict[Take, list[int]] = {}
        ended = []
        for offset, take in queue.in_flight.items():
            if take is None:
                ended.append(offset)
            else:
                takes.setdefault(take, []).append(offset)
        parts = [opened(queue), *(taken(take, offsets) for take, offsets in takes.items())]
        for offset in ended:  # due at once after a restart
            again = Take(queue, (offset,), 0, (0, 0.0))
            again.order, again.deliveries = offset in queue.again, max(queue.again.get(offset, 0) - 1, 0)
            parts.append(taken(again))
            if offset in queue.copying:
                parts.append(copying(queue, (offset,), queue.copying[offset]))
        payloads.append(b"".join(parts))
    return payloads


def read_records(payload: bytes) -> Iterator[PopRecord]:
    """Yield the records of a frame. Raises RecordUnknown."""
    at = 0
    while at < len(payload):
        record, at = _read(payload, at)
        yield record


def _read(raw: bytes, at: int) -> tuple[PopRecord, int]:
    kind = raw[at : at + 1]
    if kind == b"T":
        _, number, pop_ms, due_ms, following, deliveries, order, count = _TAKE.unpack_from(raw, at)
        at += _TAKE.size
        offsets = unpack_from(f">{count}q", raw, at)
        return TakenRecord(number, pop_ms, due_ms, following, deliveries, bool(order), offsets), at + 8 * count
    if kind == b"D":
        _, number, count = _DONE.unpack_from(raw, at)
        at += _DONE.size
        return DoneRecord(number, unpack_from(f">{count}q", raw, at)), at + 8 * count
    if kind == b"Q":
        _, number, start, queue_id, group, topic = _QUEUE.unpack_from(raw, at)
        at += _QUEUE.size
        names = raw[at : at + group + topic]
        queue = MessageQueue(names[group:].decode(), queue_id)
        return OpenedRecord(number, start, PopKey(names[:group].decode(), queue)), at + group + topic
    if kind == b"C":
        _, number, start, length, count = _COPYING.unpack_from(raw, at)
        at += _COPYING.size
        place = CopyPlace(raw[at : at + length].decode(), start)
        offsets = unpack_from(f">{count}q", raw, at + length)
        return CopyingRecord(number, place, offsets), at + length + 8 * count
    if kind == b"R":
        return ResetRecord(*_AT.unpack_from(raw, at)[1:]), at + _AT.size
    if kind == b"F":
        return FloorRecord(*_AT.unpack_from(raw, at)[1:]), at + _AT.size
    if kind == b"X":
        return ForgottenRecord(*_FORGOTTEN.unpack_from(raw, at)[1:]), at + _FORGOTTEN.size
    raise RecordUnknown(f"record {kind!r} at byte {at}")
