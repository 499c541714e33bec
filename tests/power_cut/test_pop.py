"""POP over power cuts: what was acknowledged never comes again, what is out never before its time, all else comes."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from appliance.broker.pop.engine import PopEngine, PopTables
from appliance.broker.pop.pop_table import Handle
from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import PopRequest
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.testing import FakePeer, MemoryStateFile
from storage_driver.record import Message, decode_record
from storage_driver.store import Arrival, MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.appliance.broker.pop.bench import PopStatistics
from tests.power_cut.harness import FOLDERS, HOST, ROOT, config, deterministic

BASE_MS = 1_700_000_000_000
GROUP, TOPIC = "G", "T0"


@dataclass
class Pops:
    """What was promised, and after which step of the disk; times in ms since the workload began."""

    sent: dict[bytes, int] = field(default_factory=dict)  # body -> step
    out: list[tuple[int, bytes, int]] = field(default_factory=list)  # step, body, due
    acknowledged: dict[bytes, int] = field(default_factory=dict)  # body -> step
    renewed: list[tuple[int, bytes, int]] = field(default_factory=list)  # first step of it, body, due
    times: list[float] = field(default_factory=list)  # ms by step


@asynccontextmanager
async def running(disk: MemoryDisk, start_ms: float) -> AsyncIterator[tuple[MessageStore, PopEngine]]:
    """Open a store and its engine as a box that starts at a time."""

    def now_ms() -> int:
        return int(BASE_MS + start_ms + trio.current_time() * 1000)

    arrivals: list[Arrivals] = []

    def arrived(arrival: Arrival) -> None:
        for each in arrivals:
            each.arrived(arrival)

    opening = open_store(config(), now_ms=now_ms, disk=disk, new_id=lambda: 7, arrived=arrived)
    async with opening as store, trio.open_nursery() as nursery:
        arrivals.append(Arrivals(1000, store.max_offset))
        topics = TopicTable(MemoryStateFile(), TopicRules("cluster", "broker"), now_ms=now_ms)
        for name in (TOPIC, *store.topics()):
            topics.ensure(name, queues=1)
        groups = GroupTable(MemoryStateFile(), now_ms=now_ms)
        groups.put(Group(GROUP, retry_max_times=100))
        tables = PopTables(topics, groups, OffsetTable(MemoryStateFile()), arrivals[0], PopStatistics())
        engine = PopEngine(store.journal_file("pop.journal"), store, tables, now_ms=now_ms)
        nursery.start_soon(engine.run)
        yield store, engine
        nursery.cancel_scope.cancel()


async def receive(engine: PopEngine, invisible_ms: int, most: int = 4) -> list[tuple[Handle, bytes]]:
    """Receive what is there; return handles and bodies."""
    answer = await engine.receive(PopRequest(GROUP, TOPIC, -1, most, invisible_ms), FakePeer())
    found = []
    for part in answer.slices:
        for offset, record in zip(part.offsets, part.records, strict=True):
            handle, stored = PopEngine.handle(GROUP, part.queue, offset, answer.pop_ms), decode_record(record)
            whole = b"RBX_POP_FROM" in stored.properties and b"\0" not in stored.properties
            if part.kind is not TopicKind.NORMAL and not whole:
                engine.acknowledge(handle)  # a torn copy: the checksum of a record does not cover its properties
            else:
                found.append((handle, stored.body))
    return found


class PopWork:
    """Sends, receives, acknowledges, renews and lets messages expire, all from one seed."""

    pauses_s: tuple[float, ...] = (0, 0, 0.01, 0.3)  # between two steps
    lasts_s = 4  # until all that is out comes again

    def __init__(self, disk: MemoryDisk, seed: int, rounds: int) -> None:
        self.disk, self.done = disk, Pops()
        self._pick, self._rounds = random.Random(seed), rounds
        self._out: list[tuple[Handle, bytes, float]] = []
        disk.before = lambda step: self.done.times.append(trio.current_time() * 1000)

    async def run(self) -> None:
        async with running(self.disk, 0) as (store, engine):
            for number in range(self._rounds):
                await self._send(store, b"%d" % number)
                step = self._pick.choice((self._receive, self._receive, self._acknowledge, self._acknowledge))
                await step(engine)
                if self._pick.random() < 0.2:
                    await self._renew(engine)
                await trio.sleep(self._pick.choice(self.pauses_s))

    async def _send(self, store: MessageStore, body: bytes) -> None:
        placed = store.put(Message(TOPIC, 0, body + b"." * 400, b"", 0, 0, BASE_MS, HOST))
        await store.wait_committed(placed.end)
        self.done.sent[body + b"." * 400] = len(self.disk.steps)

    async def _receive(self, engine: PopEngine) -> None:
        invisible_ms = self._pick.choice((200, 500, 2000))
        began_ms = trio.current_time() * 1000
        for handle, body in await receive(engine, invisible_ms):
            self.done.out.append((len(self.disk.steps), body, int(began_ms + invisible_ms)))
            self._out.append((handle, body, began_ms + invisible_ms))

    async def _acknowledge(self, engine: PopEngine) -> None:
        self._pick.shuffle(self._out)
        for handle, body, _ in self._out[:3]:
            mark = engine.acknowledge(handle)
            if mark is not None:
                await engine.wait_synced(mark)
                self.done.acknowledged[body] = len(self.disk.steps)
        del self._out[:3]

    async def _renew(self, engine: PopEngine) -> None:
        for handle, body, _ in self._out[:1]:
            now_ms, before = trio.current_time() * 1000, len(self.disk.steps)
            renewed = engine.renew(handle, 1000)
            if renewed is not None:
                self.done.renewed.append((before, body, int(now_ms + 1000)))
                await engine.wait_synced(renewed.mark)
                self.done.out.append((len(self.disk.steps), body, int(now_ms + 1000)))


def wrong_after(disk: MemoryDisk, done: Pops, cut: int, lasts_s: int) -> list[str]:
    """Start on what a power cut left, consume all that comes, and return which promises were broken."""
    start_ms = done.times[cut - 1] if cut else 0.0
    due = {body: due_ms for step, body, due_ms in done.out if step <= cut}
    earliest = dict(due)
    for step, body, due_ms in done.renewed:  # one that was under way may count or not
        if step <= cut and body in earliest:
            earliest[body] = min(earliest[body], due_ms)
    came: dict[bytes, float] = {}
    wrong: list[str] = []

    async def consume() -> None:
        async with running(disk, start_ms) as (_, engine):
            while trio.current_time() < lasts_s:
                for handle, body in await receive(engine, 60_000, 32):
                    if body in came:
                        wrong.append(f"{body[:8]!r} came twice")
                    came.setdefault(body, start_ms + trio.current_time() * 1000)
                    engine.acknowledge(handle)
                await trio.sleep(lasts_s / 200)

    deterministic(consume, 1)
    for body, step in done.acknowledged.items():
        if step <= cut and body in came:
            wrong.append(f"{body[:8]!r} was acknowledged at step {step} and came again")
    for body, step in done.sent.items():
        if step <= cut and body not in came and body not in done.acknowledged:
            wrong.append(f"{body[:8]!r} was sent at step {step} and never came")
    for body, due_ms in earliest.items():
        if body in came and came[body] < min(due_ms, due[body]) - 1:
            wrong.append(f"{body[:8]!r} came at {came[body]:.0f}, it was out until {due_ms}")
    return wrong


def cut_everywhere(
    seed: int, rounds: int, states: int, *, lying: bool = False, kind: type[PopWork] = PopWork
) -> tuple[int, list[str]]:
    """Record one workload, check crash states spread over its steps; return how many were checked and what failed."""
    disk = MemoryDisk(folders=FOLDERS)
    work = kind(disk, seed, rounds)
    deterministic(work.run, seed)
    pick, live = random.Random(seed), MemoryDisk(folders=FOLDERS)
    every = max(1, len(disk.steps) // states)
    failures, checked = [], 0
    journal = str(ROOT / "rocketbox" / "pop.journal")
    for number, step in enumerate(disk.steps):
        if number % every == 0:
            checked += 1
            wrong = wrong_after(live.after_power_cut(pick), work.done, number, work.lasts_s)
            failures += [f"seed {seed} step {number}: {text}" for text in wrong]
        of_journal = step.inode in {live.names.get(journal), live.names.get(f"{journal}.tmp")}
        if not (lying and step.kind == "sync" and of_journal):
            live.apply(step)
    return checked, failures


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.slow
def test_no_power_cut_brings_what_was_acknowledged_or_is_still_out(seed: int) -> None:
    checked, failures = cut_everywhere(seed, 40, 60)
    assert checked >= 60
    assert not failures, "\n".join(failures[:10])


@pytest.mark.slow
def test_a_disk_that_only_says_it_synced_the_journal_breaks_the_promise() -> None:
    _, failures = cut_everywhere(3, 40, 60, lying=True)
    assert any("came again" in text for text in failures)
