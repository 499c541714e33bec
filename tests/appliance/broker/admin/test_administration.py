"""What the tools ask, put together: every code has its handler once, and the numbers come from the tables handed in."""

from pathlib import Path

import orjson
import pytest
import trio

from appliance.broker.access.request_table import Loaded, loaded
from appliance.broker.admin.administration import AdminFacts, AdminTables, admin_handlers
from appliance.broker.admin.stats import BrokerCounters
from appliance.broker.delay.levels import DelayLevels
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.requests import Responder
from appliance.testing import FakePeer, MemoryStateFile, SmallStore, answered, small_store, wall_ms
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import request
from storage_driver.record import DELAY_LEVELS_MS


def administration(small: SmallStore) -> tuple[Responder, AdminTables]:
    stats = BrokerCounters("C", now_ms=wall_ms)
    tables = AdminTables(
        TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=wall_ms),
        GroupTable(MemoryStateFile(), now_ms=wall_ms),
        OffsetTable(MemoryStateFile()),
        ClientTable(now_ms=wall_ms),
        small.arrivals,
        stats,
        Resent(MemoryStateFile()),
    )
    delays = DelayLevels(small.store, small.arrivals, MemoryStateFile(), DELAY_LEVELS_MS, stats=stats, now_ms=wall_ms)
    facts = AdminFacts("box", "h:1", lambda: {"brokerName": "box"}, lambda: 7)
    return Responder(admin_handlers(small.store, tables, delays, facts, now_ms=wall_ms)), tables


async def test_every_code_of_the_tools_is_answered_here_and_no_other(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        respond, _ = administration(small)
        for code in loaded(Loaded.WITH_TOOL):
            answer = await answered(respond(request(code), FakePeer()))
            assert answer.code != 3, f"code {code} is not supported"
        for code in (Code.SEND_MESSAGE, Code.PULL_MESSAGE, Code.HEART_BEAT):
            assert (await answered(respond(request(code), FakePeer()))).code == 3


BROKEN = [({}, b"{"), ({}, b"[]"), ({}, b"5"), ({"topic": "x", "queueId": "y", "group": "", "timestamp": "z"}, b"")]


@pytest.mark.parametrize(("ext", "body"), [({}, b""), *BROKEN])
async def test_an_empty_or_broken_request_is_answered_and_is_no_fault_of_the_box(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ext: dict[str, str], body: bytes
) -> None:
    async with small_store(tmp_path) as small, trio.open_nursery() as nursery:
        respond, tables = administration(small)
        nursery.start_soon(tables.topics.run)
        nursery.start_soon(tables.groups.run)
        names = set(tables.topics.names())
        for code in loaded(Loaded.WITH_TOOL):
            await answered(respond(request(code, ext, body), FakePeer()))
        assert respond.statistics().faults == 0, caplog.text
        assert set(tables.topics.names()) == names
        nursery.cancel_scope.cancel()


async def test_what_the_tables_hold_and_the_facts_say_is_what_tools_read(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        respond, tables = administration(small)
        tables.topics.put(Topic("T", 2, 2))
        one = await answered(respond(request(Code.GET_TOPIC_CONFIG, {"topic": "T"}), FakePeer()))
        assert orjson.loads(one.body)["readQueueNums"] == 2
        numbers = orjson.loads((await answered(respond(request(Code.GET_BROKER_RUNTIME_INFO), FakePeer()))).body)[
            "table"
        ]
        assert numbers["timerCongestNum"] == "7"
        assert 0.0 < float(numbers["commitLogDiskRatio"]) < 1.0
        config = await answered(respond(request(Code.GET_BROKER_CONFIG), FakePeer()))
        assert config.body == b"brokerName=box\n"
