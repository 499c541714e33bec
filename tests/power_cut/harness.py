"""Records what a store does to its disk, then looks at every state that a power cut at any step may leave.

A promise is checked, not a file: what was acknowledged is there with its offsets, nothing is there that was never sent,
the store opens, and it goes on without giving out a number twice.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import outcome
import trio
from trio._core import _run as trio_run
from trio.testing import MockClock

from storage_driver.config import StoreConfig
from storage_driver.errors import RecordDamaged, StateDamaged, StorageError
from storage_driver.files.state_file import StateFile
from storage_driver.index.index_file import IndexSize
from storage_driver.log.sync_thread import SyncThread
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from storage_driver.record import Message, MessageQueue, Parts, decode_record, encode_host, encode_properties
from storage_driver.recovery.opening import Opened, open_folder
from storage_driver.store import AppendResult, MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.promises import Promises, RawEntries

HOST = encode_host("10.0.0.1", 10911)


class KnownPath(type(Path())):  # type: ignore[misc]
    """A path that remembers those it was asked for: a recovery asks for a hundred, and they are always the same."""

    def __truediv__(self, name: str) -> Path:
        known = self.__dict__
        if name not in known:
            known[name] = super().__truediv__(name)
        return known[name]  # type: ignore[no-any-return]

    def with_name(self, name: str) -> Path:
        known = self.__dict__
        if (key := f"/{name}") not in known:
            known[key] = super().with_name(name)
        return known[key]  # type: ignore[no-any-return]


ROOT = KnownPath("/data/store")
FOLDERS = ("/", "/data")
T = TypeVar("T")
Entries = dict[MessageQueue, tuple[int, list[tuple[int, int, int]]]]


def config(**changes: Any) -> StoreConfig:
    """Small sizes, so that files end and roll often."""
    settings: dict[str, Any] = {
        "root": ROOT,
        "store_host": HOST,
        "segment_bytes": 72 * 1024,
        "max_message_bytes": 8000,
        "queue_file_entries": 40,
        "index_size": IndexSize(40, 60),
        "position_every_s": 1.0,
        "position_every_bytes": 20_000,
        "flush_every_s": 0.2,
        "trust_queues_above": 0,
    }
    return StoreConfig(**settings | changes)


@dataclass(slots=True)
class Trace:
    """What was promised, and after which step of the disk."""

    sent: dict[tuple[str, int, int, int], bytes] = field(default_factory=dict)  # topic, queue, queue offset, log offset
    acknowledged: list[tuple[int, AppendResult, Message]] = field(default_factory=list)  # step, place, message
    records: dict[int, bytes] = field(default_factory=dict)  # log offset -> bytes acknowledged
    saved: list[tuple[int, int, int]] = field(default_factory=list)  # step before, step after, version
    floors: list[tuple[int, int]] = field(default_factory=list)  # step, lowest log offset from then on
    deleted: list[tuple[int, str, int]] = field(default_factory=list)  # step, topic, end of the log then
    _promises: Promises | None = None

    def promises(self) -> Promises:
        """Return all that was acknowledged, once the recording is over."""
        if self._promises is None:
            told = []
            for step, place, message in self.acknowledged:
                queue = None if message.sys_flag & 0x4 else MessageQueue(message.topic, message.queue_id)
                told.append((step, place.queue_offset, place.log_offset, self.records[place.log_offset], queue))
            self._promises = Promises(told, config().segment_bytes)
        return self._promises


async def inline(fn: Callable[..., T], *args: Any, **_: Any) -> T:
    """Run in the loop what would run in a thread, so that the order of steps depends on the seed alone."""
    await trio.lowlevel.checkpoint()
    result = fn(*args)
    await trio.lowlevel.checkpoint()
    return result


async def all_inline(thread: SyncThread) -> None:
    """As SyncThread.do_all, in the loop."""
    while not thread._ending and (call := thread._take()):
        thread._done(await inline(outcome.capture, call))


class Workload:
    """Sends, rolls, batches, offset commits, retention and a deletion, all from one seed."""

    def __init__(self, disk: MemoryDisk, seed: int, messages: int) -> None:
        self.disk, self.trace = disk, Trace()
        self._pick, self._messages, self._version = random.Random(seed), messages, 0
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self._now_ms

    async def run(self) -> None:
        pick = self._pick

        def new_id() -> int:
            return pick.randrange(1, 1 << 62)

        async with open_store(config(), now_ms=self.now_ms, disk=self.disk, new_id=new_id) as store:
            offsets = store.state_file("consumerOffset")
            sent = 0
            while sent < self._messages:
                sent += self._send(store)
                self._now_ms += pick.randrange(50)
                if pick.random() < 0.3:
                    await trio.sleep(pick.choice((0.001, 0.05, 0.3)))
                if pick.random() < 0.05:
                    await self._save(offsets)
                if pick.random() < 0.02 and len(store.segments()) > 2:
                    self.trace.floors.append((len(self.disk.steps), store.segments()[1].base))
                    await store.drop_first()
                if pick.random() < 0.004:
                    self.trace.deleted.append((len(self.disk.steps), "T2", store.end))
                    await store.delete_topic("T2")
            await trio.sleep(3)

    def _send(self, store: MessageStore) -> int:
        pick = self._pick
        topic, count = pick.choice(("T0", "T0", "T1", "T2")), pick.choice((1, 1, 1, 4))
        messages = [self._message(topic) for _ in range(count)]
        if count > 1:
            messages = [message._replace(queue_id=messages[0].queue_id, sys_flag=0) for message in messages]
        placed = put_batch(store, messages) if count > 1 else [store.put(messages[0])]
        for place, message in zip(placed, messages, strict=True):
            if not message.sys_flag & 0x4:
                self.trace.sent[topic, message.queue_id, place.queue_offset, place.log_offset] = message.body

        def wake(reason: str | None) -> None:
            if reason is None:
                step = len(self.disk.steps)
                for place in placed:
                    self.trace.records[place.log_offset] = self._bytes_of(store, place)
                self.trace.acknowledged += [(step, p, m) for p, m in zip(placed, messages, strict=True)]

        store.when_committed(placed[-1].end, wake)
        return count

    def _bytes_of(self, store: MessageStore, place: AppendResult) -> bytes:
        return store.read_log(place.log_offset, place.size)

    def _message(self, topic: str) -> Message:
        pick = self._pick
        body = pick.randbytes(pick.choice((0, 10, 100, 500, 2000)))
        properties = encode_properties({"UNIQ_KEY": f"{pick.randrange(1 << 60):x}", "TAGS": "a"})
        flag = 0x4 if pick.random() < 0.03 else 0
        return Message(topic, pick.randrange(2), body, properties, 0, flag, self._now_ms, HOST)

    async def _save(self, offsets: StateFile) -> None:
        self._version += 1
        before = len(self.disk.steps)
        await offsets.write({"version": self._version, "filler": "x" * self._pick.randrange(2000)})
        self.trace.saved.append((before, len(self.disk.steps), self._version))


def put_batch(store: MessageStore, messages: list[Message]) -> list[AppendResult]:
    """Put messages of one queue as a batch and return where each lies."""
    rows = [(message.flag, message.body, message.properties) for message in messages]
    batch = store.put_batch(messages[0], Parts.of(rows))
    ends = [*batch.log_offsets[1:], batch.end]
    return [
        AppendResult(batch.queue_offset + number, start, end - start, end, batch.stored_ms)
        for number, (start, end) in enumerate(zip(batch.log_offsets, ends, strict=True))
    ]


def record(seed: int, messages: int) -> tuple[MemoryDisk, Trace]:
    """Run one workload and return its disk, with every step, and what was promised."""
    disk = MemoryDisk(folders=FOLDERS)
    workload = Workload(disk, seed, messages)
    deterministic(workload.run, seed)
    return disk, workload.trace


def deterministic(main: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run trio so that the same seed gives the same order of steps."""
    threads = trio.to_thread.run_sync, SyncThread.do_all, SyncThread.nudge
    flag = trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    trio.to_thread.run_sync = inline  # type: ignore[assignment]
    SyncThread.do_all = all_inline  # type: ignore[method-assign, assignment]
    SyncThread.nudge = lambda self: None  # type: ignore[method-assign]
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    try:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        trio.to_thread.run_sync, SyncThread.do_all, SyncThread.nudge = threads  # type: ignore[method-assign]
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = flag  # type: ignore[misc]


