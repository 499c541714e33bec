"""Receive, acknowledge, renew, give up: what POP means, for every front door. Knows no wire.

A receiver takes messages of a group for a time; each is acknowledged by its handle, or comes again when the time is
over, never before. What a receiver was given and what was acknowledged is in the journal, on stable storage, before
anybody is told. A renewal moves the time and keeps the handle.
Source: RocketMQ 5.5.0 PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import trio

from appliance.broker.consume.reading import MAX_BYTES, FilteredReader, Room
from appliance.broker.intake import not_durable, refusals
from appliance.broker.pop.copies import Copies, CopyTables
from appliance.broker.pop.counts import PopCounts
from appliance.broker.pop.pop_queue import PopKey
from appliance.broker.pop.pop_table import Handle, PopTable, Renewed
from appliance.broker.pop.pop_waits import MOST_WAITING, PopReceiver, PopWaits
from appliance.broker.pop.retry_topics import TopicKind, first_topic, retry_topic
from appliance.broker.pop.revival import Revival
from appliance.broker.pop.taking import Left, PopRequest, PopSlice, Taking
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import TopicTable
from netstack.errors import Refused
from storage_driver.files.journal_file import JournalFile
from storage_driver.interfaces import Messages
from storage_driver.journal import Journal, JournalFailed
from storage_driver.log.marks import Wake
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

log = logging.getLogger("appliance.broker")

MOST_MESSAGES = 32  # of one receive
RETRY_FIRST = 0.2  # share of the receives that look at the retry topics first: RocketMQ popFromRetryProbability
PLACES_A_TURN = 32  # queues that one receiver looks at; then others have their turn, and of wide topics one receiver
FORWARD_MS = 60_000  # a message is not given to others while it is being stored among the dead letters


class PopStats(Protocol):
    """Counters of what consumers get, and of what is stored for them."""

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None: ...
    def put(self, topic: str, queue_id: int, count: int, size: int) -> None: ...


class PopTables(NamedTuple):
    """State that POP shares with the other ways to consume."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    arrivals: Arrivals
    stats: PopStats


class PopAnswer(NamedTuple):
    """What a receiver gets; `rest`: messages that are still to be had, about."""

    pop_ms: int
    slices: list[PopSlice]
    rest: int


class PollingFull(Exception):
    """Too many receivers wait already."""


