"""What a send means, asked without a wire: as any front door does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack

import pytest

from appliance.broker.intake import Intake, Space
from appliance.broker.publish.dedup import DedupRules, DedupWindow
from appliance.broker.publish.publishing import Publishing, PublishRules, PublishTables
from appliance.broker.publish.questions import Questions
from appliance.broker.publish.send_properties import PropertyRules
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.testing import FakePeer, MemoryStateFile, SmallStore, small_store, wall_ms
from netstack.errors import Refused
from netstack.wire.command import RemotingCommand
from netstack.wire.message_headers import SendMessageHeader


class Library:
    """A client library that speaks another protocol."""

    language, version = "RUST", 500


class Counts:
    """What the broker's statistics were told."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, int, int]] = []
        self.failed = 0

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        self.puts.append((topic, queue_id, count))

    def put_failed(self) -> None:
        self.failed += 1


@asynccontextmanager
async def publishing(folder: Path) -> AsyncIterator[tuple[Publishing, SmallStore, Counts]]:
    async with small_store(folder) as small:
        counts, clients = Counts(), ClientTable(now_ms=wall_ms)
        dedup = DedupWindow(
            DedupRules(),
            now_s=lambda: 0.0,
            durable=lambda: small.store.committed,
            answered=lambda topic: small.store.committed,
            connected=clients.connected,
        )
        tables = PublishTables(
            TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=wall_ms),
            GroupTable(MemoryStateFile(), now_ms=wall_ms),
            clients,
            Questions(),
            dedup,
            Space(),
            counts,
        )
        rules = PublishRules(PropertyRules(cluster="C", region="R", trace_on=True), "box:1")
        yield Publishing(rules, tables, small.store, Intake(small.store)), small, counts


def header(topic: str = "T", queue_id: int = 0, properties: str = "") -> SendMessageHeader:
    return SendMessageHeader("P", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, properties)


async def test_a_message_is_stored_where_it_is_said_and_a_retry_is_the_same_one(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (door, small, counts):
        peer, sent = FakePeer(), header(properties="UNIQ_KEY\x01K\x02")
        topic = door.admit(sent, peer, Library())
        first = door.one(sent, b"body", topic, peer, answered=True)
        again = door.one(sent, b"body", topic, FakePeer(2), answered=True)
        assert first[:2] == (0, 0)
        assert again[:4] == first[:4], "the first reply is not out yet"
        assert counts.puts == [("T", 0, 1)]
        (stored,) = await small.wait_for("T", 1)
        assert (stored.body, stored.property_map["UNIQ_KEY"]) == (b"body", "K")


async def test_an_answered_message_is_a_retry_only_from_who_hung_up(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (door, small, _):
        peer, sent = FakePeer(), header(properties="UNIQ_KEY\x01K\x02")
        topic = door.admit(sent, peer, Library())
        first = door.one(sent, b"body", topic, peer, answered=True)
        await small.wait_for("T", 1)
        peer.hung_up = True  # its end has not been read yet
        again = door.one(sent, b"body", topic, other := FakePeer(2), answered=True)
        assert again[:4] == first[:4]
        assert door.admit(sent, other, Library()) == topic
        assert door.one(sent, b"body", topic, FakePeer(3), answered=True)[:4] != first[:4]


async def test_a_message_with_a_priority_is_in_the_queue_of_that_number(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (door, small, counts):
        for priority, queue_id in ((2, 2), (9, 3)):
            peer, sent = FakePeer(), header(properties=f"_SYS_MSG_PRIORITY_\x01{priority}\x02")
            topic = door.admit(sent, peer, Library())
            assert door.one(sent, b"body", topic, peer, answered=True)[:2] == (queue_id, 0)
            (stored,) = await small.wait_for("T", 1, queue_id)
            assert stored.property_map["_SYS_MSG_PRIORITY_"] == str(priority)
        assert counts.puts == [("T", 2, 1), ("T", 3, 1)]


async def test_a_batch_is_one_place_after_the_other_in_one_queue(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (door, small, _):
        peer, sent = FakePeer(), header(queue_id=2)
        body = b"".join(pack(">iiiii", 22 + 1, 0, 0, 0, 1) + letter + pack(">H", 0) for letter in (b"a", b"b", b"c"))
        topic = door.admit(sent, peer, Library())
        batch = await door.long_batch(sent, RemotingCommand(320, body=body), topic, peer)
        assert (batch.queue_id, batch.queue_offset, len(batch.places)) == (2, 0, 24)
        assert small.store.committed >= batch.end, "it returns when the batch is durable"
        assert [message.body for message in await small.wait_for("T", 3, 2)] == [b"a", b"b", b"c"]


async def test_a_refusal_needs_no_wire_either(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (door, _, counts):
        with pytest.raises(Refused, match="queueId\\[9\\] is illegal"):
            door.admit(header(queue_id=9), FakePeer(), Library())
        door.refused(None, Refused(1, "x"))
        assert counts.failed == 1
