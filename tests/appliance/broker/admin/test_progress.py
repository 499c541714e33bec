"""How far groups have come, and moving them, over a real store."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from appliance.broker.admin import progress
from appliance.broker.tables.groups import Group
from appliance.broker.tables.topics import Topic
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import FIRST_5X_VERSION, RemotingCommand
from tests.appliance.admin_bench import Bench, bench
from tests.costs import steps
from tests.waiting import until


async def test_progress_lists_every_read_queue(tmp_path: Path) -> None:
    clock = [1000]
    async with bench(tmp_path, clock) as b:
        b.topics.put(Topic("T", 2, 2))
        await b.send(5, queue_id=1)
        b.offsets.commit("g", "T", 1, 3)
        body = (await b.ask(Code.GET_CONSUME_STATS, consumerGroup="g")).body
        assert body == (
            b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"box","queueId":0,"topic":"T"}:'
            b'{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0},'
            b'{"brokerName":"box","queueId":1,"topic":"T"}:'
            b'{"brokerOffset":5,"consumerOffset":3,"lastTimestamp":1000,"pullOffset":3}}}'
        )
        unknown = await b.ask(Code.GET_CONSUME_STATS, consumerGroup="nobody", topic="")
        assert (unknown.code, unknown.body) == (0, b'{"consumeTps":0.0,"offsetTable":{}}')
        listed = fastjson.loads((await b.ask(Code.GET_BROKER_CONSUME_STATS, isOrder="false")).body)
        assert (listed["totalDiff"], list(listed["consumeStatsList"][0])) == (2, ["g"])
        assert fastjson.loads((await b.ask(Code.GET_BROKER_CONSUME_STATS, isOrder="true")).body)["totalDiff"] == 0
        assert (await b.ask(Code.GET_ALL_CONSUMER_OFFSET)).body == b'{"offsetTable":{"T@g":{"1":3}}}'


async def test_progress_tells_apart_what_a_group_was_given_and_what_it_has_done(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.send(5)
        b.offsets.note_given("g", "T", 0, 5)
        b.offsets.commit("g", "T", 0, 2)
        assert b.offsets.given("g", "T", 0) == 2, "nothing is kept of groups without offsets"
        b.offsets.note_given("g", "T", 0, 5)
        told = (await b.ask(Code.GET_CONSUME_STATS, consumerGroup="g")).body
        assert b'"brokerOffset":5,"consumerOffset":2,"lastTimestamp"' in told
        assert b'"pullOffset":5}' in told
        b.offsets.drop_group("g")
        assert b.offsets.given("g", "T", 0) == -1


async def test_without_offsets_there_is_nothing_to_list(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        assert await b.refusal(Code.GET_ALL_CONSUMER_OFFSET) == (1, "No consumer offset in this broker")
        assert await b.refusal(Code.GET_ALL_DELAY_OFFSET) == (1, "No delay offset in this broker")


async def reset(b: Bench, time_ms: int, force: bool = True) -> RemotingCommand:
    ext = {"topic": "T", "group": "g", "timestamp": str(time_ms), "isForce": "true" if force else "false"}
    return await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **ext)


async def test_a_reset_is_told_to_every_member_in_the_form_it_reads(tmp_path: Path) -> None:
    clock = [1000]
    async with bench(tmp_path, clock) as b:
        b.topics.put(Topic("T", 1, 1))
        for clock[0] in (1000, 2000, 3000, 4000):
            await b.send()
        b.offsets.commit("g", "T", 0, 2)
        java, cpp = b.consumer(1), b.consumer(2, language="CPP")
        response = await reset(b, 1000)
        raw = b'{"offsetTable":{{"brokerName":"box","queueId":0,"topic":"T"}:0}}'
        assert (response.code, response.body) == (0, raw)
        assert java.told == [
            (220, {"topic": "T", "group": "g", "timestamp": "1000", "isForce": "true"}, raw),
        ]
        assert cpp.told[0][2] == b'{"offsetTable":[{"brokerName":"box","offset":0,"queueId":0,"topic":"T"}]}'
        assert b":4}" in (await reset(b, -1)).body
        assert b":2}" in (await reset(b, -1, force=False)).body
        assert b":0}" in (await reset(b, 500, force=False)).body


async def test_a_reset_waits_for_the_next_pulls_of_members_of_5_x_however_late_they_come(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 1, 1))
        await b.send(4)
        b.offsets.commit("g", "T", 0, 4)
        old, new = b.consumer(1), b.consumer(2, version=FIRST_5X_VERSION)
        assert (await reset(b, 0)).code == 0
        assert ([code for code, _, _ in old.told], new.told) == ([220], [])
        b.offsets.commit("g", "T", 0, 4)  # before it heard of the reset
        assert b.offsets.get("g", "T", 0) == 0, "after a restart the group is where it was put"
        assert [b.offsets.take_reset("g", "T", 0) for _ in range(2)] == [0, None]
        b.offsets.commit("g", "T", 0, 4)
        assert b.offsets.get("g", "T", 0) == 4
        await reset(b, -1)
        b.offsets.drop_group("g")
        assert not b.offsets.resets


async def test_a_later_decision_takes_the_place_of_a_reset_that_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 1, 1))
        await b.send(4)
        b.offsets.commit("g", "T", 0, 4)
        new = b.consumer(2, version=FIRST_5X_VERSION)
        await reset(b, 0)
        asked = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "false", "queueId": "0", "offset": "3"}
        assert (await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **asked)).code == 0
        assert (b.offsets.get("g", "T", 0), b.offsets.resets) == (3, {("g", "T", 0): 3})
        b.clients.closed(new)
        b.consumer(1)  # older: it is told and not waited for
        await reset(b, 0)
        assert not b.offsets.resets
        b.offsets.reset("g", "T", 0, 1)
        b.offsets.move("g", "T", 0, 2)
        assert (b.offsets.get("g", "T", 0), b.offsets.resets) == (2, {})


async def test_a_reset_of_a_tool_of_5_x_to_a_time_after_the_last_message_goes_to_the_end(tmp_path: Path) -> None:
    clock = [1000]
    async with bench(tmp_path, clock) as b:
        b.topics.put(Topic("T", 1, 1))
        for clock[0] in (1000, 2000, 3000):
            await b.send()
        b.offsets.commit("g", "T", 0, 0)
        b.consumer()
        one_queue = {"topic": "T", "group": "g", "timestamp": "9000", "isForce": "true", "queueId": "0"}
        b.version = FIRST_5X_VERSION
        assert b":3}" in (await reset(b, 9000)).body
        assert b":2}" in (await reset(b, 2001)).body
        assert b":3}" in (await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **one_queue)).body
        b.version = FIRST_5X_VERSION - 1
        assert b":2}" in (await reset(b, 9000)).body, "4.9 goes to the message nearest to a time"


async def test_a_reset_of_one_queue_moves_that_queue_alone_and_holds_for_who_comes_later(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for queue_id in range(2):
            await b.send(4, queue_id=queue_id)
            b.offsets.commit("g", "T", queue_id, 4)
        asked = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "false", "queueId": "1", "offset": "3"}
        raw = b'{"offsetTable":{{"brokerName":"box","queueId":1,"topic":"T"}:3}}'
        assert (await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **asked)).body == raw, "nobody is connected"
        member = b.consumer()
        assert (await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **asked)).body == raw
        assert [body for _, _, body in member.told] == [raw]
        assert b.offsets.of("T", "g") == {0: 4, 1: 3}
        assert b":0}" in (await b.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **asked | {"offset": "-1"})).body
        text = "Target offset 5 not in consume queue range [0-4]"
        assert await b.refusal(Code.INVOKE_BROKER_TO_RESET_OFFSET, **asked | {"offset": "5"}) == (1, text)


async def test_a_reset_that_reaches_nobody_is_refused_as_tools_expect(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 1, 1))
        assert (await reset(b, 1)).remark == "THe consumer group <g> not exist"
        b.offsets.commit("g", "T", 0, 0)
        offline = await reset(b, 1)
        assert offline.code == 206
        assert offline.remark == "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 1"
        b.topics.delete("T")
        assert "no topic in this broker. topic=T" in str((await reset(b, 1)).remark)


async def test_a_group_without_offsets_is_reset_if_it_exists(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 1, 1))
        b.groups.put(Group("g"))
        await b.send(3)
        assert (await reset(b, -1)).code == 206, "tools store the offsets then"
        member = b.consumer()
        raw = b'{"offsetTable":{{"brokerName":"box","queueId":0,"topic":"T"}:3}}'
        assert (await reset(b, -1)).body == raw
        assert [body for _, _, body in member.told] == [raw]


async def test_offsets_are_cloned_and_compared(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.offsets.commit("a", "T", 0, 5)
        b.offsets.commit("b", "T", 0, 3)
        assert (await b.ask(Code.CLONE_GROUP_OFFSET, srcGroup="a", destGroup="c", topic="T", offline="true")).code == 0
        assert b.offsets.get("c", "T", 0) == 5
        body = (await b.ask(Code.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="a", filterGroups="x")).body
        assert body == b'{"correctionOffsets":{"0":3}}'
        own = (await b.ask(Code.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="b", filterGroups="")).body
        assert own == b'{"correctionOffsets":{"0":9223372036854775807}}'


async def test_a_clone_replaces_what_the_target_had_and_leaves_topics_that_are_gone(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("U", 1, 1))
        for topic, queue_id, offset in (("T", 0, 5), ("T", 1, 6), ("U", 0, 7), ("gone", 0, 8)):
            b.offsets.commit("a", topic, queue_id, offset)
        b.offsets.commit("c", "T", 3, 99)
        assert (await b.ask(Code.CLONE_GROUP_OFFSET, srcGroup="a", destGroup="c", topic="", offline="true")).code == 0
        assert (b.offsets.of("T", "c"), b.offsets.of("U", "c"), b.offsets.of("gone", "c")) == ({0: 5, 1: 6}, {0: 7}, {})
        assert (await b.ask(Code.CLONE_GROUP_OFFSET, srcGroup="a", destGroup="a", topic="T", offline="true")).code == 0
        assert b.offsets.of("T", "a") == {0: 5, 1: 6}


async def test_a_group_of_which_one_queue_was_never_read_is_not_reset_and_nobody_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 2, 2))
        b.offsets.commit("g", "T", 0, 0)
        peer = b.consumer()
        assert (await reset(b, -1)).code == 1
        assert peer.told == []


async def test_an_offset_beyond_the_end_counts_as_negative_lag_of_its_queue_and_not_of_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("T", 1, 1))
        await b.send(2)
        b.offsets.commit("g", "T", 0, 2)
        b.offsets.commit("h", "T", 0, 0)
        listed = fastjson.loads((await b.ask(Code.GET_BROKER_CONSUME_STATS, isOrder="false")).body)
        assert listed["totalDiff"] == 2
        b.topics.delete("T")
        assert fastjson.loads((await b.ask(Code.GET_BROKER_CONSUME_STATS, isOrder="false")).body)["totalDiff"] == 0


async def test_a_topic_that_is_named_a_thousand_times_is_looked_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.put(Topic("Wide", 1024, 1024))
        asked = {"consumerGroup": "g", "topicList": "Wide;" * 1000 + "T;none"}
        with steps() as taken:
            told = await b.ask(Code.GET_CONSUME_STATS, **asked)
        assert taken() < 100_000, "a million queues would be looked at"
        assert told.body.count(b'"brokerOffset"') == 1024 + 4


@pytest.mark.parametrize(
    ("code", "ext"),
    [(Code.GET_CONSUME_STATS, {"consumerGroup": "g"}), (Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})],
)
async def test_progress_in_more_queues_than_one_answer_holds_is_refused_before_it_is_made(
    tmp_path: Path, code: int, ext: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MOST_ROWS", 50)
    async with bench(tmp_path) as b:
        for number in range(6):
            b.topics.put(Topic(f"T{number}", 10, 10))
            b.offsets.commit("g", f"T{number}", 0, 1)
        with steps() as taken:
            refused = await b.refusal(code, **ext)
        assert refused[0] == 1
        assert "60 queues" in refused[1]
        assert taken() < 1000
        b.offsets.drop_topic("T5")
        assert (await b.ask(code, **ext)).body.count(b'"brokerOffset"') == 50


async def test_large_answers_are_made_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes tens of MiB while it is made; small ones do not wait for them, nor do slaves."""
    monkeypatch.setattr(progress, "FEW_ROWS", 5)
    async with bench(tmp_path) as b:
        b.topics.put(Topic("Wide", 10, 10))
        b.offsets.commit("g", "Wide", 0, 1)
        begun, go_on, ended = list[int](), trio.Event(), list[str]()
        written = progress._written

        async def held(body: Any, rows: int) -> bytes:
            if rows > 5:
                begun.append(rows)
                await go_on.wait()
            return await written(body, rows)

        async def ask(code: int, **ext: str) -> None:
            ended.append(f"{code} {(await b.ask(code, **ext)).code}")

        monkeypatch.setattr(progress, "_written", held)
        async with trio.open_nursery() as nursery:
            for code in (208, 317, 208):
                nursery.start_soon(partial(ask, code, consumerGroup="g", isOrder="false"))
            await until(lambda: begun)
            nursery.start_soon(ask, 43)
            nursery.start_soon(partial(ask, 208, consumerGroup="g", topic="T"))
            await trio.testing.wait_all_tasks_blocked()
            assert (begun, sorted(ended)) == ([10], ["208 0", "43 0"])
            go_on.set()
        assert sorted(ended) == ["208 0", "208 0", "208 0", "317 0", "43 0"]
