"""Over a real store: an unused group goes with its retry topic; a topic stays while it is consumed or has messages."""

from pathlib import Path

from appliance.broker.filter.subscriptions import Subscription
from appliance.broker.tables.clients import ClientTable, Joining, Member
from appliance.broker.tables.creations import HOUR_MS, Creations
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.broker.tables.unused import Unused, UnusedTables
from appliance.testing import FakePeer, MemoryStateFile, small_store
from storage_driver.record import Message, encode_host
from tests.costs import steps


async def test_what_nobody_uses_is_deleted_and_what_is_used_stays(tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000

    def clock() -> int:
        return now_ms

    async with small_store(tmp_path / "store", now_ms=clock) as small:
        creations = Creations(MemoryStateFile(), per_hour=100, now_ms=clock)
        topics = TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=clock)
        groups = GroupTable(MemoryStateFile(), now_ms=clock)
        topics.creations = groups.creations = creations
        offsets = OffsetTable(MemoryStateFile())
        for name in ("Sent", "Empty"):
            topics.for_send(name, template="TBW102", queues=4, by="10.0.0.1")
        for name in ("Committed", "Idle"):
            groups.find(name, "10.0.0.1")
            topics.ensure(f"%RETRY%{name}", queues=1)
        placed = small.store.put(Message("Sent", 0, b"x", b"", 0, 0, 1, encode_host("127.0.0.1", 1)))
        await small.store.wait_committed(placed.end)
        offsets.commit("Committed", "Sent", 0, 1)
        tables = UnusedTables(topics, groups, offsets, ClientTable(most=10, now_ms=clock))
        unused = Unused(tables, small.store, creations)
        assert unused.delete_now() == []
        now_ms += HOUR_MS
        assert sorted(unused.delete_now()) == ["group Idle", "topic Empty"]
        names = set(topics.names())
        assert {"Sent", "%RETRY%Committed"} <= names
        assert not {"Empty", "%RETRY%Idle"} & names
        assert groups.get("Committed") is not None
        assert groups.get("Idle") is None


async def test_a_topic_that_no_group_consumes_goes_with_its_last_message(tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000

    def clock() -> int:
        return now_ms

    async with small_store(tmp_path / "store", now_ms=clock) as small:
        creations = Creations(MemoryStateFile(), per_hour=100, now_ms=clock)
        topics, offsets = (
            TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=clock),
            OffsetTable(MemoryStateFile()),
        )
        topics.creations = creations
        clients = ClientTable(most=10, now_ms=clock)
        for name in ("Junk", "Consumed", "Subscribed", "Later"):
            topics.for_send(name, template="TBW102", queues=4, by="10.0.0.1")
            for _ in range(22 if name == "Later" else 1):  # the last one is in the second segment, which stays
                placed = small.store.put(Message(name, 0, bytes(60_000), b"", 0, 0, 1, encode_host("127.0.0.1", 1)))
        await small.store.wait_committed(placed.end)
        offsets.commit("G", "Consumed", 0, 1)
        joining = Joining("G", "CONSUME_PASSIVELY", "BROADCASTING", "", (Subscription("Subscribed", "*"),))
        clients.consumer_joined(FakePeer(), Member("c@1", "JAVA", 1, now_ms), joining)
        unused = Unused(
            UnusedTables(topics, GroupTable(MemoryStateFile(), now_ms=clock), offsets, clients), small.store, creations
        )
        now_ms += HOUR_MS
        assert unused.delete_now() == [], "all have messages"
        assert await small.store.drop_first()
        assert unused.delete_now() == ["topic Junk"]


async def test_offsets_are_looked_through_once_and_not_for_each_topic_and_group(tmp_path: Path) -> None:
    def clock() -> int:
        return 1_700_000_000_000

    async with small_store(tmp_path / "store", now_ms=clock) as small:
        creations = Creations(MemoryStateFile(), per_hour=1000, now_ms=clock)
        topics = TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=clock)
        groups, offsets = GroupTable(MemoryStateFile(), now_ms=clock), OffsetTable(MemoryStateFile())
        topics.creations = groups.creations = creations
        for number in range(100):
            topics.for_send(f"T{number}", template="TBW102", queues=4, by="10.0.0.1")
            groups.find(f"G{number}", "10.0.0.1")
        for number in range(1000):
            offsets.commit(f"other{number}", "T0", 0, 1)
        unused = Unused(
            UnusedTables(topics, groups, offsets, ClientTable(most=10, now_ms=clock)), small.store, creations
        )
        with steps() as taken:
            assert unused.delete_now() == []
        assert taken() < 20_000
        assert len(creations) == 199, "a topic is consumed"
