"""Delivery at any time, up to some days ahead, and its recall.

A timed message rests in rmq_sys_wheel_timer with the 5.x broker's properties. `TimerIndex` sorts what rests by due
millisecond; it is derived from the log, and what it has delivered is written down only after the delivered copies are
durable. Source: RocketMQ 5.3 TimerMessageStore, RecallMessageProcessor, for topic, properties, checks and handles.
"""

import logging
import re
from collections.abc import Callable
from functools import partial
from math import inf

import trio

from appliance.broker.delay.clock_steps import ClockSteps
from appliance.broker.delay.levels import CLOCK_STEP_S, DeliveryStats, has_level
from appliance.broker.delay.redelivery import (
    RETRY_S,
    MakeTopic,
    draft_of,
    park,
    put_patiently,
    records_in,
    rest_after,
    unpark,
    wait_kept,
    without_topic,
)
from appliance.broker.delay.timer_index import (
    HEAP_ENTRIES,
    MESSAGE,
    RECALL,
    IndexState,
    RunDamaged,
    TimerEntry,
    TimerIndex,
    name_of,
)
from appliance.broker.intake import TIMERS, MessageDraft
from appliance.broker.tables.arrivals import Arrivals, QueuePosition
from appliance.broker.tables.saving import TableFile, load_table, period_of
from appliance.broker.tables.topics import DEAD_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from appliance.errors import DueTooLate
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from netstack.wire.replication import TimerCheckpoint
from storage_driver.errors import LogFailed, MessageIllegal, RecordDamaged
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.log.clock import STEP_MS
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MAX_PROPERTIES_BYTES, MessageQueue, StoredMessage, decode_record
from storage_driver.store import MessageStore

log = logging.getLogger("appliance.broker")

QUEUE = MessageQueue(TIMER_TOPIC, 0)
OUT_MS, ENQUEUE_MS, DEQUEUE_MS = "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
DELIVER_MS, RECALLED = "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"
DUE_MS = "RBX_DUE_MS"  # ours: the exact moment; TIMER_OUT_MS is a second's slot before it
UNIQUE_KEY = "UNIQ_KEY"
BATCH, INDEX_BATCH = 256, 1024
FEW = 1000  # waiting messages whose lowest log offset is found in no time
SAVE_S = 5.0
SORT_S = 0.02  # what is due waits so long for a stream of messages that come to rest
_FACTORS_MS = {"TIMER_DELAY_SEC": 1000, "TIMER_DELAY_MS": 1}


class TimerRules(NamedTuple):
    """Configuration of timers."""

    broker: str
    longest_ms: int = 3 * 86_400_000