def open_after(disk: MemoryDisk, *, trust: bool = True) -> Opened:
    """Recover a disk, with queues from their table or from their files. Raises StorageError if it refuses."""
    settings = config() if trust else config(trust_queues_above=1000)
    return open_folder(
        settings, disk, now_ms=lambda: 1_800_000_000_000, new_id=lambda: 7, progress=lambda done, total: None
    )


def check(disk: MemoryDisk, trace: Trace, cut: int, *, trust: bool = True, quick: bool = True) -> list[str]:
    """Recover a disk as a cut before step `cut` left it, return what was promised and is not so."""
    try:
        opened = open_after(disk, trust=trust)
    except StorageError as exc:
        return [f"refused to start: {exc}"]
    floor = max((offset for step, offset in trace.floors if step <= cut), default=0)
    deleted = {topic: end for step, topic, end in trace.deleted if step <= cut}  # what came later must be there
    raw, log = _raw_entries(opened, disk), LogBytes(opened)
    wrong: list[str] = []
    if not (quick and trace.promises().kept(log.segments, log.end, raw, cut=cut, floor=floor, deleted=deleted)):
        entries = {key: (first, list(ENTRY.iter_unpack(found))) for key, (first, found) in raw.items()}
        wrong = _lost(log, trace, cut, floor, deleted, entries) + _phantoms(log, trace, entries)
    loss = opened.recovered.verdict.lost
    told = [f"told as lost, which no power cut does: {loss.sentence()}"] if loss is not None else []
    return wrong + _tables(disk, trace, cut, opened) + told


