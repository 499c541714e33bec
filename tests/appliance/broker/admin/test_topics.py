"""Administration of topics over a real store."""

from pathlib import Path

import orjson
import pytest

from appliance.broker.tables.topics import Topic
from appliance.testing import MemoryStateFile
from netstack.wire.codes import RequestCode as Code
from tests.appliance.admin_bench import bench

NEW = {
    "defaultTopic": "TBW102",
    "readQueueNums": "3",
    "writeQueueNums": "5",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}


async def test_a_topic_is_created_changed_listed_and_deleted(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        assert (await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="N", **NEW)).code == 0
        topic = b.topics.get("N")
        assert topic is not None
        assert (topic.read_queues, topic.write_queues, topic.perm) == (3, 5, 6)
        one = orjson.loads((await b.ask(Code.GET_TOPIC_CONFIG, topic="N")).body)
        assert (one["topicName"], one["readQueueNums"], one["writeQueueNums"]) == ("N", 3, 5)
        everything = orjson.loads((await b.ask(Code.GET_ALL_TOPIC_CONFIG)).body)
        assert {"T", "N", "TBW102"} <= everything["topicConfigTable"].keys()
        assert "RBX_PROBE" not in everything["topicConfigTable"]
        await b.send(topic="N")
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="N")).code == 0
        assert b.topics.get("N") is None
        assert "N" not in b.store.topics()
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="N")).code == 0
        assert (await b.ask(Code.GET_TOPIC_CONFIG, topic="N")).code == 17


async def test_a_deletion_is_answered_once_the_offsets_are_gone_from_the_disk(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.offsets.commit("G", "T", 0, 20)
        b.offsets.commit("G", "U", 0, 1)
        await b.offsets.flush()
        file = b.offsets._file
        assert isinstance(file, MemoryStateFile)
        file.failure = OSError(28, "No space left on device")
        failed = await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="T")
        assert failed.code == 1
        assert "No space left" in str(failed.remark)
        file.failure = None
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        assert file.content == {"offsetTable": {"U@G": {"0": 1}}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "box"}, "The topic[box] is conflict with system topic."),
        ({"topic": "bad!"}, "illegal characters"),
        ({"topic": "N", "writeQueueNums": "99999999"}, "writeQueueNums is 99999999"),
        ({"topic": "N", "attributes": "+message.type=ODD"}, "attribute"),
        ({"topic": "N", "attributes": "-message.type"}, "attribute"),
        ({"topic": "N", "attributes": "+queue.type=BatchCQ"}, "queue.type=BatchCQ is not supported"),
        ({"topic": "N", "attributes": "+cleanup.policy=COMPACTION"}, "cleanup.policy=COMPACTION is not supported"),
        ({"topic": "N", "attributes": "+acknowledge=twice"}, "attribute"),
        ({"topic": "N", "attributes": "+acknowledge=both"}, "acknowledge=both: this box is not in a group"),
    ],
)
async def test_a_topic_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    async with bench(tmp_path) as b:
        code, remark = await b.refusal(Code.UPDATE_AND_CREATE_TOPIC, **NEW | changes)
        assert code == 1
        assert words in remark
        assert b.topics.get("N") is None


async def test_attributes_and_lists_of_topics_come_from_5x_tools(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="N", attributes="+message.type=FIFO", **NEW)
        assert dict(b.topics.get("N").attributes) == {"message.type": "FIFO"}  # type: ignore[union-attr]
        await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="N", attributes="-message.type", **NEW)
        assert dict(b.topics.get("N").attributes) == {}  # type: ignore[union-attr]
        body = b'{"topicConfigList":[{"topicName":"A","perm":4},{"topicName":"B","readQueueNums":2}]}'
        assert (await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, body)).code == 0
        assert b.topics.get("A").perm == 4  # type: ignore[union-attr]
        typed = b'{"topicConfigList":[{"topicName":"A","attributes":{"+message.type":"DELAY"}}]}'
        assert (await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, typed)).code == 0
        assert dict(b.topics.get("A").attributes) == {"message.type": "DELAY"}  # type: ignore[union-attr]
        compacted = b'{"topicConfigList":[{"topicName":"C","attributes":{"+cleanup.policy":"COMPACTION"}}]}'
        assert (await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, compacted)).code == 1
        bad = b'{"topicConfigList":[{"topicName":"C"},{"topicName":"bad!"}]}'
        assert (await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, bad)).code == 1
        assert b.topics.get("C") is None


