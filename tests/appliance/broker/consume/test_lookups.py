"""Offsets that clients ask for and store."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.broker.consume.lookups import Lookups
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.requests import Responder
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, SmallStore, answered, small_store
from netstack.wire.command import RemotingCommand, request
from storage_driver.record import Message
from tests.appliance.box import ask, connected, running_box, send


async def test_offsets_of_a_young_queue_begin_at_zero_and_negative_ones_are_ignored(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        asked = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "0"}
        await channel.ask(send("T"))
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "0"}
        assert (await channel.ask(ask(14, setZeroIfNotFound="false", **asked))).code == 22
        await channel.ask(ask(15, commitOffset=5, **asked))
        await channel.ask(ask(15, commitOffset=-1, **asked))
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "5"}
        await channel.ask(ask(15, commitOffset=2, **asked))
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "2"}


async def test_a_queue_whose_first_message_left_memory_is_young_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 0 if name == "SC_PHYS_PAGES" else real(name))
    async with running_box(tmp_path) as box, connected(box) as channel:
        asked = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "0"}
        await channel.ask(send("T"))
        assert (await channel.ask(ask(14, **asked))).code == 22
        await channel.ask(ask(15, commitOffset=0, **asked))
        assert (await channel.ask(ask(14, **asked))).ext == {"offset": "0"}


async def test_queue_limits_and_times(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        queue = {"topic": "T", "queueId": 0}
        assert (await channel.ask(ask(30, **queue))).ext == {"offset": "0"}
        assert (await channel.ask(ask(31, **queue))).ext == {"offset": "-1"}
        assert (await channel.ask(ask(32, **queue))).ext == {"timestamp": "-1"}
        await channel.ask(send("T"))
        await channel.ask(send("T"))
        assert (await channel.ask(ask(30, **queue))).ext == {"offset": "2"}
        assert (await channel.ask(ask(31, **queue))).ext == {"offset": "0"}
        assert int((await channel.ask(ask(32, **queue))).ext["timestamp"]) > 1_700_000_000_000
        future = ask(29, timestamp=4_000_000_000_000, **queue)
        assert (await channel.ask(future)).ext == {"offset": "1"}
        future = ask(29, timestamp=4_000_000_000_000, **queue)
        future.version = 479
        assert (await channel.ask(future)).ext == {"offset": "2"}


class Bench:
    """Lookups without a socket."""

    def __init__(self, small: SmallStore) -> None:
        self.small, self.offsets = small, OffsetTable(MemoryStateFile())
        self.topics = TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=lambda: 1)
        self.topics.put(Topic("T", 2, 2))
        self._respond = Responder(Lookups(self.topics, self.offsets, small.store).handlers())

    async def ask(self, code: int, *, version: int = 409, **ext: object) -> RemotingCommand:
        asked = request(code, {name: str(value) for name, value in ext.items()})
        asked.version = version
        return await answered(self._respond(asked, FakePeer()))

    async def send(self, count: int, queue_id: int = 0) -> None:
        for number in range(count):
            placed = self.small.store.put(Message("T", queue_id, b"%d" % number, b"", 0, 0, 1, STORE_HOST))
        await self.small.store.wait_committed(placed.end)


@asynccontextmanager
async def bench(folder: Path, now: list[int] | None = None) -> AsyncIterator[Bench]:
    clock = now or [1_700_000_000_000]
    async with small_store(folder, now_ms=lambda: clock[0]) as small:
        yield Bench(small)


async def test_offsets_are_stored_for_topics_that_exist_alone_and_whatever_the_number(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        where: dict[str, Any] = {"consumerGroup": "g", "queueId": 0}
        refused = await b.ask(15, topic="None", commitOffset=5, **where)
        assert (refused.code, refused.remark) == (17, "Topic None not exist!")
        for offset, stored in ((5, 5), (-1, 5), (0, 0), ((1 << 63) - 1, (1 << 63) - 1)):
            assert (await b.ask(15, topic="T", commitOffset=offset, **where)).code == 0
            assert (await b.ask(14, topic="T", **where)).ext == {"offset": str(stored)}
        assert (await b.ask(15, topic="T", commitOffset="x", **where)).code == 1
        assert b.offsets.table().keys() == {"T@g"}


async def test_a_queue_that_lost_its_first_messages_is_not_young(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        where: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        assert (await b.ask(14, **where)).ext == {"offset": "0"}
        for _ in range(25):
            b.small.store.put(Message("T", 0, bytes(60_000), b"", 0, 0, 1, STORE_HOST))
        await b.small.store.wait_committed(b.small.store.end)
        assert await b.small.store.drop_first(0)
        assert (await b.ask(14, **where)).code == 22
        assert int((await b.ask(31, topic="T", queueId=0)).ext["offset"]) > 0


@pytest.mark.parametrize(
    ("topic", "queue_id", "low"), [("T", 0, "0"), ("T", 1, "0"), ("T", 2, "-1"), ("T", -1, "-1"), ("None", 0, "-1")]
)
async def test_only_a_queue_that_exists_has_a_first_offset(tmp_path: Path, topic: str, queue_id: int, low: str) -> None:
    async with bench(tmp_path) as b:
        await b.send(3)
        assert (await b.ask(31, topic=topic, queueId=queue_id)).ext == {"offset": low}
        assert (await b.ask(30, topic=topic, queueId=queue_id)).ext == {
            "offset": "3" if (topic, queue_id) == ("T", 0) else "0"
        }


async def test_a_search_between_two_runs_of_the_box_leads_to_the_second(tmp_path: Path) -> None:
    now = [1000]
    for now[0] in (1000, 9000):
        async with bench(tmp_path, now) as b:
            await b.send(4)
            if now[0] == 9000:
                where = {"topic": "T", "queueId": 0, "timestamp": 5001}
                assert (await b.ask(29, version=479, **where)).ext == {"offset": "4"}
                assert (await b.ask(29, version=479, boundaryType="upper", **where)).ext == {"offset": "3"}
                assert (await b.ask(29, version=409, **where)).ext == {"offset": "4"}