class LogBytes:
    """The log of a recovered folder, read once."""

    def __init__(self, opened: Opened) -> None:
        segments, self.end = opened.recovered.segments, opened.recovered.end
        self._segment_bytes = opened.recovered.segment_bytes
        self.first = segments[0].base if segments else 1 << 62
        self.segments = {s.base: s.file.read(s.size, 0) for s in segments}

    def get(self, log_offset: int, size: int) -> bytes | None:
        """Return bytes of the log, None where it has none."""
        at = log_offset % self._segment_bytes
        data = self.segments.get(log_offset - at)
        return data[at : at + size] if data is not None and log_offset + size <= self.end else None


def _raw_entries(opened: Opened, disk: MemoryDisk) -> RawEntries:
    """Return first entry number and all entries of each queue, as its files hold them."""
    in_file, found = config().queue_file_entries, {}
    for key, queue in opened.recovered.queues.items():
        first = queue.first_file or 0
        raw = b""
        for start in range(first, queue.visible, in_file):
            name = f"{ROOT}/consumequeue/{key.topic}/{key.queue_id}/{start * ENTRY_BYTES:020d}"
            if name not in disk.names:
                break  # a deletion that the power cut short took the file; a message that must be there is missed
            raw += disk.inodes[disk.names[name]].bytes[: (queue.visible - start) * ENTRY_BYTES]
        found[key] = first, raw
    return found


def _lost(log: LogBytes, trace: Trace, cut: int, floor: int, deleted: dict[str, int], entries: Entries) -> list[str]:
    wrong = []
    for step, place, message in trace.acknowledged:
        if step > cut:
            break
        if place.log_offset < floor:
            continue
        if log.get(place.log_offset, place.size) != trace.records[place.log_offset]:
            wrong.append(f"acknowledged message at {place.log_offset} is not in the log, which ends at {log.end}")
        elif not message.sys_flag & 0x4 and place.log_offset >= deleted.get(message.topic, 0):
            first, found = entries.get((message.topic, message.queue_id), (0, []))  # type: ignore[call-overload]
            at = place.queue_offset - first
            if not 0 <= at < len(found) or found[at][:2] != (place.log_offset, place.size):
                wrong.append(f"{message.topic}/{message.queue_id}: entry {place.queue_offset} is not {place}")
    return wrong


def _body(raw: bytes) -> bytes | None:
    try:
        return decode_record(raw).body
    except RecordDamaged:
        return None