class Timers:
    """Stores timed messages and delivers them when they are due."""

    def __init__(
        self,
        rules: TimerRules,
        store: MessageStore,
        arrivals: Arrivals,
        file: TableFile,
        *,
        stats: DeliveryStats,
        now_ms: Callable[[], int],
        make_topic: MakeTopic = without_topic,
        disk: Disk | None = None,
        steps: ClockSteps | None = None,
    ) -> None:
        self._steps = steps or ClockSteps(now_ms)
        self.rules, self._store, self._arrivals, self._stats, self._now_ms = rules, store, arrivals, stats, now_ms
        self._file, self._make_topic = file, make_topic
        state = IndexState.from_json(load_table(self._file, "timers"), store.max_offset(QUEUE))
        self._saved = state
        self.index = TimerIndex(disk or RealDisk(), store.config.root / "rocketbox" / "timers", state)
        self._recalled: dict[bytes, int] = {}  # name → due ms, of recalls that may not be in the index yet
        self._due_recalls: set[tuple[int, bytes]] = set()  # of this round: they sort before the messages they recall
        self._caught_up = False
        self._took_some = False  # out of the index, since it was saved
        self._waiting = -1  # in the index, as of the last round; -1: not known yet
        self._floor, self._floor_at = 0, -SAVE_S
        self._indexed_log_to = 0  # log offset after the newest record that is in the index

    def divert(self, draft: MessageDraft) -> None:
        """Divert a draft with a timer property until its delivery time; DELAY has priority. Raises Refused."""
        asked = [name for name in TIMERS if name in draft.properties]
        if not asked or draft.topic == HALF_TOPIC or draft.topic.startswith((RETRY_PREFIX, DEAD_PREFIX)):
            return
        if draft.topic == SCHEDULE_TOPIC or has_level(draft.properties):
            for name in asked:
                del draft.properties[name]
            return
        self._steps.look()  # what is stored from here on goes by the clock as it is now
        now_ms = self._now_ms()
        due_ms = _due_ms(asked[0], draft.properties[asked[0]], now_ms)
        if due_ms - now_ms > self.rules.longest_ms:
            allowed = f"at most {self.rules.longest_ms} are allowed (broker.timer_days)"
            text = f"timer message illegal: it is due in {due_ms - now_ms} ms, {allowed}"
            raise DueTooLate(ResponseCode.MESSAGE_ILLEGAL, text)
        if due_ms > now_ms:
            self._rest(draft, due_ms)

    def _rest(self, draft: MessageDraft, due_ms: int) -> None:
        if self.index.full:
            text = f"{len(self.index)} timed messages wait, which is the limit; try again later"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        _set_due(draft, due_ms)
        park(draft, TIMER_TOPIC, 0)

    def recall(self, topic: str, unique_key: str, due_ms: int, born: tuple[int, bytes]) -> int:
        """Store that a message is not to be delivered; return the mark at which that is durable. Raises as `put`."""
        properties = {RECALLED: f"{topic}+{unique_key}", DELIVER_MS: str(due_ms)}
        draft = MessageDraft(topic, 0, b"", properties, 0, 0, born[0], born[1])
        self._rest(draft, due_ms)
        placed = self._store.put(draft.to_message())
        self._recalled[name := name_of(topic, unique_key)] = due_ms
        self._store.when_committed(placed.end, partial(self._recall_stored, name))
        return placed.end

    def _recall_stored(self, name: bytes, failure: str | None) -> None:
        if failure is not None:
            self._recalled.pop(name, None)  # who asked is told that it failed: the message comes

    def checkpoint(self) -> TimerCheckpoint:
        """Return what is on disk of the progress."""
        return TimerCheckpoint(self._saved.emitted_ms, self._saved.indexed_to)

    def floor(self) -> int:
        """Return the log offset below which no record waits for its delivery time: retention must not pass it."""
        nothing_came = self._waiting == 0 and not self._behind
        return self._store.committed if nothing_came else self._floor

    @property
    def _behind(self) -> bool:
        return self.index.indexed_to < self._store.max_offset(QUEUE)

    def _note_floor(self) -> None:
        """Between rounds; what is noted late is too low, which is safe."""
        now, self._waiting = trio.current_time(), len(self.index)
        if self._waiting <= FEW or now - self._floor_at >= SAVE_S:
            lowest = self.index.floor()
            self._floor = self._indexed_log_to if lowest is None else lowest
            self._floor_at = now

    async def run(self) -> None:
        """Sort new entries and deliver due messages, until cancelled."""
        saved_at, ready, save_s = trio.current_time(), False, period_of(self._file, SAVE_S)
        while True:
            due_ms = None
            try:
                ready = ready or await self._make_ready()
                await self._catch_up()
                due_ms = await self._deliver_due()
                self._note_floor()
                if trio.current_time() - saved_at >= save_s:
                    await self._save()
                    saved_at = trio.current_time()
            except LogFailed as exc:
                self.index.put_back()
                await rest_after(exc, "timed_delivery", self._store)
                continue
            except (OSError, RunDamaged) as exc:
                await self._rest_after_error(exc)
                continue
            rest_s = SAVE_S if self._unsaved() is None else save_s
            wait_s = rest_s if due_ms is None else max(due_ms - self._now_ms(), 0) / 1000
            limit_s = CLOCK_STEP_S if due_ms is not None else rest_s
            await self._arrivals.wait_match(
                [QueuePosition(QUEUE, self.index.indexed_to)], group="", timeout_s=min(wait_s, limit_s)
            )

    async def _make_ready(self) -> bool:
        await trio.to_thread.run_sync(self.index.remove_strangers)
        return True

    async def _rest_after_error(self, exc: Exception) -> None:
        """Try again in a moment: nothing that waits is lost, it is only late."""
        log.error("event=timed_delivery_waits reason=%r", str(exc))
        if isinstance(exc, RunDamaged):
            self.index.begin_anew()
            self._caught_up = False
        else:
            self.index.put_back()
        await trio.sleep(RETRY_S)

    async def flush(self) -> None:
        """Save what was delivered, for a clean stop."""
        await self._save()

    async def _save(self) -> None:
        """Save what changed."""
        if (state := self._unsaved()) is not None:
            await self._file.write(state.to_json())
            self._saved, self._took_some = state, False  # only now: after an error, or a stop, the next save writes it
            await trio.to_thread.run_sync(self.index.remove_emptied)

    def _unsaved(self) -> IndexState | None:
        """Return what is to be saved; time that passes is no change: a disk at rest takes no writes."""
        state = self.index.state()
        changed = state._replace(emitted_ms=self._saved.emitted_ms) != self._saved
        return state if changed or self._took_some else None

    # from the log into the index

    async def _catch_up(self) -> None:
        """Sort in what came; once all was there, only for a moment at a time: what is due waits for no stream."""
        until = trio.current_time() + SORT_S if self._caught_up else inf
        start = max(self.index.indexed_to if self._caught_up else self.index.spilled_to, self._store.min_offset(QUEUE))
        while start < self._store.max_offset(QUEUE):
            await self._spill_if_full()  # before more comes: when the disk was full the heap is full already
            found = await self._store.read(QUEUE, start, max_count=INDEX_BATCH, max_bytes=4 << 20)
            for stored in records_in(found.chunks):
                self._add(stored)
            start = max(found.next_offset, start + 1)
            self.index.indexed_to = max(self.index.indexed_to, start)
            await self._spill_if_full()
            if trio.current_time() >= until:
                return
        self._caught_up = True

    async def _spill_if_full(self) -> None:
        if self.index.heap_full:
            await trio.to_thread.run_sync(self.index.spill)
            await self._save()  # a run counts only once it is written down

    def _add(self, stored: StoredMessage) -> None:
        properties = stored.property_map
        self._indexed_log_to, self._waiting = stored.log_offset + stored.size, -1
        due_ms = _stored_due_ms(properties)
        if due_ms is None:
            log.warning("event=timed_message_dropped log_offset=%d reason='no due time'", stored.log_offset)
            return
        recalled = properties.get(RECALLED)
        if recalled is None:
            kind, name = MESSAGE, name_of(properties.get("REAL_TOPIC", ""), properties.get(UNIQUE_KEY, ""))
        else:
            topic, _, key = recalled.partition("+")
            kind, name = RECALL, name_of(topic, key)
            self._recalled.pop(name, None)
        self.index.add(TimerEntry(due_ms, kind, stored.log_offset, stored.size, name), stored.queue_offset)

    # from the index to the topics

    async def _deliver_due(self) -> int | None:
        """Deliver all that is due; return when the next message is, None when none waits."""
        if self._steps.was_set_back and self._caught_up and len(self.index):
            await self._rest_again()
        while True:
            self._steps.look()
            now_ms = self._now_ms()
            due = await trio.to_thread.run_sync(self.index.take_due, now_ms, BATCH) if len(self.index) else []
            self._took_some = self._took_some or bool(due)
            self._due_recalls |= {(entry.due_ms, entry.name) for entry in due if entry.kind == RECALL}
            kept = [entry for entry in due if entry.kind == MESSAGE and not self._is_recalled(entry)]
            end, since = 0, self._store.truncations
            for entry, record in zip(kept, await self._records_of(kept), strict=True):
                end = await self._deliver(entry, record) or end
            if end:
                await wait_kept(self._store, end, since)
            if len(due) < BATCH:
                self.index.done(now_ms)
                self._due_recalls.clear()
                if not self._behind:  # else the recalled message may come into the index after its moment
                    self._recalled = {name: due_ms for name, due_ms in self._recalled.items() if due_ms > now_ms}
                return await trio.to_thread.run_sync(self.index.next_due_ms) if len(self.index) else None
            self.index.done(due[-1].due_ms - 1)  # more of the same millisecond may follow

    async def _rest_again(self) -> None:
        """Let rest anew, for as long as they were to rest, messages that a clock which was ahead stored: due too late.

        Their entries of before are never looked at again, also after a restart.
        """
        limit_ms, stay, count = self._now_ms() + self.rules.longest_ms + STEP_MS, list[TimerEntry](), 0
        since, rested = self._store.truncations, 0
        while count < HEAP_ENTRIES:
            taken = await trio.to_thread.run_sync(self.index.take_beyond, limit_ms, BATCH)
            if not taken:
                break
            count += len(taken)
            self._due_recalls |= {(entry.due_ms, entry.name) for entry in taken if entry.kind == RECALL}
            kept = [entry for entry in taken if entry.kind == MESSAGE and not self._is_recalled(entry)]
            for entry, record in zip(kept, await self._records_of(kept), strict=True):
                rested = await self._rest_one(entry, record, stay) or rested
        if rested:
            await wait_kept(self._store, rested, since)
        self._due_recalls.clear()
        self._steps.was_set_back = rested > 0 and count >= HEAP_ENTRIES  # there may be more
        if count:
            self.index.done(self.index.emitted_ms)
            for entry in stay:
                self.index.add(entry, 0)
            await trio.to_thread.run_sync(self.index.spill)
            self._took_some = True
            await self._save()

    async def _rest_one(self, entry: TimerEntry, record: bytes, stay: list[TimerEntry]) -> int:
        """Store a message of a clock that was ahead again; return the log offset after it, 0 for one that stays."""
        stored = _decoded(entry, record)
        if stored is None:
            return 0
        if stored.stored_ms <= self._now_ms() + STEP_MS:  # the configuration allows less than it did
            stay.append(entry)
            return 0
        rest_ms = min(max(entry.due_ms - stored.stored_ms, 0), self.rules.longest_ms)
        return await self._put_again(stored, self._now_ms() + rest_ms)

    async def _put_again(self, stored: StoredMessage, due_ms: int) -> int:
        draft = draft_of(stored)
        _set_due(draft, due_ms)
        return (await put_patiently(self._store, draft.to_message())).end

    def _is_recalled(self, entry: TimerEntry) -> bool:
        return (entry.due_ms, entry.name) in self._due_recalls or self._recalled.get(entry.name) == entry.due_ms

    async def _records_of(self, entries: list[TimerEntry]) -> list[bytes]:
        """Read a batch in one thread call: a call for each message costs twenty times as much."""
        if not entries:
            return []
        try:
            return await trio.to_thread.run_sync(lambda: [self._store.read_log(e.log_offset, e.size) for e in entries])
        except OSError:  # of one of them; it must not keep the others
            return [await self._store.record_of(QUEUE, entry.log_offset, entry.size) for entry in entries]

    async def _deliver(self, entry: TimerEntry, record: bytes) -> int:
        """Store one message where it belongs; return the log offset after it, 0 when it is lost."""
        stored = _decoded(entry, record)
        if stored is None:
            return 0
        later_ms = entry.due_ms + self._steps.later_ms(stored.stored_ms)
        if later_ms > self._now_ms() and _is_relative(stored):  # the clock was set forward meanwhile
            return await self._put_again(stored, later_ms)
        draft = draft_of(stored)
        if not unpark(draft):
            return 0
        self._make_topic(draft.topic, draft.queue_id)
        draft.properties.pop(DUE_MS, None)
        plain = draft.to_message()
        draft.properties |= {DEQUEUE_MS: str(self._now_ms())}
        draft.properties.setdefault(ENQUEUE_MS, str(stored.stored_ms))
        told = draft.to_message()
        message = told if len(told.properties) <= MAX_PROPERTIES_BYTES else plain
        try:
            placed = await put_patiently(self._store, message)
        except MessageIllegal as exc:  # no segment of this configuration holds it
            log.error("event=timed_message_dropped log_offset=%d reason=%r", entry.log_offset, str(exc))
            return 0
        self._stats.put(draft.topic, draft.queue_id, 1, placed.size)
        return placed.end


