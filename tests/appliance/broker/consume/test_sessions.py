"""Heartbeats, membership and its notification, leaving, queue locks, committed offsets."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.broker.consume import heartbeat as heartbeats
from appliance.broker.consume import queue_locks, sessions
from appliance.broker.consume.queue_locks import QueueLocks
from appliance.broker.consume.sessions import SessionTables
from appliance.broker.tables.arrivals import Arrivals
from appliance.broker.tables.clients import ClientTable, Joining, Member
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.requests import Reply
from appliance.testing import FakePeer, MemoryStateFile
from netstack.serving.channel import Channel
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import Box, ask, connected, heartbeat, pull, running_box, send
from tests.waiting import until


@asynccontextmanager
async def member(box: Box) -> AsyncIterator[tuple[Channel, list[str]]]:
    """Connect; the list gets the groups of which code 40 tells."""
    told: list[str] = []

    def handle(request: RemotingCommand, peer: object) -> None:
        if request.code == 40:
            told.append(request.ext["consumerGroup"])

    async with connected(box, handle=handle) as channel:
        yield channel, told


async def eventually(told: list[str], count: int) -> None:
    await until(lambda: len(told) >= count)


def members(answer: RemotingCommand) -> list[str]:
    return sorted(json.loads(answer.body)["consumerIdList"])


async def test_members_hear_at_once_who_comes_and_goes(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, member(box) as (first, told):
        await first.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await eventually(told, 1)
        async with member(box) as (second, told_second):
            await second.ask(heartbeat("c@2", consumers={"CG": {"T": "*"}}))
            await eventually(told, 2)
            await eventually(told_second, 1)
            assert members(await first.ask(ask(38, consumerGroup="CG"))) == ["c@1", "c@2"]
            await second.ask(heartbeat("c@2", consumers={"CG": {"T": "*"}}))
        await eventually(told, 3)
        assert members(await first.ask(ask(38, consumerGroup="CG"))) == ["c@1"]
        assert set(told) == {"CG"}


async def test_leaving_empties_the_group(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await channel.ask(ask(35, clientID="c@1", consumerGroup="CG"))
        answer = await channel.ask(ask(38, consumerGroup="CG"))
        assert (answer.code, answer.remark) == (1, "no consumer for this group, CG")


async def test_the_retry_topic_is_there_from_the_first_heartbeat(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        assert (await channel.ask(pull("%RETRY%CG"))).code == 19


async def test_locks_are_granted_kept_and_freed(tmp_path: Path) -> None:
    def lock(code: int, client_id: str, *queue_ids: int) -> RemotingCommand:
        queues = [{"topic": "T", "brokerName": "box", "queueId": queue_id} for queue_id in queue_ids]
        return request(code, {}, json.dumps({"consumerGroup": "CG", "clientId": client_id, "mqSet": queues}).encode())

    def granted(answer: RemotingCommand) -> list[int]:
        return [queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]]

    async with running_box(tmp_path) as box, connected(box) as channel:
        assert granted(await channel.ask(lock(41, "c@1", 0, 1))) == [0, 1]
        assert granted(await channel.ask(lock(41, "c@2", 1, 2))) == [2]
        await channel.ask(lock(42, "c@2", 1))
        assert granted(await channel.ask(lock(41, "c@2", 1))) == []
        await channel.ask(lock(42, "c@1", 1))
        assert granted(await channel.ask(lock(41, "c@2", 1))) == [1]
        assert (await channel.ask(request(41, {}, b"{}"))).code == 1


@pytest.mark.parametrize(
    ("kind", "text", "code"), [("TAG", "A", 0), ("SQL92", "a > 1", 0), ("SQL92", "a >", 23), ("LUA", "x", 1)]
)
async def test_a_filter_is_checked_before_its_consumer_starts(tmp_path: Path, kind: str, text: str, code: int) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        subscription = {"topic": "T", "subString": text, "expressionType": kind}
        body = json.dumps({"clientId": "c@1", "group": "CG", "subscriptionData": subscription}).encode()
        assert (await channel.ask(request(46, {}, body))).code == code


async def test_the_connection_of_a_silent_client_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.broker.tables.clients.EXPIRY_MS", -1)
    monkeypatch.setattr("appliance.broker.consume.sessions.SCAN_S", 0.05)
    async with running_box(tmp_path) as box, connected(box) as silent, connected(box) as stranger:
        await silent.ask(heartbeat("me", producers=("pg",)))
        with trio.fail_after(25):
            await silent.closed.wait()
        assert (await stranger.ask(send("T"))).code == 0  # known by its request alone: nobody expects heartbeats of it


async def test_a_group_whose_name_is_not_legal_has_no_members(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        answer = await channel.ask(heartbeat("c@1", consumers={"g\x1b[2J": {"T": "*"}}))
        assert (answer.code, answer.remark) == (1, "group 'g\\x1b[2J' is not a legal name of a group")
        assert (await channel.ask(send("T"))).code == 0
        offset = ask(15, consumerGroup="g\n", topic="T", queueId=0, commitOffset=1)
        assert "not a legal name" in ((await channel.ask(offset)).remark or "")


async def test_a_thread_reads_large_bodies_and_the_answers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()

    def noted(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def run(body: bytes) -> Any:
            threads.append(threading.get_ident())
            return read(body)

        return run

    monkeypatch.setattr(sessions, "LARGE", 400)
    monkeypatch.setattr(sessions, "read_heartbeat", noted(heartbeats.read_heartbeat))
    monkeypatch.setattr(sessions, "read_lock", noted(heartbeats.read_lock))
    queues = [{"topic": "T", "brokerName": "box", "queueId": queue_id} for queue_id in range(9)]
    locks = json.dumps({"consumerGroup": "CG", "clientId": "c@1", "mqSet": queues}).encode()
    async with running_box(tmp_path) as box, connected(box) as channel:
        topics = {f"T{number}": "*" for number in range(9)}
        answer = await channel.ask(heartbeat("c@1", consumers={"CG": topics, "DG": topics}))
        assert (answer.code, members(await channel.ask(ask(38, consumerGroup="DG")))) == (0, ["c@1"])
        answer = await channel.ask(request(41, {}, locks))
        assert len(json.loads(answer.body)["lockOKMQSet"]) == 9
        assert (await channel.ask(request(42, {}, locks))).code == 0
        refused = await channel.ask(heartbeat("c@1", consumers={"a" * 300: topics}))
        assert refused.code == 1
    assert len(threads) == 4
    assert threading.get_ident() not in threads


def session_tables(now_ms: Callable[[], int]) -> SessionTables:
    return SessionTables(
        TopicTable(MemoryStateFile(), TopicRules("Edge", "box"), now_ms=now_ms),
        GroupTable(MemoryStateFile(), now_ms=now_ms),
        ClientTable(now_ms=now_ms),
        QueueLocks(lambda: 0.0),
        Arrivals(10, lambda queue: 0),
        CompilePace(lambda: 0.0),
    )


class Untold(FakePeer):
    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        raise ValueError("not told")


async def test_a_member_that_cannot_be_told_keeps_no_other_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    tables = session_tables(lambda: 0)
    made = sessions.Sessions(tables, broker="box", now_ms=lambda: 0, property_filter=True, notify=True)
    joining = Joining("CG", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", ())
    other = FakePeer(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        for number, peer in enumerate((Untold(), other)):
            tables.clients.consumer_joined(peer, Member(f"c@{number}", "JAVA", 409, 0), joining)
        assert (await other.wait_told())[0][:2] == (40, {"consumerGroup": "CG"})
        nursery.cancel_scope.cancel()
    assert "event=member_not_told group=CG" in caplog.text


def test_locks_count_for_the_address_that_asks_except_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 20)
    monkeypatch.setattr(queue_locks, "ALWAYS_ALLOWED", 1)

    def now_ms() -> int:
        return 0

    tables = session_tables(now_ms)
    asked = sessions.Sessions(tables, broker="box", now_ms=now_ms, property_filter=True, notify=False)
    lock = asked.handlers()[41]

    def granted(address: str, group: str) -> int:
        queues = [{"topic": "T", "queueId": queue_id} for queue_id in range(20)]
        body = json.dumps({"consumerGroup": group, "clientId": "c@1", "mqSet": queues}).encode()
        answer = lock(request(41, {}, body), FakePeer(remote=(address, 5)))
        assert isinstance(answer, Reply)
        return len(json.loads(answer.response.body)["lockOKMQSet"])

    assert [granted(*asked) for asked in (("10.0.0.1", "a"), ("10.0.0.2", "b"), ("127.0.0.1", "c"))] == [10, 5, 5]
