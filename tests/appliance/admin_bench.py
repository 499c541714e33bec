"""The administration of one broker without a socket, over a real store: for the tests of its parts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from appliance.broker.admin.clients import ClientCalls
from appliance.broker.admin.groups import GroupAdmin
from appliance.broker.admin.progress import OffsetCommands, ProgressTables
from appliance.broker.admin.query import Queries
from appliance.broker.admin.runtime_info import DiskFacts, RuntimeInfo
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.admin.topics import TopicAdmin, TopicAdminTables
from appliance.broker.delay.levels import DelayLevels
from appliance.broker.filter.subscriptions import parse_subscription
from appliance.broker.tables.clients import ClientTable, Joining, Member
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.requests import Responder, merged
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, SmallStore, answered, small_store, wall_ms
from netstack.wire.command import VERSION, RemotingCommand, request
from storage_driver.record import DELAY_LEVELS_MS, Message, encode_properties
from storage_driver.store import AppendResult


class Bench:
    """The administration of one broker without a socket."""

    def __init__(self, small: SmallStore, clock: list[int]) -> None:
        def now_ms() -> int:
            return clock[0] or wall_ms()

        store, self.small, self.store = small.store, small, small.store
        self.topics = TopicTable(MemoryStateFile(), TopicRules("Edge", "box"), now_ms=now_ms)
        self.groups = GroupTable(MemoryStateFile(), now_ms=now_ms)
        self.offsets, self.clients = OffsetTable(MemoryStateFile()), ClientTable(now_ms=now_ms)
        self.stats, self.resent = BrokerCounters("Edge", now_ms=now_ms), Resent(MemoryStateFile())
        delays = DelayLevels(store, small.arrivals, MemoryStateFile(), DELAY_LEVELS_MS, stats=self.stats, now_ms=now_ms)
        topic_tables = TopicAdminTables(self.topics, self.offsets, self.clients, small.arrivals, self.stats)
        progress_tables = ProgressTables(
            self.topics, self.groups, self.offsets, self.clients, self.stats, small.arrivals
        )
        named = {"broker": "box", "address": "h:1"}
        self._respond = Responder(
            merged(
                TopicAdmin(topic_tables, store, **named, now_ms=now_ms).handlers(),
                GroupAdmin(self.groups, self.offsets, self.clients, address="h:1").handlers(),
                OffsetCommands(progress_tables, store, **named, delay_offsets=delays.offsets).handlers(),
                ClientCalls(self.clients, store, broker="box", consumed=self.resent.note).handlers(),
                Queries(store, self.clients, now_ms=now_ms).handlers(),
                RuntimeInfo(
                    store,
                    self.stats,
                    delays,
                    disk=lambda: DiskFacts(1000, 750, 250),
                    properties=lambda: {"brokerName": "box"},
                    now_ms=now_ms,
                ).handlers(),
            )
        )
        self.topics.put(Topic("T", 4, 4))
        self.version = VERSION  # of who asks

    async def ask(self, code: int, /, **ext: str) -> RemotingCommand:
        command = request(code, ext)
        command.version = self.version
        return await answered(self._respond(command, FakePeer()))

    async def post(self, code: int, body: bytes) -> RemotingCommand:
        return await answered(self._respond(request(code, None, body), FakePeer()))

    async def refusal(self, code: int, /, **ext: str) -> tuple[int, str]:
        response = await self.ask(code, **ext)
        return response.code, response.remark or ""

    async def send(self, count: int = 1, queue_id: int = 0, topic: str = "T", **properties: str) -> list[AppendResult]:
        raw = encode_properties(properties)
        placed = [self.store.put(Message(topic, queue_id, b"%d" % n, raw, 0, 0, 1, STORE_HOST)) for n in range(count)]
        await self.store.wait_committed(placed[-1].end)
        return placed

    def consumer(
        self,
        number: int = 1,
        group: str = "g",
        expression: str = "a || b",
        language: str = "JAVA",
        version: int = 409,
    ) -> FakePeer:
        peer = FakePeer(number, ("10.0.0.1", number))
        member = Member(f"c{number}", language, version, 5)
        joining = Joining(
            group,
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
            (parse_subscription("T", expression, version=9),),
        )
        self.clients.consumer_joined(peer, member, joining)
        return peer


@asynccontextmanager
async def bench(folder: Path, clock: list[int] | None = None) -> AsyncIterator[Bench]:
    clock = clock or [0]
    async with small_store(folder, now_ms=lambda: clock[0] or wall_ms()) as small, trio.open_nursery() as nursery:
        found = Bench(small, clock)
        nursery.start_soon(found.topics.run)
        nursery.start_soon(found.groups.run)
        yield found
        nursery.cancel_scope.cancel()
