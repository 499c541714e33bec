"""The box as a broker at another box's name server, over real sockets."""

from pathlib import Path

import orjson
import trio

from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.namesrv.registrar import Registrar, RegistrarRules
from appliance.requests import DeferredReply, RequestPeer
from appliance.testing import FakePeer, MemoryStateFile
from netstack.serving.channel import Channel
from netstack.wire.command import RemotingCommand
from tests.appliance.box import Box, ask, connected, running_box
from tests.waiting import until


def topics(name: str = "other") -> TopicTable:
    table = TopicTable(MemoryStateFile(), TopicRules("Far", name), now_ms=lambda: 7)
    table.put(Topic("T", 4, 4))
    return table


def rules(box: Box, **more: object) -> RegistrarRules:
    servers = [f"127.0.0.1:{box.namesrv_port}"]
    return RegistrarRules(servers, lambda own, theirs: f"{own}:4711", **more)  # type: ignore[arg-type]


async def wait_route(names: Channel, topic: str, code: int = 0) -> bytes:
    """Return the route once the question for it is answered with this code."""
    with trio.fail_after(25):
        while (answer := await names.ask(ask(105, topic=topic))).code != code:
            await trio.lowlevel.checkpoint()
    return answer.body


async def test_the_box_is_routed_there_and_new_topics_at_once(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as names, trio.open_nursery() as nursery:
        table = topics()
        registrar = Registrar(rules(box), table)
        nursery.start_soon(registrar.run)
        route = orjson.loads(await wait_route(names, "T"))
        assert route["brokerDatas"] == [
            {
                "brokerAddrs": {"0": "127.0.0.1:4711"},
                "brokerName": "other",
                "cluster": "Far",
                "enableActingMaster": False,
            }
        ]
        assert route["queueDatas"][0]["writeQueueNums"] == 4
        await until(lambda: registrar.registered == 1)  # its answer may come after ours
        table.put(Topic("U", 1, 1))
        await wait_route(names, "U")
        nursery.cancel_scope.cancel()


async def test_a_box_that_stops_takes_its_leave(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as names:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Registrar(rules(box), topics()).run)
            await wait_route(names, "T")
            nursery.cancel_scope.cancel()
        await wait_route(names, "T", code=17)


async def test_a_read_only_box_registers_all_topics_as_such(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as names, trio.open_nursery() as nursery:
        nursery.start_soon(Registrar(rules(box, permission=4), topics()).run)
        assert orjson.loads(await wait_route(names, "T"))["queueDatas"][0]["perm"] == 4
        nursery.cancel_scope.cancel()


async def test_a_refusal_is_no_registration_and_a_dead_name_server_harms_nobody(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as names, trio.open_nursery() as nursery:
        refused = Registrar(rules(box), topics("box"))  # the name of the box that is asked
        both = RegistrarRules([*rules(box).servers, "127.0.0.1:1", "names..example:9876"], lambda own, theirs: "h:1")
        nursery.start_soon(refused.run)
        nursery.start_soon(Registrar(both, topics()).run)
        await wait_route(names, "T")
        assert refused.registered == 0
        nursery.cancel_scope.cancel()


async def test_one_box_registers_at_another_as_configured(tmp_path: Path) -> None:
    async with running_box(tmp_path / "first") as first, connected(first, first.namesrv_port) as names:
        toml = f"[namesrv]\nregister_at = ['127.0.0.1:{first.namesrv_port}']\n"
        async with running_box(tmp_path / "second", toml, name="second") as second:
            clusters = b""
            with trio.fail_after(25):
                while b'"second"' not in clusters:
                    clusters = (await names.ask(ask(106))).body
            addresses = orjson.loads(clusters)["brokerAddrTable"]["second"]["brokerAddrs"]
            assert addresses == {"0": f"127.0.0.1:{second.broker_port}"}


async def test_a_topic_made_by_a_tool_is_answered_once_the_name_servers_that_are_reached_know_it(
    tmp_path: Path,
) -> None:
    async with running_box(tmp_path / "first") as first, connected(first, first.namesrv_port) as names:
        toml = f"[namesrv]\nregister_at = ['127.0.0.1:1', '127.0.0.1:{first.namesrv_port}']\n"
        async with running_box(tmp_path / "second", toml, name="second") as second, connected(second) as tool:
            with trio.fail_after(25):
                while b'"second"' not in (await names.ask(ask(106))).body:
                    pass
            new = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            for number in range(5):
                made = ask(17, topic=f"N{number}", topicFilterType="SINGLE_TAG", **new)
                assert (await tool.ask(made)).code == 0
                assert b'"second"' in (await names.ask(ask(105, topic=f"N{number}"))).body


async def test_a_tool_is_answered_when_the_name_server_goes_away_instead_of_answering() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    rules = RegistrarRules([f"127.0.0.1:{listener.socket.getsockname()[1]}"], lambda own, theirs: "h:1")
    table = topics()
    registrar, woken = Registrar(rules, table), list[str | None]()

    def made(request: RemotingCommand, _peer: RequestPeer) -> DeferredReply:
        return DeferredReply(
            lambda mark, wake: wake(None), table.put(Topic("U", 1, 1)), request.reply(), lambda _: request.reply(1)
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(registrar.run)
        with trio.fail_after(25):
            silent = await listener.accept()
            await silent.receive_some(4)
            held = registrar.telling({17: made, 18: made})[17](ask(17, topic="U"), FakePeer())
            assert isinstance(held, DeferredReply)
            held.when(held.mark, woken.append)
            assert woken == []
            await silent.aclose()
            while not woken:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await listener.aclose()
    assert woken == [None]


async def test_topics_that_a_name_server_lists_as_ordered_become_so(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as names, trio.open_nursery() as nursery:
        put = ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="other:4")
        assert (await names.ask(put)).code == 0
        table = topics()
        table.put(Topic("U"))
        nursery.start_soon(Registrar(rules(box), table).run)
        with trio.fail_after(25):
            while [topic.name for topic in table.all() if topic.order] != ["T"]:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
