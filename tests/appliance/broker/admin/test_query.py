"""Questions for single messages over a real store."""

from pathlib import Path

import orjson
import pytest

from appliance.broker.filter.subscriptions import parse_subscription
from appliance.broker.tables.clients import Joining, Member
from appliance.testing import FakePeer
from netstack.wire.codes import RequestCode as Code
from storage_driver.record import StoredMessage, decode_record
from tests.appliance.admin_bench import bench


def stored_in(body: bytes) -> list[StoredMessage]:
    found, at = [], 0
    while at < len(body):
        found.append(decode_record(body, at))
        at += found[-1].size
    return found


async def test_the_id_of_a_grpc_client_is_found_whatever_time_a_tool_reads_out_of_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        name = "016AF679AE9D9043CB0B19018200000000"
        await b.send(UNIQ_KEY=name)
        await b.store.prove()
        ext = {"topic": "T", "maxNum": "5", "beginTimestamp": str(1 << 60), "endTimestamp": str((1 << 60) + 1)}
        found = await b.ask(Code.QUERY_MESSAGE, key=name, _UNIQUE_KEY_QUERY="true", **ext)
        assert [each.property_map["UNIQ_KEY"] for each in stored_in(found.body)] == [name]
        assert (await b.ask(Code.QUERY_MESSAGE, key=name, **ext)).code == 22, "as a key it has the time it is asked for"


async def test_messages_are_found_by_key_unique_key_and_place(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for number in range(10):
            await b.send(KEYS=f"k{number} all", UNIQ_KEY=f"U{number}")
        ext = {"topic": "T", "maxNum": "5", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        await b.store.prove()  # the index follows the log, here at once
        found = await b.ask(Code.QUERY_MESSAGE, key="k7", **ext)
        (message,) = stored_in(found.body)
        assert message.property_map["UNIQ_KEY"] == "U7"
        unique = await b.ask(Code.QUERY_MESSAGE, key="U3", _UNIQUE_KEY_QUERY="true", **ext)
        assert [item.queue_offset for item in stored_in(unique.body)] == [3]
        assert len(stored_in((await b.ask(Code.QUERY_MESSAGE, key="all", **ext)).body)) == 5
        assert (await b.ask(Code.QUERY_MESSAGE, key="nobody", **ext)).code == 22
        seen = await b.ask(Code.VIEW_MESSAGE_BY_ID, offset=str(message.log_offset))
        assert stored_in(seen.body) == [message]
        assert (await b.ask(Code.VIEW_MESSAGE_BY_ID, offset="1")).code == 1


async def test_entries_of_a_queue_say_what_a_group_would_get(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.send(TAGS="a")
        await b.send(TAGS="z")
        b.consumer()
        ext = {"topic": "T", "queueId": "0", "index": "0", "count": "10", "consumerGroup": "g"}
        page = orjson.loads((await b.ask(Code.QUERY_CONSUME_QUEUE, **ext)).body)
        assert [(item["tagsCode"], item["eval"]) for item in page["queueData"]] == [(97, True), (122, False)]
        assert (page["minQueueIndex"], page["maxQueueIndex"]) == (0, 2)
        beyond = await b.ask(Code.QUERY_CONSUME_QUEUE, **ext | {"index": "7"})
        assert (beyond.code, beyond.body, beyond.remark) == (0, b"", "Index 7 of 0@T is not exist!")
        assert await b.refusal(Code.QUERY_CONSUME_QUEUE, **ext | {"topic": "U"}) == (1, "0@U is not exist!")


async def test_a_question_for_a_key_has_limits_whatever_is_asked_for(tmp_path: Path) -> None:
    clock = [10_000]
    async with bench(tmp_path, clock) as b:
        for _ in range(70):
            await b.send(KEYS="all", UNIQ_KEY="same")
        await b.store.prove()
        ext = {"topic": "T", "key": "all", "beginTimestamp": "0", "endTimestamp": "0"}
        for asked, found in (("-5", 1), ("0", 1), ("3", 3), ("64", 64), ("100000", 64)):
            answer = await b.ask(Code.QUERY_MESSAGE, **ext, maxNum=asked)
            assert len(stored_in(answer.body)) == found
        unique = await b.ask(Code.QUERY_MESSAGE, **ext | {"key": "same"}, maxNum="1", _UNIQUE_KEY_QUERY="true")
        assert len(stored_in(unique.body)) == 32
        future = await b.ask(Code.QUERY_MESSAGE, **ext | {"beginTimestamp": "20000"}, maxNum="9")
        assert (future.code, future.body) == (22, b"")
        other = await b.ask(Code.QUERY_MESSAGE, **ext | {"topic": "U"}, maxNum="9")
        assert other.code == 22


@pytest.mark.parametrize("log_offset", ["-1", "1", str(1 << 62)])
async def test_a_place_without_a_message_is_an_error_that_names_it(tmp_path: Path, log_offset: str) -> None:
    async with bench(tmp_path) as b:
        await b.send()
        code, remark = await b.refusal(Code.VIEW_MESSAGE_BY_ID, offset=log_offset)
        assert (code, remark) == (1, f"can not find message by the offset, {log_offset}")


async def test_entries_are_counted_out_and_an_sql_group_is_asked_its_expression(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for number in range(5):
            await b.send(TAGS="a", n=str(number))
        ext = {"topic": "T", "queueId": "0", "index": "1", "consumerGroup": "g"}
        for asked, found in (("-1", 1), ("0", 1), ("2", 2), ("1000000", 4)):
            page = orjson.loads((await b.ask(Code.QUERY_CONSUME_QUEUE, **ext, count=asked)).body)
            assert len(page["queueData"]) == found
            assert not any(item["eval"] for item in page["queueData"]), "nobody subscribes"
        peer = FakePeer(9)
        wanted = parse_subscription("T", "n > 2", "SQL92")
        joining = Joining("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", (wanted,))
        b.clients.consumer_joined(peer, Member("c", "JAVA", 409, 5), joining)
        page = orjson.loads((await b.ask(Code.QUERY_CONSUME_QUEUE, **ext, count="9")).body)
        assert [item["eval"] for item in page["queueData"]] == [False, False, True, True]
