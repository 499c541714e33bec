"""Delayed delivery by level: a message waits in SCHEDULE_TOPIC_XXXX, queue level − 1, until its queue entry's due time.

The due time was fixed when the message was stored. A level's offset advances only past messages whose delivered copy is
durable, so a power cut repeats some and loses none; none comes early. Source: RocketMQ 4.9.8 ScheduleMessageService.
"""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Protocol

import trio

from appliance.broker.delay.clock_steps import ClockSteps
from appliance.broker.delay.redelivery import (
    MakeTopic,
    draft_of,
    park,
    put_patiently,
    records_in,
    rest_after,
    rest_after_read,
    unpark,
    wait_kept,
    without_topic,
)
from appliance.broker.intake import DELAY, MessageDraft
from appliance.broker.tables.arrivals import Arrivals, QueuePosition
from appliance.broker.tables.saving import SharedSave, TableFile, load_table, period_of, rows_of
from appliance.broker.tables.topics import HALF_TOPIC, SCHEDULE_TOPIC
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.errors import LogFailed, MessageIllegal
from storage_driver.interfaces import Messages
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

log = logging.getLogger("appliance.broker")

BATCH, BATCH_BYTES = 256, 1 << 20
SAVE_S = 5.0
CLOCK_STEP_S = 1.0  # how late a message can be when the clock is set forward
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DeliveryStats(Protocol):
    """Counters of deliveries."""

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None: ...


class LevelProgress(NamedTuple):
    """Progress of one level."""

    level: int
    delivered: int
    end: int