class PopEngine:
    """One per broker, for all front doors."""

    def __init__(self, file: JournalFile, store: Messages, tables: PopTables, *, now_ms: Callable[[], int]) -> None:
        self._store, self._tables, self._now_ms = store, tables, now_ms
        self.journal = Journal(file, lambda: self.table.snapshot())
        self.table = PopTable(self.journal, tables.offsets, now_ms=now_ms)
        self.waits = PopWaits(tables.arrivals)
        self._wide = trio.Lock()
        reader = FilteredReader(store, tables.arrivals)
        self._taking = Taking(store, reader, self.table, tables.offsets, tables.stats)
        self._copies = Copies(store, CopyTables(tables.topics, tables.groups, tables.stats))
        self._revival = Revival(self.table, self._copies, store, self.journal.wait_synced, self._freed)
        tables.offsets.watchers.append(self)
        self._load()

    def _load(self) -> None:
        """Take over what an earlier run left. Damage prevents no start: groups then begin at their offsets."""
        try:
            found = self.journal.load()
        except OSError as exc:
            log.error("event=pop_journal_damaged reason=%r", str(exc))
            return
        faults = self.table.load(found.payloads, damaged=found.damage is not None)
        if found.damage is not None:
            faults.append(found.damage)
        for text in faults:
            log.error(
                "event=pop_journal_damaged reason=%r next_step='messages may be delivered again; check the disk'", text
            )
        if len(self.table):
            text = "event=pop_recovered queues=%d in_flight=%d torn_bytes=%d"
            log.info(text, len(self.table), self.table.in_flight, found.torn_bytes)

    async def run(self) -> None:
        """Write the journal and bring expired messages again until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.run)
            nursery.start_soon(self._revival.run)

    def counts(self) -> PopCounts:
        """Return counts for metrics."""
        journal, revived = self.journal, self._revival
        counts = (self.table.in_flight, self.waits.total(), revived.copied, revived.gone)
        return PopCounts(*counts, journal.size, journal.syncs)

    # ---- what front doors call

    async def receive(self, wanted: PopRequest, room: Room, *, parked: object = None) -> PopAnswer:
        """Take messages, waiting for the first if need be. Raises PollingFull, Refused.

        `parked`: whose parked pull this is while it waits; None: the caller counts it. The messages of an answer that
        is never delivered come again in time.
        """
        deadline_s = trio.current_time() + wanted.poll_s
        while True:
            answer = await self._collect(wanted, room)
            if answer.slices or trio.current_time() >= deadline_s:
                return answer
            await self._wait(wanted, deadline_s, parked)

    @staticmethod
    def handle(group: str, queue: MessageQueue, queue_offset: int, pop_ms: int) -> Handle:
        """Return what names a message that a group was given: its place, and `pop_ms` of the answer."""
        return PopKey(group, queue), queue_offset, pop_ms

    async def notice(self, wanted: PopRequest) -> bool:
        """Wait until a receiver would find something, and tell whether it does. Raises PollingFull."""
        deadline_s = trio.current_time() + wanted.poll_s
        while True:
            if self._is_wide(wanted):
                await self._turn()
            there = any(self._is_worth_it(wanted, key.queue, False) for _, key in self._places(wanted))
            if there or trio.current_time() >= deadline_s:
                self._wake_for_rest(wanted)  # who only looks takes nothing from those who receive
                return there
            await self._wait(wanted, deadline_s, None)

    async def peek(self, wanted: PopRequest, room: Room) -> PopAnswer:
        """Return what a receiver would get now, and take nothing."""
        slices, rest, left = list[PopSlice](), 0, Left(min(wanted.most, MOST_MESSAGES), MAX_BYTES, self._now_ms())
        for number, (kind, key) in enumerate(self._places(wanted), 1):
            if number % PLACES_A_TURN == 0:
                await self._turn()
            if left.messages > 0 and left.size > 0:
                found = await self._taking.look(key, wanted, kind, left, room)
                if found is not None:
                    slices.append(found)
                    left = left.less(found.records)
            rest += self._rest_of(key)
        return PopAnswer(left.pop_ms, slices, rest)

    def acknowledge(self, handle: Handle) -> int | None:
        """A message was consumed: return the mark to wait for, None when the handle is not valid (any more)."""
        mark = self.table.acknowledge(handle)
        if mark is not None:
            self._freed(handle[0])
        return mark

    @property
    def newest_mark(self) -> int:
        """The mark from which on all that was done so far is durable.

        A repeated acknowledgement waits for it: the first one may not have reached the disk yet.
        """
        return self.journal.newest

    def renew(self, handle: Handle, invisible_ms: int) -> Renewed | None:
        """Let a message come again that long from now on, 0: at once; None when the handle is not valid (any more)."""
        return self.table.renew(handle, invisible_ms)

    async def dead_letter(self, handle: Handle) -> bool:
        """Store a message among the dead letters of its group, durably, and acknowledge it. Raises Refused.

        False when the handle is not valid (any more).
        """
        key, offset, _ = handle
        if self.table.renew(handle, FORWARD_MS) is None:
            return False
        stored = await self._copies.find(key.queue, offset)
        if stored is not None:
            with refusals():
                placed = await self._copies.dead(key.group, stored)
                await self._store.wait_committed(placed.end)
        mark = self.acknowledge(handle)
        if mark is not None:
            await self.wait_synced(mark)
        return mark is not None

    def when_synced(self, mark: int, wake: Wake) -> None:
        """Call wake(None) once what has this mark survives a power cut, wake(reason) when it does not."""
        self.journal.when_synced(mark, wake)

    async def wait_synced(self, mark: int) -> None:
        """Return once what has this mark survives a power cut. Raises Refused."""
        try:
            await self.journal.wait_synced(mark)
        except JournalFailed as exc:
            raise not_durable(str(exc)) from exc

    # ---- what the consumer offsets tell

    def offset_moved(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """A tool put a group elsewhere."""
        key = PopKey(group, MessageQueue(topic, queue_id))
        if self.table.get(key) is not None:
            self._tables.offsets.take_reset(group, topic, queue_id)
            self.table.reset(key, queue_offset)
            self._freed(key)

    def offsets_dropped(self, group: str, topic: str) -> None:
        """A group or a topic was deleted."""
        self.table.forget(lambda key: key.group == group and key.queue.topic == topic)

    # ---- taking

    async def _collect(self, wanted: PopRequest, room: Room) -> PopAnswer:
        """Take what is there now, from the topic and its retry topics. Raises Refused, OSError."""
        answer = PopAnswer(self._now_ms(), [], 0)
        left, rest = Left(min(wanted.most, MOST_MESSAGES), MAX_BYTES, answer.pop_ms), 0
        try:
            for number, (kind, key) in enumerate(self._places(wanted), 1):
                if number % PLACES_A_TURN == 0:
                    await self._turn(has_some=bool(answer.slices))
                taken = await self._taking.take(wanted, (kind, key), left, room) if left.is_any else None
                if taken is not None:
                    answer.slices.append(taken)
                    left = left.less(taken.records, wanted.weigh)
                rest += self._rest_of(key)
        except (Refused, OSError):
            if not answer.slices:  # else what was taken is told: it is hidden from others, and its delivery counts
                raise
        finally:
            self._wake_for_rest(wanted)
        if answer.slices:
            await self.wait_synced(answer.slices[-1].mark)
        return answer._replace(rest=rest)

    def _is_wide(self, wanted: PopRequest) -> bool:
        topic = self._tables.topics.get(wanted.topic) if wanted.queue_id < 0 else None
        return topic is not None and topic.read_queues > PLACES_A_TURN

    async def _turn(self, *, has_some: bool = False) -> None:
        """Let all others go on, and one of those who look at many queues: a thousand of them would take seconds.

        Who has some messages already does not wait for a turn: their time runs.
        """
        if has_some:
            await trio.lowlevel.checkpoint()
            return
        async with self._wide:
            await trio.lowlevel.checkpoint()

    def _rest_of(self, key: PopKey) -> int:
        queue = self.table.get(key)
        return max(0, self._store.max_offset(key.queue) - (queue.next if queue is not None else 0))

    def _places(self, wanted: PopRequest) -> Iterator[tuple[TopicKind, PopKey]]:
        """Yield the queues to look at, in order: by priority the highest first and retries last."""
        retries = [] if wanted.order else [TopicKind.RETRY, TopicKind.RETRY_V2]
        kinds, by_priority = [TopicKind.NORMAL, *retries], self._goes_by_priority(wanted)
        if retries and not by_priority and random.random() < RETRY_FIRST:
            kinds = [*retries, TopicKind.NORMAL]
        for kind in kinds:
            topic = self._tables.topics.get(retry_topic(wanted.group, wanted.topic, kind))
            if topic is None:
                continue
            ids: Sequence[int] = range(topic.read_queues)[:: -1 if by_priority else 1]
            if kind is TopicKind.NORMAL and wanted.queue_id >= 0:
                ids = (wanted.queue_id,)
            first = random.randrange(len(ids)) if len(ids) > 1 and not by_priority else 0
            for at in range(len(ids)):
                if self._tables.topics.get(topic.name) is None:
                    break  # deleted since the last queue was looked at
                queue_id = ids[(first + at) % len(ids)]
                yield kind, PopKey(wanted.group, MessageQueue(topic.name, queue_id))

    def _goes_by_priority(self, wanted: PopRequest) -> bool:
        """Source: RocketMQ 5.5.0 PopMessageProcessor, usePriorityMode."""
        topic, group = self._tables.topics.get(wanted.topic), self._tables.groups.get(wanted.group)
        if wanted.order or topic is None or not topic.by_priority:
            return False
        return group is None or random.randrange(100) < group.priority_factor

    # ---- waiting

    async def _wait(self, wanted: PopRequest, deadline_s: float, parked: object) -> None:
        """Wait until a look is worth it, or until the deadline. Raises PollingFull."""
        group, topic, arrivals = wanted.group, wanted.topic, self._tables.arrivals
        if self._is_wide(wanted):
            await self._turn()
        if self.waits.count(group, topic) >= MOST_WAITING or (parked is not None and not arrivals.may_park(parked)):
            raise PollingFull
        queues = [key.queue for _, key in self._places(wanted)]
        is_worth_it = partial(self._is_worth_it, wanted)
        to_come = [] if wanted.order else [MessageQueue(retry_topic(group, topic), 0)]  # nobody may have needed it yet
        receiver = PopReceiver([*queues, *to_come], is_worth_it, topic, wanted.accepts, wanted.address)
        if not self.waits.has_room(receiver):
            raise PollingFull
        if parked is not None:
            arrivals.enter(parked)
        self.waits.enter(group, topic, receiver)
        try:
            if not any(is_worth_it(queue, False) for queue in queues):
                with trio.CancelScope(deadline=deadline_s):
                    await receiver.event.wait()
        except trio.Cancelled:
            if receiver.event.is_set():
                self._wake_for_rest(wanted)  # another one
            raise
        finally:
            self.waits.leave(group, topic, receiver)
            if parked is not None:
                arrivals.leave(parked)

    def _is_worth_it(self, wanted: PopRequest, queue: MessageQueue, arrived: bool) -> bool:
        """Return whether a receiver finds something in a queue, if a message just arrived there."""
        known = self.table.get(PopKey(wanted.group, queue))
        high = self._store.max_offset(queue)
        if known is None:
            return arrived or high > max(self._tables.offsets.get(wanted.group, *queue), 0)
        if known.busy or (wanted.order and known.blocked):
            return False  # who reads now, or an acknowledgement, wakes the next one
        has_any = arrived or known.again or known.next < high
        return bool(has_any) and self.table.room(known, wanted.owner, wanted.address) > 0

    def _wake_for_rest(self, wanted: PopRequest) -> None:
        """Wake the next receiver when there is something left: in most queues is nothing, whoever waits."""
        if self.waits.anybody(wanted.group, wanted.topic):
            for _, key in self._places(wanted):
                if self._has_rest(key):
                    self.waits.wake_one(wanted.group, wanted.topic, key.queue)

    def _has_rest(self, key: PopKey) -> bool:
        known, high = self.table.get(key), self._store.max_offset(key.queue)
        if known is None:
            return high > max(self._tables.offsets.get(key.group, *key.queue), 0)
        return not known.busy and (bool(known.again) or known.next < high)

    def _freed(self, key: PopKey) -> None:
        """Something of a queue was acknowledged, or comes again: somebody may have waited for that."""
        if not self.waits.is_empty:
            self.waits.wake_one(key.group, first_topic(key.group, key.queue.topic), key.queue)