def _decoded(entry: TimerEntry, record: bytes) -> StoredMessage | None:
    try:
        return decode_record(record)
    except RecordDamaged as exc:
        log.error("event=timed_message_lost log_offset=%d reason=%r", entry.log_offset, str(exc))
        return None


def _is_relative(stored: StoredMessage) -> bool:
    """Tell whether a message was to rest for a time, not until a moment."""
    return not _FACTORS_MS.keys().isdisjoint(stored.property_map)


def _set_due(draft: MessageDraft, due_ms: int) -> None:
    draft.properties[OUT_MS] = str((due_ms - 1) // 1000 * 1000)
    draft.properties[DUE_MS] = str(due_ms)


def _due_ms(name: str, text: str, now_ms: int) -> int:
    if re.fullmatch(r"[+-]?\d{1,15}", text) is None:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {name} is {text[:40]!r}, expected a number"
        )
    factor = _FACTORS_MS.get(name)
    return int(text) if factor is None else now_ms + int(text) * factor


def _stored_due_ms(properties: dict[str, str]) -> int | None:
    """Return when a resting message is due. One that an Apache broker stored names its slot: due at the slot's end."""
    own, slot = properties.get(DUE_MS, ""), properties.get(OUT_MS, "")
    if own.isdecimal():
        return int(own)
    return int(slot) + 1000 if slot.isdecimal() else None