def has_level(properties: Mapping[str, str]) -> bool:
    """Return whether a message asks for a delay level; a malformed one counts, it is refused later."""
    return bool(properties.get(DELAY, "").lstrip("+0")) and not properties[DELAY].startswith("-")


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the delays in ms of `1s 5s 10m …`, level 1 first. Raises ValueError."""
    delays = []
    for word in text.split():
        found = re.fullmatch(r"(\d+)([smhd])", word)
        if found is None:
            raise ValueError(f"delay level {word!r}, expected a number and one of s m h d")
        delays.append(int(found[1]) * _UNITS_MS[found[2]])
    return tuple(delays)


class DelayLevels:
    """Stores delayed messages and delivers them when they are due."""

    def __init__(
        self,
        store: Messages,
        arrivals: Arrivals,
        file: TableFile,
        delays_ms: tuple[int, ...],
        *,
        stats: DeliveryStats,
        now_ms: Callable[[], int],
        make_topic: MakeTopic = without_topic,
        steps: ClockSteps | None = None,
    ) -> None:
        self._steps = steps or ClockSteps(now_ms)
        self._store, self._arrivals, self._file, self._stats, self._now_ms = store, arrivals, file, stats, now_ms
        self._delays_ms, self._make_topic = delays_ms, make_topic
        self._offsets = _loaded(file)
        self._save = SharedSave("delay_offsets", self._write)
        self._levels: list[int] | None = None  # those that are delivered, also of an earlier configuration
        self._floors: dict[int, int] = {}  # level → log offset: nothing of the level that is below waits
        self._forced: dict[int, int] = {}  # level → queue offset: what is below was stored by a clock that was ahead

    def divert(self, draft: MessageDraft) -> None:
        """Divert a draft with DELAY to its level; levels above the last count as the last. Raises Refused."""
        text = draft.properties.get(DELAY)
        if text is None or draft.topic == HALF_TOPIC:
            return
        if re.fullmatch(r"[+-]?\d{1,9}", text) is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"property DELAY is {text[:40]!r}, expected a delay level")
        level = min(int(text), len(self._delays_ms))
        self._steps.look()  # what is stored from here on goes by the clock as it is now
        if level > 0:
            draft.properties[DELAY] = str(level)
            park(draft, SCHEDULE_TOPIC, level - 1)

    def progress(self) -> list[LevelProgress]:
        """Return each level's progress, for 28 and 45."""
        levels = range(1, len(self._delays_ms) + 1)
        ends = {level: self._store.max_offset(_queue(level)) for level in levels}
        return [LevelProgress(level, self._offsets.get(level, 0), end) for level, end in ends.items()]

    def offsets(self) -> dict[int, int]:
        """Return level → offset, of the levels that have one."""
        return dict(self._offsets)

    def floor(self) -> int:
        """Return the log offset below which no delayed message waits: retention must not pass it."""
        if self._levels is None:
            return 0
        waiting = (
            level for level in self._levels if self._offsets.get(level, 0) < self._store.max_offset(_queue(level))
        )
        return min((self._floors.get(level, 0) for level in waiting), default=self._store.committed)

    async def run(self) -> None:
        """Deliver until cancelled."""
        left_over = (queue_id + 1 for queue_id in self._store.queues(SCHEDULE_TOPIC))
        self._levels = sorted({*range(1, len(self._delays_ms) + 1), *left_over})
        async with trio.open_nursery() as nursery:
            for level in self._levels:
                nursery.start_soon(self._run_level, level)
            nursery.start_soon(self._save.run, period_of(self._file, SAVE_S))

    async def flush(self) -> None:
        """Save the offsets if they changed. Raises OSError."""
        await self._save.flush()

    async def _write(self) -> None:
        await self._file.write({"offsetTable": {str(level): offset for level, offset in sorted(self._offsets.items())}})

    def _move(self, level: int, offset: int) -> None:
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self._save.changed()

    async def _run_level(self, level: int) -> None:
        queue = _queue(level)
        while True:
            try:
                if level not in self._floors:
                    self._floors[level] = await self._begin(level, queue)
                due_ms = await self._deliver_due(level, queue)
            except OSError as exc:
                await rest_after_read(exc, "delayed_delivery")
                continue
            except LogFailed as exc:
                await rest_after(exc, "delayed_delivery", self._store)
                continue
            if due_ms is None:
                await self._arrivals.wait_match([QueuePosition(queue, self._offsets[level])], group="", timeout_s=inf)
            else:
                await trio.sleep(min(max(due_ms - self._now_ms(), 0) / 1000, CLOCK_STEP_S))

    async def _begin(self, level: int, queue: MessageQueue) -> int:
        """Set where a level is within what its queue has; return its floor. Raises OSError."""
        low, high = self._store.min_offset(queue), self._store.max_offset(queue)
        self._note_lost(level, self._offsets.get(level, low), low)
        self._move(level, min(max(self._offsets.get(level, 0), low), high))
        found = await self._store.read(queue, self._offsets[level], max_count=1, max_bytes=1)
        first = next(records_in(found.chunks), None)
        return first.log_offset if first is not None else self._store.first

    async def _deliver_due(self, level: int, queue: MessageQueue) -> int | None:
        """Deliver what is due at the head of a level; return when the next one is, None when there is none."""
        while self._offsets[level] < self._store.max_offset(queue):
            self._steps.look()
            offset, now_ms = self._offsets[level], self._now_ms()
            head = _Head(now_ms, self._forced.get(level, 0) - offset, partial(self._due_ms, level))
            found = await self._store.read(queue, offset, max_count=BATCH, max_bytes=BATCH_BYTES, accepts=head.is_due)
            next_offset, end, floor, since = offset, 0, self._floors[level], self._store.truncations
            for stored in records_in(found.chunks):
                self._note_lost(level, next_offset, stored.queue_offset)
                end = await self._deliver(draft_of(stored)) or end
                next_offset, floor = stored.queue_offset + 1, stored.log_offset + stored.size
            if end:
                await wait_kept(self._store, end, since)
            if head.not_due_ms is None and next_offset < found.next_offset:
                self._note_lost(level, next_offset, found.next_offset)
                next_offset = found.next_offset
            self._floors[level] = floor
            self._move(level, next_offset)
            if head.not_due_ms is not None and next_offset == offset:
                return await self._unless_set_back(level, queue, head.not_due_ms)
        self._floors[level] = self._store.committed
        return None

    def _due_ms(self, level: int, due_ms: int) -> int:
        """Return when a message is due whose own clock said so of a moment: a step forward hurries none."""
        return due_ms + self._steps.later_ms(due_ms - self._delay_ms(level))

    def _delay_ms(self, level: int) -> int:
        return self._delays_ms[level - 1] if level <= len(self._delays_ms) else 0

    def _note_lost(self, level: int, delivered: int, low: int) -> None:
        if delivered < low:
            text = "event=delayed_messages_lost level=%d from=%d to=%d reason='the log no longer has them'"
            log.error(text, level, delivered, low)

    async def _unless_set_back(self, level: int, queue: MessageQueue, due_ms: int) -> int:
        """Return when a head is due; after a clock was set back, wait its delay once, then deliver all that wait."""
        delay_ms = self._delay_ms(level)
        if due_ms <= self._now_ms() + delay_ms:
            return due_ms
        stored_ms = await self._store.stored_ms_at(queue, self._offsets[level])
        if stored_ms is None or stored_ms <= self._now_ms():
            return due_ms  # the level was made shorter since
        resting_to = self._store.max_offset(queue)
        await trio.sleep(delay_ms / 1000)
        self._forced[level] = resting_to
        return self._now_ms()

    async def _deliver(self, draft: MessageDraft) -> int:
        """Store one message where it belongs; return the log offset after it, 0 when it belongs nowhere."""
        if not unpark(draft) or draft.topic == HALF_TOPIC:
            log.warning("event=delayed_message_dropped reason='its topic and queue are unknown' topic=%s", draft.topic)
            return 0
        self._make_topic(draft.topic, draft.queue_id)
        try:
            placed = await put_patiently(self._store, draft.to_message())
        except MessageIllegal as exc:
            log.error("event=delayed_message_dropped topic=%s reason=%r", draft.topic, str(exc))
            return 0
        self._stats.put(draft.topic, draft.queue_id, 1, placed.size)
        return placed.end


class _Head:
    """Return the entries at the head of a level that are due; they are in order."""

    def __init__(self, now_ms: int, forced: int, due_of: Callable[[int], int]) -> None:
        """forced: so many entries go whatever their time, since the clock they were stored by was ahead."""
        self.not_due_ms: int | None = None
        self._now_ms, self._forced, self._due_of = now_ms, forced, due_of

    def is_due(self, due_ms: int) -> bool:
        self._forced -= 1
        if self.not_due_ms is None and self._forced < 0 and (at_ms := self._due_of(due_ms)) > self._now_ms:
            self.not_due_ms = at_ms
        return self.not_due_ms is None


def _queue(level: int) -> MessageQueue:
    return MessageQueue(SCHEDULE_TOPIC, level - 1)


def _loaded(file: TableFile) -> dict[int, int]:
    rows = rows_of(load_table(file, "delay").get("offsetTable"), int, "delay")
    return {int(level): offset for level, offset in rows.items() if level.isdecimal()}
