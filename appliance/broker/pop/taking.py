"""Takes messages of one queue for a receiver: the next ones that it wants, or those that come again in their place.

Source: RocketMQ 5.5.0 PopMessageProcessor.popMsgFromQueue, getInitOffset.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from appliance.broker.consume.reading import MAX_BYTES, FilteredReader, Room
from appliance.broker.filter.subscriptions import BODY_AT, HOSTS_V6, AcceptsRecord, AcceptsTags, split_records
from appliance.broker.intake import MOST_TIMES
from appliance.broker.pop.pop_queue import PopKey, PopQueue, Take
from appliance.broker.pop.pop_table import PopTable
from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.tables.offsets import OffsetTable
from storage_driver.interfaces import Reading
from storage_driver.named_tuple import NamedTuple
from storage_driver.reading import FoundStatus, ReadRequest
from storage_driver.record import MessageQueue

MOST_ATTEMPT_ID = 64  # characters; what is behind them is not looked at: it would stay as long as a receiver waits


class GotStats(Protocol):
    """Counters of what consumers get."""

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None: ...


class PopRequest(NamedTuple):
    """What a receiver asks for; all has been checked.

    `queue_id` -1: any queue of the topic. `from_end`: where a group without an offset begins. `poll_s`: how long to
    wait for a first message. `owner`: whose messages are counted together, a client; `address`: who has a share of what
    all may have in flight, empty for this machine. `order`: nothing of a queue that
    has messages in flight; a receiver that lost the answer gets them again with the same `attempt_id`. `in_groups`: the
    order is that of message groups, so what was acknowledged does not come again behind what was not. `weigh`: a
    record's bytes in the answer.
    """

    group: str
    topic: str
    queue_id: int
    most: int
    invisible_ms: int
    poll_s: float = 0.0
    accepts: AcceptsTags | None = None
    accepts_record: AcceptsRecord | None = None
    from_end: bool = False
    owner: str = ""
    order: bool = False
    attempt_id: str = ""
    in_groups: bool = False
    address: str = ""
    weigh: Callable[[bytes], int] = len


class PopSlice(NamedTuple):
    """What was taken from one queue: records, their queue offsets, rising, and how often each was delivered
    before, if it is ordered; else the record says so.

    `mark`: of the journal; the take is durable from there on.
    """

    kind: TopicKind
    queue: MessageQueue
    records: list[bytes]
    offsets: list[int]
    deliveries: list[int]
    mark: int


class Left(NamedTuple):
    """What a receiver may still take: so many messages, about so many bytes."""

    messages: int
    size: int
    pop_ms: int

    @property
    def is_any(self) -> bool:
        return self.messages > 0 and self.size > 0

    def less(self, records: Sequence[bytes], weigh: Callable[[bytes], int] = len) -> "Left":
        """Return what is left after some were taken."""
        return Left(self.messages - len(records), self.size - sum(map(weigh, records)), self.pop_ms)


class Found(NamedTuple):
    """Records, their queue offsets, and the first offset that is not looked at yet."""

    records: list[bytes]
    offsets: list[int]
    following: int


class Taking:
    """Takes from queues; one object per engine."""

    def __init__(
        self, store: Reading, reader: FilteredReader, table: PopTable, offsets: OffsetTable, stats: GotStats
    ) -> None:
        self._store, self._reader, self._table, self._offsets, self._stats = store, reader, table, offsets, stats

    async def take(
        self, wanted: PopRequest, place: tuple[TopicKind, PopKey], left: Left, room: Room
    ) -> PopSlice | None:
        """Take messages of one queue, None when there is nothing for the receiver. Raises Refused."""
        kind, key = place
        queue = self._table.get(key)
        if queue is None:
            start = await self._start(key, wanted, kind)
            queue = self._table.get(key) or self._table.open(key, start, wanted.address)
        self._table.follow(queue)
        if queue.busy:
            return None
        queue.busy = True
        try:
            same = self._same_attempt(queue, wanted) if wanted.order else []
            if wanted.order and not same:
                if queue.blocked:
                    return None
                if not wanted.in_groups:
                    queue.repeat_behind()
            if not same:
                left = left._replace(messages=min(left.messages, self._table.room(queue, wanted.owner, wanted.address)))
            if same:
                found = await self._read_again(queue, same[: max(left.messages, 0)], room)
            else:
                again = sorted(queue.again)[: max(left.messages, 0)]
                found = await self._read_again(queue, again, room, most=left.size, weigh=wanted.weigh)
                left = left.less(found.records, wanted.weigh)
                more = await self._read_next(queue, wanted, kind, left, room)
                found = Found(found.records + more.records, found.offsets + more.offsets, more.following)
            if not found.offsets or self._table.get(key) is not queue:
                return None
            return self._given(queue, wanted, kind, found, left.pop_ms)
        finally:
            queue.busy = False

    async def look(self, key: PopKey, wanted: PopRequest, kind: TopicKind, left: Left, room: Room) -> PopSlice | None:
        """Return what is next in a queue without taking it, None when there is nothing."""
        queue = self._table.get(key)
        start = queue.next if queue is not None else await self._start(key, wanted, kind)
        found = await self._reader.read(ReadRequest(key.queue, start, left.messages, left.size), room)
        records = [bytes(record) for chunk in found.chunks for record in split_records(chunk)]
        if not records:
            return None
        return PopSlice(kind, key.queue, records, [_offset_of(record) for record in records], [], 0)

    def _given(self, queue: PopQueue, wanted: PopRequest, kind: TopicKind, found: Found, pop_ms: int) -> PopSlice:
        """Note what was taken: messages that were delivered equally often are a take."""
        before = [self._deliveries(queue, offset) for offset in found.offsets]
        due, mark = self._table.due_in(wanted.invisible_ms), 0
        for deliveries in sorted(set(before)):
            offsets = [offset for offset, count in zip(found.offsets, before, strict=True) if count == deliveries]
            take = Take(queue, tuple(offsets), pop_ms, due, wanted.owner)
            take.deliveries, take.order, take.address = deliveries, wanted.order, wanted.address
            take.whole = wanted.order and not wanted.in_groups
            mark = self._table.take(take, found.following)
        if wanted.order:
            queue.attempt_id = wanted.attempt_id
        records = found.records
        if not wanted.order:  # an ordered answer tells
            records, before = list(map(again_for, records, before)), [0] * len(before)
        group, (topic, queue_id) = queue.key
        self._stats.got(group, topic, queue_id, len(records), sum(map(len, records)))
        return PopSlice(kind, queue.key.queue, records, found.offsets, before, mark)

    def _deliveries(self, queue: PopQueue, offset: int) -> int:
        """Return how often a message was delivered from its place before."""
        take = queue.in_flight.get(offset)
        return take.deliveries if take is not None else queue.again.get(offset, 0)

    def _same_attempt(self, queue: PopQueue, wanted: PopRequest) -> list[int]:
        """Return the batch of a receiver that lost its answer, nothing for any other."""
        if not wanted.attempt_id or queue.attempt_id != wanted.attempt_id:
            return []
        return sorted(offset for offset, take in queue.in_flight.items() if take is not None)

    async def _read_next(self, queue: PopQueue, wanted: PopRequest, kind: TopicKind, left: Left, room: Room) -> Found:
        """Return the next records that the receiver wants."""
        filters = (wanted.accepts, wanted.accepts_record) if kind is TopicKind.NORMAL else (None, None)
        while left.is_any:  # what comes again may have taken it all
            at = queue.next
            found = await self._reader.read(ReadRequest(queue.key.queue, at, left.messages, left.size, *filters), room)
            if self._table.get(queue.key) is not queue:  # its topic is gone
                break
            if queue.next != at:  # it was reset meanwhile
                continue
            if found.status is FoundStatus.FOUND:
                records = [bytes(record) for chunk in found.chunks for record in split_records(chunk)]
                read = Found(records, [_offset_of(record) for record in records], found.next_offset)
                return _fitting(read, left, wanted.weigh)
            if found.next_offset < at:  # the log was cut, or the topic deleted and made again
                self._table.reset(queue.key, found.next_offset)
            elif found.next_offset > at:
                self._table.pass_over(queue, found.next_offset)
            else:
                break
            await trio.lowlevel.checkpoint()
        return Found([], [], queue.next)

    async def _read_again(
        self,
        queue: PopQueue,
        offsets: Sequence[int],
        room: Room,
        *,
        most: float = math.inf,
        weigh: Callable[[bytes], int] = len,
    ) -> Found:
        """Return the records at these queue offsets, up to the one that fills `most` bytes; what is gone is done."""
        found: dict[int, bytes] = {}
        for offset in offsets:
            if found and most <= 0:
                break
            read = await self._reader.read(ReadRequest(queue.key.queue, offset, 1, MAX_BYTES), room)
            record = read.chunks[0] if read.chunks else b""
            if record and _offset_of(record) == offset:
                found[offset] = record
                most -= weigh(record)
            else:
                self._table.moved(queue, (offset,))
        there = [offset for offset in offsets if offset in found and offset in queue.in_flight]
        return Found([found[offset] for offset in there], there, queue.next)

    async def _start(self, key: PopKey, wanted: PopRequest, kind: TopicKind) -> int:
        """Return where a group begins that never received from a queue. Source: PopMessageProcessor.getInitOffset."""
        group, (topic, queue_id) = key
        self._offsets.take_reset(group, topic, queue_id)
        stored = self._offsets.get(group, topic, queue_id)
        if stored >= 0:
            return stored
        low, high = self._store.min_offset(key.queue), self._store.max_offset(key.queue)
        if not wanted.from_end or kind is not TopicKind.NORMAL:
            return low
        if low > 0 or high <= 0:
            return max(high - 1, 0)
        first = await self._store.read(key.queue, 0, max_count=1, max_bytes=1)
        return max(high - 1, 0) if first.suggest_slow else 0  # in memory, as Apache counts it: not far behind the end


def _fitting(found: Found, left: Left, weigh: Callable[[bytes], int]) -> Found:
    """Return as much as has room, the first record in any case; the rest was not looked at."""
    if weigh is len:  # what is read is of this size
        return found
    size = 0
    for number, record in enumerate(found.records):
        size += weigh(record)
        if number and size > left.size:
            return Found(found.records[:number], found.offsets[:number], found.offsets[number])
    return found


def again_for(record: bytes, times: int) -> bytes:
    """Return a whole record with so many more deliveries counted."""
    if not times:
        return record
    at = BODY_AT[record[39] & HOSTS_V6] - 16  # before prepared offset and length of the body
    counted = min(int.from_bytes(record[at : at + 4], "big", signed=True) + times, MOST_TIMES)
    return record[:at] + counted.to_bytes(4, "big", signed=True) + record[at + 4 :]


def _offset_of(record: bytes) -> int:
    """Return the queue offset of a whole record."""
    return int.from_bytes(record[20:28], "big")
