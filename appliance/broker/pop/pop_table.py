"""All queues of all groups that use POP: every change goes through here, into memory and into the journal.

Each change returns the mark of the journal that an answer about it waits for. Takes are bounded for each queue of a
group, for each owner (a client) and in all: at a bound a receiver finds nothing more until something is acknowledged.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Protocol

import trio

from appliance.broker.pop import pop_records as records
from appliance.broker.pop.pop_queue import CopyPlace, PopKey, PopQueue, Take
from appliance.broker.tables.shares import Shares
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

log = logging.getLogger("appliance.broker")

Handle = tuple[PopKey, int, int]
"""Queue of a group, queue offset, pop time in ms: what names one delivery of a message."""


FORGOTTEN_AT_ONCE, LOOK_S = 1024, 1.0
ALWAYS_ALLOWED = 1000  # messages in flight, and queues, of one address while there is room at all


class PopLimits(NamedTuple):
    """How many messages may be in flight, and how many queues of groups are known; of both each address has a share."""

    queue: int = 10_000  # as RocketMQ's popInflightMessageThreshold
    owner: int = 20_000
    all: int = 100_000  # some 200 bytes each
    queues: int = 50_000


class PopOffsets(Protocol):
    """The consumer offsets of groups; a negative one is not stored."""

    def get(self, group: str, topic: str, queue_id: int) -> int: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...
    def note_given(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...


class PopJournal(Protocol):
    """Takes records; `add` returns the mark under which one is durable."""

    def add(self, entry: bytes, /) -> int: ...


class Renewed(NamedTuple):
    """A message in flight got another time."""

    pop_ms: int
    due_ms: int
    mark: int


class PopTable:
    """PopKey -> PopQueue, and what is due when."""

    def __init__(
        self,
        journal: PopJournal,
        offsets: PopOffsets,
        *,
        now_ms: Callable[[], int],
        limits: PopLimits = PopLimits(),  # noqa: B008
    ) -> None:
        self.limits, self.in_flight = limits, 0
        self.sooner = trio.Event()  # set when something is due earlier than anything before it
        self._journal, self._offsets, self._now_ms = journal, offsets, now_ms
        self._queues: dict[PopKey, PopQueue] = {}
        self._numbers, self._look_again_s = 0, float("-inf")
        self._due: list[Take] = []
        self._owners: dict[str, int] = {}
        self._taken, self._opened = Shares(ALWAYS_ALLOWED), Shares(ALWAYS_ALLOWED)
        self._interrupted: list[tuple[Take, int, CopyPlace]] = []

    # ---- queues

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, key: PopKey) -> PopQueue | None:
        """Return the queue, None while nobody received from it."""
        return self._queues.get(key)

    def all(self) -> Iterable[PopQueue]:
        """Return every queue; not to be changed meanwhile."""
        return self._queues.values()

    def open(self, key: PopKey, start: int, address: str = "") -> PopQueue:
        """Return a queue that becomes known, from an offset on. Raises Refused at the limit."""
        if self._has_no_room(address):
            self._forget_idle()
        if self._has_no_room(address):
            text = f"{len(self._queues)} queues of groups are consumed by POP; this address has its share of them"
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{text}, or all are used: delete unused groups")
        self._numbers += 1
        queue = self._queues[key] = PopQueue(key, self._numbers, start, address)
        self._opened.change(address, 1)
        self._journal.add(records.opened(queue))
        self._commit(queue)
        return queue

    def _has_no_room(self, address: str) -> bool:
        return not self._opened.room(address, self.limits.queues - len(self._queues))

    def _forget_idle(self) -> None:
        """Forget some queues of which the consumer offsets say as much; looked for again a second after in vain."""
        if trio.current_time() < self._look_again_s:
            return
        offset, found = self._offsets.get, list[PopKey]()
        for key, queue in self._queues.items():
            if queue.is_idle and offset(key.group, *key.queue) == queue.floor:
                found.append(key)
                if len(found) >= FORGOTTEN_AT_ONCE:
                    break
        if not found:
            self._look_again_s = trio.current_time() + LOOK_S
        self._forget(found)

    def forget(self, chosen: Callable[[PopKey], bool]) -> None:
        """Forget queues: their topic or group is gone."""
        self._forget([key for key in self._queues if chosen(key)])

    def _forget(self, keys: Iterable[PopKey]) -> None:
        for key in keys:
            queue = self._queues.pop(key)
            self._opened.change(queue.opened_by, -1)
            self._journal.add(records.forgotten(queue))
            self._count_takes(queue.in_flight.values())
            queue.reset(queue.next)

    def reset(self, key: PopKey, start: int) -> None:
        """A tool put the group elsewhere: what is in flight is forgotten, handles of it are no longer valid."""
        queue = self._queues.get(key)
        if queue is not None:
            self._count_takes(queue.in_flight.values())
            queue.reset(start)
            self._journal.add(records.reset(queue))
            self._commit(queue)

    def follow(self, queue: PopQueue) -> None:
        """Notice what members that pull have consumed: their commits are above the floor."""
        group, (topic, queue_id) = queue.key
        stored = self._offsets.get(group, topic, queue_id)
        if stored > queue.floor:
            takes = [queue.in_flight[offset] for offset in queue.in_flight if offset < stored]
            self._count_takes(takes)
            queue.move_floor(stored)
            self._journal.add(records.floor_moved(queue))

    # ---- messages

    def room(self, queue: PopQueue, owner: str, address: str = "") -> int:
        """Return how many messages may be taken from a queue now; those that come again in their place have theirs."""
        limits = self.limits
        return min(
            limits.queue - len(queue.in_flight) + len(queue.again),
            limits.owner - self._owners.get(owner, 0),
            self._taken.room(address, limits.all - self.in_flight),
        )

    def take(self, take: Take, following: int) -> int:
        """Messages were given out; return the mark of the journal."""
        queue, count = take.queue, len(take.offsets)
        self._count_takes([queue.in_flight.get(offset) for offset in take.offsets])  # of whoever lost an answer
        self.in_flight += count
        self._owners[take.owner] = self._owners.get(take.owner, 0) + count
        self._taken.change(take.address, count)
        queue.take(take, following)
        group, (topic, queue_id) = queue.key
        self._offsets.note_given(group, topic, queue_id, queue.next)
        self._push(take)
        return self._journal.add(records.taken(take))

    def pass_over(self, queue: PopQueue, following: int) -> None:
        """What is below an offset and not in flight was refused by the group's filter, or is gone."""
        queue.pass_over(following)
        self._commit(queue)

    def acknowledge(self, handle: Handle) -> int | None:
        """A message was consumed; return the mark of the journal, None for a handle that is not valid (any more)."""
        key, offset, pop_ms = handle
        queue = self._queues.get(key)
        take = queue.find(offset, pop_ms) if queue is not None else None
        if queue is None or take is None:
            return None
        self._count_takes((take,))
        if take.whole:
            queue.done_in_order(offset, take.deliveries)
        else:
            queue.done(offset)
        self._commit(queue)
        return self._journal.add(records.done(queue, (offset,)))

    def renew(self, handle: Handle, invisible_ms: int) -> Renewed | None:
        """Give a message another time from now on; None for a handle that is not valid (any more)."""
        key, offset, pop_ms = handle
        queue = self._queues.get(key)
        take = queue.find(offset, pop_ms) if queue is not None else None
        if queue is None or take is None:
            return None
        due = self.due_in(invisible_ms)
        renewed = Take(queue, (offset,), pop_ms, due, take.owner)
        renewed.order, renewed.whole, renewed.deliveries = take.order, take.whole, take.deliveries
        renewed.address = take.address
        queue.renew(renewed)
        self._push(renewed)
        return Renewed(pop_ms, due[0], self._journal.add(records.taken(renewed)))

    def due_in(self, invisible_ms: int) -> tuple[int, float]:
        """Return when a time that begins now is over: in ms of the wall, and in seconds of trio's clock."""
        return self._now_ms() + invisible_ms, trio.current_time() + invisible_ms / 1000

    # ---- expiry

    def next_due_s(self) -> float | None:
        """Return when the next take may be due, by trio's clock; None when nothing is in flight."""
        return self._due[0].due_s if self._due else None

    def expire(self, most: int) -> list[tuple[Take, list[int]]]:
        """Return takes whose time is over, with what is left of each; about `most` messages at a time."""
        found: list[tuple[Take, list[int]]] = []
        count, now_s = 0, trio.current_time()
        while self._due and self._due[0].due_s <= now_s and count < most:
            take = heappop(self._due)
            left = take.queue.expire(take)
            if left:
                self._count_takes([take] * len(left))
                found.append((take, left))
                count += len(left)
        return found

    def bring_again(self, queue: PopQueue, offset: int, deliveries: int) -> None:
        """An expired message is given out again from its place."""
        queue.bring_again(offset, deliveries)

    def copying(self, queue: PopQueue, offsets: Sequence[int], place: CopyPlace) -> int:
        """Expired messages are about to be stored again; return the mark after which they may be."""
        queue.copying |= dict.fromkeys(offsets, place)
        return self._journal.add(records.copying(queue, offsets, place))

    def moved(self, queue: PopQueue, offsets: Iterable[int]) -> None:
        """Expired messages are stored again, durably, or nothing is left of them."""
        offsets = [offset for offset in offsets if offset in queue.in_flight]
        for offset in offsets:
            queue.done(offset)
        if offsets:
            self._journal.add(records.done(queue, offsets))
        self._commit(queue)

    def take_interrupted(self) -> list[tuple[Take, int, CopyPlace]]:
        """Return, once, which messages a crash found being stored again, and where to look for the copies."""
        found, self._interrupted = self._interrupted, []
        return found

    # ---- journal

    def snapshot(self) -> list[bytes]:
        """Return records that amount to all queues, as payloads of frames."""
        return records.snapshot(self._queues.values())

    def load(self, payloads: Iterable[bytes], *, damaged: bool = False) -> list[str]:
        """Take over what an earlier run left; return what could not be read.

        If something is missing, nobody knows which messages between the others were done: groups begin at their
        consumer offsets, or before all that is known.
        """
        faults = []
        numbers: dict[int, PopQueue] = {}
        for payload in payloads:
            try:
                for record in records.read_records(payload):
                    self._apply(record, numbers)
            except (records.RecordUnknown, UnicodeDecodeError) as exc:
                faults.append(str(exc))
        for queue in self._queues.values():
            if damaged or faults:
                stored = self._offsets.get(queue.key.group, *queue.key.queue)
                queue.reset(stored if stored >= 0 else min(queue.in_flight, default=queue.floor))
            self._settle(queue)
        return faults

    def _apply(self, record: records.PopRecord, numbers: dict[int, PopQueue]) -> None:
        if isinstance(record, records.OpenedRecord):
            queue = numbers[record.number] = self._queues[record.key] = PopQueue(
                record.key, record.number, record.start
            )
            self._numbers = max(self._numbers, record.number)
            return
        queue_found = numbers.get(record.number)
        if queue_found is None:
            return  # its first record was damaged: the group begins at its consumer offset
        queue = queue_found
        if isinstance(record, records.TakenRecord):
            take = Take(queue, record.offsets, record.pop_ms, self._due_again(record))
            take.order, take.deliveries = record.order, record.deliveries
            for offset in record.offsets:
                queue.copying.pop(offset, None)
            queue.take(take, record.following)
        elif isinstance(record, records.DoneRecord):
            for offset in record.offsets:
                queue.in_flight.pop(offset, None)
        elif isinstance(record, records.CopyingRecord):
            queue.copying |= dict.fromkeys(record.offsets, record.place)
        elif isinstance(record, records.ResetRecord):
            queue.reset(record.start)
        elif isinstance(record, records.FloorRecord):
            queue.move_floor(record.floor)
        else:
            self._queues.pop(queue.key, None)

    def _due_again(self, record: records.TakenRecord) -> tuple[int, float]:
        """Return when a take is due after a start; never later than it was for, also by a clock that is behind."""
        now_ms = self._now_ms()
        rest_ms = max(0, min(record.due_ms - now_ms, record.due_ms - record.pop_ms))
        return now_ms + rest_ms, trio.current_time() + rest_ms / 1000

    def _settle(self, queue: PopQueue) -> None:
        """Count and schedule what is in flight after a start."""
        for offset, place in list(queue.copying.items()):
            take = queue.in_flight.get(offset)
            if take is None:
                del queue.copying[offset]
            else:
                queue.in_flight[offset] = None  # its time was over
                self._interrupted.append((take, offset, place))
        queue.floor = min(queue.in_flight, default=queue.next)
        takes = {take for take in queue.in_flight.values() if take is not None}
        for take in takes:
            self._push(take)
        count = sum(take is not None for take in queue.in_flight.values())
        self.in_flight += count
        self._owners[""] = self._owners.get("", 0) + count
        self.follow(queue)
        self._commit(queue)

    # ---- within

    def _push(self, take: Take) -> None:
        heappush(self._due, take)
        if self._due[0] is take:
            self.sooner.set()
        if len(self._due) > 1024 + 4 * self.in_flight:  # most of them were renewed or acknowledged
            self._due = [take for take in self._due if any(take.queue.in_flight.get(o) is take for o in take.offsets)]
            heapify(self._due)

    def _count_takes(self, takes: Iterable[Take | None]) -> None:
        """These are no longer in flight, one message each."""
        owners = self._owners
        for take in takes:
            if take is not None:
                self.in_flight -= 1
                self._taken.change(take.address, -1)
                left = owners.get(take.owner, 0) - 1
                if left > 0:
                    owners[take.owner] = left
                else:
                    owners.pop(take.owner, None)

    def _commit(self, queue: PopQueue) -> None:
        if self._queues.get(queue.key) is not queue:
            return  # forgotten since: a new topic of that name has offsets of its own
        group, (topic, queue_id) = queue.key
        if self._offsets.get(group, topic, queue_id) != queue.floor:
            with suppress(Refused):  # a full table: the journal knows
                self._offsets.commit(group, topic, queue_id, queue.floor)


def key_of(group: str, topic: str, queue_id: int) -> PopKey:
    """Return the key of a group's queue."""
    return PopKey(group, MessageQueue(topic, queue_id))
