"""The instance: NameServers in turn, heartbeats to who is new, routes kept fresh, wrong use told."""

import re
import socket
from typing import Any

import pytest
import trio

from netstack.client import BrokerRefused, NoNameServer, NoRoute, TimedOut, Unreachable
from netstack.client.instance import Instance
from netstack.client.name_servers import name_servers
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.bodies import HeartbeatData
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from tests.waiting import until

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":%d,"topicSysFlag":0,"writeQueueNums":1}]}'
)


class Fake:
    """A NameServer and broker on one port."""

    def __init__(self) -> None:
        self.port, self.queues = 0, 1
        self.codes: list[int] = []
        self.heartbeats: list[HeartbeatData] = []

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.codes.append(request.code)
        if request.code == 34:
            self.heartbeats.append(HeartbeatData.from_bytes(request.body))
        if request.code == 105 and request.ext["topic"] == "T":
            return Reply(request.reply(body=ROUTE % (self.port, self.queues)))
        if request.code == 105:
            return Reply(request.reply(17 if request.ext["topic"] == "none" else 1, "no"))
        return None if request.code == 12 else Reply(request.reply())


class Consumer:
    group, topics = "CG", ("T",)

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def heartbeat(self) -> Any:
        from netstack.wire.bodies import ConsumerData

        return ConsumerData("CG")


def test_addresses_are_a_list_a_text_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_servers("a:1;b:2, c:3") == ["a:1", "b:2", "c:3"]
    assert name_servers(["a:1 ", ""]) == ["a:1"]
    monkeypatch.setenv("NAMESRV_ADDR", "e:1;f:2")
    assert name_servers(None) == ["e:1", "f:2"]


def test_a_client_id_is_address_process_and_moment() -> None:
    assert re.fullmatch(r"[0-9.]+@\d+#\d+", Instance("n:1").client_id)
    assert Instance("n:1", name="DEFAULT").client_id.endswith("@DEFAULT")


async def test_a_name_server_that_fails_is_passed_over_and_one_that_works_is_kept() -> None:
    fake = Fake()
    async with serving(fake.handle) as fake.port, Instance(f"127.0.0.1:1;127.0.0.1:{fake.port}") as instance:
        assert len((await instance.route("T")).publish) == 1
        assert instance.name_server == f"NameServer 127.0.0.1:{fake.port}"
        with pytest.raises(NoRoute):
            await instance.route("none")
        with pytest.raises(BrokerRefused, match="route of bad"):
            await instance.route("bad")
        instance.name_servers[1] = "127.0.0.1:2"
        with pytest.raises(NoNameServer):
            await instance.refresh("T")


class Resolver(trio.abc.HostnameResolver):
    """Names whose machine moves; its port says which one it is."""

    def __init__(self) -> None:
        self.port = 0

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", self.port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def test_the_name_of_a_name_server_that_moved_is_resolved_anew() -> None:
    before, after, resolver = Fake(), Fake(), Resolver()
    previous = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        async with Instance("names.plant.example:9876") as instance, serving(after.handle) as after.port:
            async with serving(before.handle) as before.port:
                resolver.port = before.port
                await instance.refresh("T")
                assert (105 in before.codes, after.codes) == (True, [])
            resolver.port, after.queues = after.port, 5
            await until(lambda: not instance._links.addresses)
            await instance.refresh("T")
            assert 105 in after.codes
    finally:
        trio.socket.set_custom_hostname_resolver(previous)


async def test_what_a_broker_of_5_answers_to_a_heartbeat_is_understood() -> None:
    fake = Fake()

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
        answer = fake.handle(request, peer)
        if request.code == 34:
            return Reply(request.reply(ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}))
        return answer

    async with serving(handle) as fake.port, Instance(f"127.0.0.1:{fake.port}") as instance:
        instance.add(Consumer(), consumes=True)  # type: ignore[arg-type]
        await instance.route("T")
        for number in (1, 2):
            await instance.heartbeat()
            assert [beat.consumer_data_set[0].group_name for beat in fake.heartbeats[-number:]] == ["CG"] * number


async def test_many_askers_cause_one_look_up() -> None:
    fake = Fake()
    async with (
        serving(fake.handle) as fake.port,
        Instance(f"127.0.0.1:{fake.port}") as instance,
        trio.open_nursery() as nursery,
    ):
        for _ in range(20):
            nursery.start_soon(instance.route, "T")
    assert fake.codes.count(105) == 1


async def test_a_broker_learned_of_later_hears_of_the_consumer_and_changes_wake_it() -> None:
    fake, consumer = Fake(), Consumer()
    async with serving(fake.handle) as fake.port, Instance(f"localhost:{fake.port}") as instance:
        instance.add(consumer, consumes=True)  # type: ignore[arg-type]
        await instance.route("T")
        await until(lambda: fake.heartbeats)
        assert [each.group_name for each in fake.heartbeats[0].consumer_data_set] == ["CG"]
        assert consumer.woken == 1
        await instance.refresh("T")
        assert consumer.woken == 1
        fake.queues = 2
        await instance.refresh("T")
        assert consumer.woken == 2
        await instance.remove(consumer, consumes=True)  # type: ignore[arg-type]
    assert 35 in fake.codes


@pytest.mark.slow
async def test_doubted_routes_are_looked_up_again_after_a_second() -> None:
    fake = Fake()
    async with serving(fake.handle) as fake.port, Instance(f"127.0.0.1:{fake.port}") as instance:
        await instance.route("T")
        instance.suspect_routes()
        await until(lambda: fake.codes.count(105) >= 2)


async def test_failures_name_the_place_and_the_time() -> None:
    fake = Fake()
    async with serving(fake.handle) as fake.port, Instance(f"127.0.0.1:{fake.port}") as instance:
        address = f"127.0.0.1:{fake.port}"
        with pytest.raises(TimedOut, match=r"request 12 to .*within 0\.05 s"):
            await instance.ask(address, 12, timeout_s=0.05)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(Unreachable, match="ended before the answer"):
                    await instance.ask(address, 12, timeout_s=5)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            instance._links.drop(address)
        assert (await instance.ask(address, 99)).code == 0  # over a new connection


@pytest.mark.slow
@pytest.mark.parametrize("others_answered", [True, False])
async def test_a_heartbeat_without_an_answer_ends_only_a_connection_that_brings_nothing_else(
    others_answered: bool,
) -> None:
    def answer(request: RemotingCommand, peer: Peer) -> Answer:
        return None if request.code == 34 else Reply(request.reply())

    async with serving(answer) as port, Instance("127.0.0.1:1") as instance:
        address = f"127.0.0.1:{port}"
        await instance.ask_ok(address, 100)
        channel = instance.connected(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(instance.heartbeat, [address])
            await trio.testing.wait_all_tasks_blocked(0.02)  # it has been sent
            if others_answered:
                await instance.ask_ok(address, 100)
        assert (instance.connected(address) is channel) is others_answered
