"""The broker put together over a real store: what a start takes over, what retention must not pass."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from sys import getrefcount
from types import MethodType

from appliance.broker.assembly import Assembled, assemble
from appliance.broker.broker_tables import BrokerTables, make_tables, rebuild_dedup
from appliance.broker.tables.topics import Topic
from appliance.configuration.config import load_config
from appliance.requests import Responder
from appliance.testing import STORE_HOST, FakePeer, SmallStore, answered, small_store, wall_ms
from storage_driver.record import Message
from tests.appliance.box import FACTS, send


class Broker:
    """A broker without a socket."""

    def __init__(self, small: SmallStore, toml: str) -> None:
        self.config = load_config(f"[box]\nname = 'box'\n{toml}", source="test", facts=FACTS)
        self.small = small
        self.tables: BrokerTables = make_tables(self.config, small.store, small.arrivals, now_ms=wall_ms)
        self.made: Assembled = assemble(self.config, small.store, self.tables, "h:1", now_ms=wall_ms)

    async def send(self, topic: str = "T", properties: str = "", peer: FakePeer | None = None) -> dict[str, str]:
        found = await answered(self.made.handlers[310](send(topic, properties=properties), peer or FakePeer()))
        assert found.code == 0, found.remark
        return found.ext

    async def stop(self) -> None:
        for flush in self.made.flushes:
            await flush()


@asynccontextmanager
async def broker(folder: Path, toml: str = "") -> AsyncIterator[Broker]:
    async with small_store(folder) as small:
        made = Broker(small, toml)
        yield made
        await made.stop()


async def test_an_answer_that_waits_for_the_sync_keeps_no_request_alive(tmp_path: Path) -> None:
    async with broker(tmp_path) as b:
        request = send("T", b"x" * 1024)
        before = getrefcount(request), getrefcount(request.body)
        held = b.made.handlers[310](request, FakePeer())
        assert (getrefcount(request), getrefcount(request.body)) == before
        assert (await answered(held)).opaque == request.opaque


async def test_what_the_tables_say_outlives_a_clean_stop(tmp_path: Path) -> None:
    async with broker(tmp_path) as b:
        b.tables.topics.put(Topic("T", 3, 3))
        b.tables.groups.find("g")
        b.tables.offsets.commit("g", "T", 2, 7)
    async with broker(tmp_path) as b:
        assert b.tables.topics.get("T") == Topic("T", 3, 3)
        assert b.tables.groups.get("g") is not None
        assert b.tables.offsets.get("g", "T", 2) == 7


async def test_a_topic_whose_table_was_never_written_is_there_again_with_all_its_queues(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        made = Broker(small, "")
        await made.send("Sensors")
        placed = small.store.put(Message("Sensors", 6, b"x", b"", 0, 0, 1, STORE_HOST))
        await small.store.wait_committed(placed.end)
    async with broker(tmp_path) as b:
        found = b.tables.topics.get("Sensors")
        assert found is not None
        assert found.queue_count == 7
        assert (await b.send("Sensors"))["queueOffset"] == "1"


async def test_a_retry_that_comes_after_a_restart_is_known_when_the_log_was_looked_at(tmp_path: Path) -> None:
    key = "UNIQ_KEY\x017F00000117CA18B4AAC2108BF0C70001\x02"
    async with broker(tmp_path) as b:
        first = await b.send(properties=key)
    async with broker(tmp_path) as b:
        await rebuild_dedup(b.tables, b.small.store, now_ms=wall_ms)
        assert await b.send(properties=key) == first
        assert len(await b.small.all("T")) == 1
    async with broker(tmp_path, "[broker]\ndedup_entries = 0\n") as b:
        await rebuild_dedup(b.tables, b.small.store, now_ms=wall_ms)
        assert (await b.send(properties=key))["queueOffset"] == "1"


async def test_retention_may_pass_nothing_that_is_still_to_be_delivered(tmp_path: Path) -> None:
    async with broker(tmp_path) as b:
        await b.send()
        handler = b.made.handlers[310]
        half = send("T", properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
        half.ext["f"] = "4"
        answer = await answered(handler(half, FakePeer()))
        assert answer.code == 0
        await b.send()
        (stored,) = await b.small.all("RMQ_SYS_TRANS_HALF_TOPIC")
        assert b.made.keep_from() <= stored.log_offset
        assert b.made.waiting.halves() == 1


async def test_each_table_and_each_waiting_part_runs_and_what_keeps_state_is_flushed(tmp_path: Path) -> None:
    async with broker(tmp_path) as b:
        loops = [loop.func if isinstance(loop, partial) else loop for loop in b.made.loops]
        owners = {type(loop.__self__).__name__ for loop in loops if isinstance(loop, MethodType)}
        assert owners == {
            *("TopicTable", "GroupTable", "OffsetTable", "Sessions", "DelayLevels", "Timers", "TransactionChecks"),
            *("BrokerCounters", "Creations", "Unused", "Resent", "LazyPop", "RequestModes"),
        }
        flushed = {type(flush.__self__).__name__ for flush in b.made.flushes if isinstance(flush, MethodType)}
        assert flushed == {
            *("TopicTable", "GroupTable", "OffsetTable", "Creations", "DelayLevels", "Timers", "Resent", "LazyPop"),
            "RequestModes",
        }


async def test_the_settings_reach_the_tables(tmp_path: Path) -> None:
    toml = "[limits]\ntopics = 32\n[broker]\nauto_create_topics = false\nauto_create_groups = false\n"
    async with broker(tmp_path, toml) as b:
        assert b.tables.topics.rules.most == 32
        assert not b.tables.topics.rules.auto_create
        assert b.tables.groups.find("new") is None
        answer = await answered(Responder(b.made.handlers)(send("New"), FakePeer()))
        assert answer.code == 17