def _phantoms(log: LogBytes, trace: Trace, entries: Entries) -> list[str]:
    wrong = []
    for key, (first, found) in entries.items():
        last = -1
        for at, (log_offset, size, _) in enumerate(found, first):
            if size == HOLE_SIZE or log_offset < log.first:
                continue
            raw = log.get(log_offset, size)
            body = trace.sent.get((key.topic, key.queue_id, at, log_offset))
            if raw is None or body is None:
                wrong.append(f"{key}: entry {at} ({log_offset}, {size}) is no message that was sent there")
            elif trace.records.get(log_offset) != raw and _body(raw) != body:
                wrong.append(f"{key}: entry {at} has another body")
            elif log_offset <= last:
                wrong.append(f"{key}: entry {at} goes back in the log")
            last = log_offset
    return wrong


def _tables(disk: MemoryDisk, trace: Trace, cut: int, opened: Opened) -> list[str]:
    done = max((version for _, after, version in trace.saved if after <= cut), default=0)
    begun = max((version for before, _, version in trace.saved if before <= cut), default=0) + 1
    try:
        found = StateFile(disk, ROOT / "config" / "consumerOffset.json").load()
    except StateDamaged as exc:
        return [f"state file: {exc}"]
    version = found["version"] if found is not None else 0
    wrong = [] if done <= version <= begun else [f"state file has version {version}, saved were {done} to {begun}"]
    if trace.acknowledged and trace.acknowledged[0][0] <= cut and len(opened.lineage.runs) < 2:
        wrong.append("the run that wrote the log is not in its lineage")
    return wrong


@dataclass(slots=True)
class Tally:
    """Totals of many crash states."""

    states: int = 0
    workloads: int = 0
    steps: int = 0
    acknowledged: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def cut_everywhere(
    seed: int, messages: int, states: int, tally: Tally, *, lying: bool = False, quick: bool = True
) -> None:
    """Record one workload, then check `states` crash states spread evenly over all its steps.

    A lying disk ignores syncs of files: the control that must lose messages. Without `quick` each message is looked at
    in each state, not only in those that differ from what was sent.
    """
    disk, trace = record(seed, messages)
    pick = random.Random(seed)
    live = MemoryDisk(folders=FOLDERS)
    tally.steps += len(disk.steps)
    tally.acknowledged += len(trace.acknowledged)
    done = 0
    for number, step in enumerate([*disk.steps, None]):
        due = states * (number + 1) // (len(disk.steps) + 1)
        while done < due:
            done += 1
            left = live.after_power_cut(pick)
            before = left.copy() if done % 8 == 0 else None
            wrong = check(left, trace, number, trust=pick.random() < 0.5, quick=quick)
            if before is not None and not wrong:
                wrong = _cut_again(before, left, trace, number, pick)
            if done % 64 == 0 and not wrong:
                wrong = _go_on(left, trace, number, pick)
            if wrong:
                tally.failures.append(f"seed {seed} step {number} state {done}: {wrong[0]} ({len(wrong)} in all)")
        if step is not None and not (lying and step.kind == "sync"):
            live.apply(step)
    tally.states += done


def _cut_again(before: MemoryDisk, after: MemoryDisk, trace: Trace, cut: int, pick: random.Random) -> list[str]:
    """Lose power during the recovery itself, and recover once more."""
    for step in after.steps[: pick.randrange(len(after.steps) + 1)]:
        before.apply(step)
    return [
        f"second cut: {text}" for text in check(before.after_power_cut(pick), trace, cut, trust=pick.random() < 0.5)
    ]


def _go_on(disk: MemoryDisk, trace: Trace, cut: int, pick: random.Random) -> list[str]:
    """Serve again after the recovery, lose power once more: old and new promises hold, no dead message comes back."""
    workload = Workload(disk, pick.randrange(1 << 30), 12)
    deterministic(workload.run, 1)
    new = workload.trace
    again = new.acknowledged
    both = Trace(
        trace.sent | new.sent,
        [a for a in trace.acknowledged if a[0] <= cut] + [(cut, place, message) for _, place, message in again],
        trace.records | new.records,
        [(a, b, v) for a, b, v in trace.saved if b <= cut] if not new.saved else [(0, 1 << 60, 1)],
        [(0, offset) for step, offset in trace.floors if step <= cut] + [(0, offset) for _, offset in new.floors],
        [(0, topic, end) for step, topic, end in trace.deleted if step <= cut]
        + [(0, topic, end) for _, topic, end in new.deleted],
    )
    lost = [text for text in check(disk.after_power_cut(pick), both, 1 << 59, quick=False) if "state file" not in text]
    return [f"after going on: {text}" for text in lost]
