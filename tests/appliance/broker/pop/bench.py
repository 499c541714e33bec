"""A POP engine over a real store and a real journal, as tests use it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from appliance.broker.pop.engine import PopAnswer, PopEngine, PopTables
from appliance.broker.pop.pop_table import Handle, PopTable
from appliance.broker.pop.taking import PopRequest, PopSlice
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, NoStats, SmallStore, small_store, wall_ms
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.journal_file import JournalFile
from storage_driver.record import Message, StoredMessage, decode_record, encode_properties

GROUP, TOPIC = "G", "T"


class PopStatistics(NoStats):
    """Counts nothing."""

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None:
        """Forget it."""


@dataclass
class PopBench:
    """The engine and what is around it."""

    engine: PopEngine
    small: SmallStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable

    @property
    def table(self) -> PopTable:
        return self.engine.table

    async def send(self, *bodies: bytes, queue_id: int = 0, tags: str = "", topic: str = TOPIC) -> None:
        """Store messages, durably."""
        properties = encode_properties({"TAGS": tags} if tags else {})
        for body in bodies:
            message = Message(topic, queue_id, body, properties, 0, 0, 123, STORE_HOST)
            placed = self.small.store.put(message)
        await self.small.store.wait_committed(placed.end)

    async def receive(self, most: int = 32, *, invisible_ms: int = 60_000, **more: object) -> PopAnswer:
        """Receive as the group G on the topic T; `more`: fields of the request."""
        fields: dict[str, object] = {"group": GROUP, "topic": TOPIC, "queue_id": -1, **more}
        wanted = PopRequest(most=most, invisible_ms=invisible_ms, **fields)  # type: ignore[arg-type]
        peer = FakePeer()
        return await self.engine.receive(wanted, peer, parked=peer)

    async def acknowledge(self, *handles: Handle) -> list[bool]:
        """Acknowledge and wait until that is durable; return which handles were valid."""
        marks = [self.engine.acknowledge(handle) for handle in handles]
        for mark in marks:
            if mark is not None:
                await self.engine.wait_synced(mark)
        return [mark is not None for mark in marks]


def messages(answer: PopAnswer) -> list[StoredMessage]:
    """Return the messages of an answer."""
    return [decode_record(record) for found in answer.slices for record in found.records]


def bodies(answer: PopAnswer) -> list[bytes]:
    """Return the bodies of an answer."""
    return [message.body for message in messages(answer)]


def handles(answer: PopAnswer, group: str = GROUP) -> list[Handle]:
    """Return the handles of an answer's messages."""
    return [handle for found in answer.slices for handle in handles_of(found, answer.pop_ms, group)]


def handles_of(found: PopSlice, pop_ms: int, group: str = GROUP) -> list[Handle]:
    """Return the handles of one queue's messages."""
    return [PopEngine.handle(group, found.queue, offset, pop_ms) for offset in found.offsets]


@asynccontextmanager
async def pop_bench(
    folder: Path,
    *,
    now_ms: Callable[[], int] = wall_ms,
    offsets: MemoryStateFile | None = None,
    disk: Disk | None = None,
    run: bool = True,
) -> AsyncIterator[PopBench]:
    """Open a store and run an engine over it; leaving ends both without saving any table."""
    async with small_store(folder, now_ms=now_ms) as small, trio.open_nursery() as nursery:
        rules = TopicRules("cluster", "broker")
        topics = TopicTable(MemoryStateFile(), rules, now_ms=now_ms)
        topics.recover({TOPIC: 1, **dict.fromkeys(small.store.topics(), 0)})
        topics.ensure(TOPIC, queues=2)
        groups = GroupTable(MemoryStateFile(), now_ms=now_ms)
        groups.put(Group(GROUP, retry_max_times=2))
        table = OffsetTable(offsets or MemoryStateFile())
        tables = PopTables(topics, groups, table, small.arrivals, PopStatistics())
        file = JournalFile(disk or RealDisk(), folder / "pop.journal")
        engine = PopEngine(file, small.store, tables, now_ms=now_ms)
        if run:
            nursery.start_soon(engine.run)
        yield PopBench(engine, small, topics, groups, table)
        nursery.cancel_scope.cancel()
