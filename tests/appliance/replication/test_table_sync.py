"""Topics and groups become the master's, offsets are added, and what cannot be had or read changes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.broker.delay.timer_index import IndexState
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.replication.table_sync import CopiedTables, TableSync
from appliance.testing import MemoryStateFile
from netstack.errors import ProtocolError
from netstack.wire.codes import RequestCode as Code
from netstack.wire.replication import TimerCheckpoint

TOPIC = {"topicName": "T", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 1, "order": True}
GROUP = {"groupName": "g", "retryMaxTimes": 3, "consumeEnable": False}


class Source:
    """A master's tables by request code; an exception is raised."""

    def __init__(self) -> None:
        self.tables: dict[int, Mapping[str, Any] | Exception] = {
            Code.GET_ALL_TOPIC_CONFIG: {"T": TOPIC},
            Code.GET_ALL_CONSUMER_OFFSET: {"T@g": {"0": 5, "2": 7}},
            Code.GET_ALL_DELAY_OFFSET: {"1": 9},
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {"g": GROUP},
        }
        self.checkpoint: TimerCheckpoint | None = TimerCheckpoint(1_700_000_000_000, 12)
        self.is_reached = True

    async def table(self, code: int, name: str) -> Mapping[str, Any]:
        found = self.tables[code]
        if isinstance(found, Exception):
            raise found
        return found

    async def timers(self) -> TimerCheckpoint | None:
        return self.checkpoint

    async def reached(self) -> bool:
        return self.is_reached


class Slave:
    def __init__(self, *, most: int = 1000) -> None:
        self.source, self.delays, self.timers = Source(), MemoryStateFile(), MemoryStateFile()
        rules = TopicRules("Edge", "box", most=most)
        self.topics = TopicTable(MemoryStateFile(), rules, now_ms=lambda: 1)
        self.groups = GroupTable(MemoryStateFile(), most=most, now_ms=lambda: 1)
        self.offsets = OffsetTable(MemoryStateFile())
        tables = CopiedTables(self.topics, self.groups, self.offsets, self.delays, self.timers)
        self.sync = TableSync(self.source, tables)


async def test_everything_beside_the_log_is_the_masters() -> None:
    slave = Slave()
    slave.topics.put(Topic("gone"))
    slave.offsets.commit("g", "T", 1, 33)
    slave.groups.find("lost")
    await slave.sync.take()
    assert slave.sync.failure == ""
    assert slave.topics.get("T") == Topic("T", 3, 2, 4, sys_flag=1, order=True)
    assert slave.topics.get("gone") is None
    assert slave.topics.get("SCHEDULE_TOPIC_XXXX") is not None
    group = slave.groups.get("g")
    assert group is not None
    assert (group.retry_max_times, group.consume_enable, slave.groups.get("lost")) == (3, False, None)
    assert slave.groups.get("TOOLS_CONSUMER") is not None
    assert slave.offsets.of("T", "g") == {0: 5, 1: 33, 2: 7}
    assert slave.delays.content == {"offsetTable": {"1": 9}}
    assert IndexState.from_json(slave.timers.content) == IndexState(0, 12, 1_700_000_000_000, [])


async def test_numbers_that_no_queue_has_and_rows_that_go_too_deep_are_left_out() -> None:
    slave, deep = Slave(), dict[str, Any]()
    for _ in range(5000):
        deep = {"a": deep}
    slave.source.tables[Code.GET_ALL_CONSUMER_OFFSET] = {"T@g": {"0": 1e300}, "T@h": {"0": 5}, "T@i": deep}
    slave.source.tables[Code.GET_ALL_DELAY_OFFSET] = {"1": 9, "2": deep, "3": 1e300}
    slave.source.tables[Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = {"g": GROUP, "h": {**GROUP, "attributes": {"a": deep}}}
    await slave.sync.take()
    assert (slave.offsets.of("T", "g"), slave.offsets.of("T", "h")) == ({}, {0: 5})
    assert slave.delays.content == {"offsetTable": {"1": 9}}
    assert (slave.groups.get("g") is None, slave.groups.get("h")) == (False, None)


async def test_nothing_counts_as_done_before_the_log_is_there(tmp_path: Path) -> None:
    slave = Slave()
    slave.source.is_reached = False
    await slave.sync.take()
    assert (slave.sync.failure, slave.topics.get("T") is not None, slave.groups.get("g") is not None) == (
        "",
        True,
        True,
    )
    assert (slave.offsets.get("g", "T", 0), slave.delays.content, slave.timers.content) == (-1, None, None)
    slave.source.is_reached, slave.source.checkpoint = True, None  # of 4.9
    await slave.sync.take()
    assert (slave.offsets.get("g", "T", 0), slave.timers.content) == (5, None)
    assert slave.delays.content == {"offsetTable": {"1": 9}}


async def test_what_has_not_changed_is_not_written_again() -> None:
    slave = Slave()
    await slave.sync.take()
    before = slave.topics.version, slave.groups.version, slave.delays.writes, slave.offsets._save._changes
    await slave.sync.take()
    assert (slave.topics.version, slave.groups.version, slave.delays.writes, slave.offsets._save._changes) == before


async def test_a_table_that_cannot_be_had_leaves_the_others() -> None:
    slave = Slave()
    slave.source.tables[Code.GET_ALL_TOPIC_CONFIG] = ProtocolError("the master refused request code 21")
    slave.delays.failure = OSError(28, "No space left on device")
    await slave.sync.take()
    assert slave.sync.failure == "the master refused request code 21"
    assert (slave.topics.get("T"), slave.offsets.get("g", "T", 0)) == (None, 5)
    assert slave.groups.get("g") is not None
    slave.source.tables[Code.GET_ALL_TOPIC_CONFIG] = {"T": TOPIC}
    slave.delays.failure = None
    await slave.sync.take()
    assert (slave.sync.failure, slave.topics.get("T") is not None) == ("", True)
    assert slave.delays.content == {"offsetTable": {"1": 9}}


async def test_rows_that_no_master_has_are_left_out_and_numbers_are_bounded() -> None:
    slave = Slave()
    many = {**TOPIC, "topicName": "many", "readQueueNums": 1 << 40, "writeQueueNums": -5}
    slave.source.tables[Code.GET_ALL_TOPIC_CONFIG] = {
        "many": many, "../x": {**TOPIC, "topicName": "../x"}, "other": TOPIC, "none": 7, "T": TOPIC,
    }  # fmt: skip
    slave.source.tables[Code.GET_ALL_CONSUMER_OFFSET] = {"T@g": {"0": 5, "x": 1}, "U@g": {"0": 1}, "V@g": []}
    await slave.sync.take()
    topic = slave.topics.get("many")
    assert topic is not None
    assert (topic.read_queues, topic.write_queues) == (16_384, 0)
    assert [slave.topics.get(name) for name in ("../x", "other", "none")] == [None, None, None]
    assert (slave.offsets.get("g", "T", 0), slave.offsets.get("g", "U", 0)) == (-1, 1)


async def test_more_topics_than_there_is_room_for_are_told() -> None:
    slave = Slave(most=20)
    slave.source.tables[Code.GET_ALL_TOPIC_CONFIG] = {f"T{n}": {**TOPIC, "topicName": f"T{n}"} for n in range(50)}
    await slave.sync.take()
    assert "limits.topics allows 20" in slave.sync.failure