async def test_topic_statistics_have_a_row_per_queue_in_the_form_go_cuts_apart(tmp_path: Path) -> None:
    clock = [1_700_000_000_000]
    async with bench(tmp_path, clock) as b:
        b.topics.put(Topic("T", 1, 2))
        await b.send(3, queue_id=1)
        body = (await b.ask(Code.GET_TOPIC_STATS_INFO, topic="T")).body
        assert body == (
            b'{"offsetTable":{{"brokerName":"box","queueId":0,"topic":"T"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
            b'{"brokerName":"box","queueId":1,"topic":"T"}:'
            b'{"lastUpdateTimestamp":1700000000000,"maxOffset":3,"minOffset":0}},"topicPutTps":0.0}'
        )
        assert await b.refusal(Code.GET_TOPIC_STATS_INFO, topic="nobody") == (17, "topic[nobody] not exist")


async def test_system_topics_consumers_of_a_topic_and_leftover_queues(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        system = orjson.loads((await b.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "Edge", "box", "Edge_REPLY_TOPIC"} <= set(system["topicList"])
        b.consumer(group="online")
        b.offsets.commit("stored", "T", 0, 1)
        assert (await b.ask(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")).body == b'{"groupList":["online","stored"]}'
        await b.send(topic="leftover")
        assert (await b.ask(Code.CLEAN_UNUSED_TOPIC)).code == 0
        assert "leftover" not in b.store.topics()


async def test_time_spans_say_where_a_group_stands(tmp_path: Path) -> None:
    clock = [1000]
    async with bench(tmp_path, clock) as b:
        b.topics.put(Topic("T", 1, 1))
        for clock[0] in (1000, 2000, 3000):
            await b.send()
        clock[0] = 10_000
        b.offsets.commit("g", "T", 0, 1)
        spans = orjson.loads((await b.ask(Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")).body)
        (span,) = spans["consumeTimeSpanSet"]
        named = ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp", "delayTime")
        assert [span[name] for name in named] == [1000, 3000, 1000, 8000]
        assert (await b.ask(Code.QUERY_CONSUME_TIME_SPAN, topic="nobody", group="g")).code == 17


async def test_a_list_beyond_the_limit_makes_none_of_its_topics(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.topics.rules = b.topics.rules._replace(most=len(b.topics) + 1)
        body = b'{"topicConfigList":[{"topicName":"A"},{"topicName":"T"},{"topicName":"B"}]}'
        answer = await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, body)
        assert (answer.code, "limits.topics" in (answer.remark or "")) == (1, True)
        assert (b.topics.get("A"), b.topics.get("B")) == (None, None)
        assert (await b.post(Code.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[]}')).code == 0


async def test_fewer_queues_hide_no_message_and_deleting_ends_offsets_and_messages(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.send(2, queue_id=3)
        b.offsets.commit("g", "T", 3, 1)
        few = NEW | {"readQueueNums": "1", "writeQueueNums": "1"}
        assert (await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="T", **few)).code == 0
        assert len(await b.small.all("T", 3)) == 2
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        assert (b.offsets.get("g", "T", 3), b.store.topics()) == (-1, [])
        assert (await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic="T", **NEW)).code == 0
        assert (await b.send(queue_id=3))[0].queue_offset == 0


async def test_what_is_sent_while_its_topic_is_deleted_and_was_acknowledged_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as b:
        await b.send(queue_id=3)
        flusher = b.store._flusher
        save = flusher.save

        async def save_and_send() -> None:
            await save()
            monkeypatch.undo()
            b.topics.ensure("T", queues=4)  # as a send makes it
            await b.send(queue_id=3)

        monkeypatch.setattr(flusher, "save", save_and_send)
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        assert (b.topics.get("T") is not None, len(await b.small.all("T", 3))) == (True, 2)


@pytest.mark.parametrize(
    "name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "box", "Edge", "RBX_PROBE", "../x", ""]
)
async def test_system_topics_and_no_names_are_neither_changed_nor_deleted(tmp_path: Path, name: str) -> None:
    async with bench(tmp_path) as b:
        before = b.topics.get(name)
        assert (await b.ask(Code.DELETE_TOPIC_IN_BROKER, topic=name)).code == 1
        assert (await b.ask(Code.UPDATE_AND_CREATE_TOPIC, topic=name, **NEW)).code == 1
        assert b.topics.get(name) == before


async def test_cleaning_up_touches_no_topic_that_is_listed_and_none_of_the_brokers_own(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for topic in ("T", "leftover", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
            await b.send(topic=topic)
        assert (await b.ask(Code.CLEAN_UNUSED_TOPIC)).code == 0
        assert set(b.store.topics()) == {
            *("T", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"),
        }
