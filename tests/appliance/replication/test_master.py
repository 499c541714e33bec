"""A whole box as master: its HA port, what slaves ask beside the log, and what people are told of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from appliance.health.health_file import describe
from appliance.replication.master import Master, MasterRules, admitted
from netstack.serving.channel import Channel, open_channel
from netstack.serving.server import open_listeners
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand
from storage_driver.store import open_store
from tests.appliance.box import Box, ask, connected, heartbeat, running_box, send
from tests.appliance.replication.test_slaves import RawSlave, fill
from tests.ports import apache_port
from tests.storage_driver.test_store import Clock, small

ROLE = '[replication]\nrole = "master"\n'
SLAVE = {
    "brokerName": "box",
    "brokerAddr": "127.0.0.1:30911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:30912",
    "brokerId": "1",
}


@asynccontextmanager
async def master_box(folder: Path, toml: str = ROLE) -> AsyncIterator[Box]:
    async with running_box(folder, toml, broker_port=apache_port()) as box:
        yield box


@asynccontextmanager
async def slave_of(box: Box) -> AsyncIterator[RawSlave]:
    async with await trio.open_tcp_stream("127.0.0.1", box.broker_port + 1) as stream:
        slave = RawSlave(stream)
        await slave.report()
        yield slave


async def taking(slave: RawSlave, what: bytes) -> None:
    with trio.fail_after(30):
        while what not in slave.log:
            await slave.take()


async def test_a_slave_gets_the_log_and_everything_beside_it(tmp_path: Path) -> None:
    async with master_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"first message"))
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await channel.ask(ask(15, consumerGroup="CG", topic="T", queueId=0, commitOffset=1))
        async with slave_of(box) as slave:
            await taking(slave, b"first message")
        for port in (box.broker_port, box.broker_port - 2):
            async with open_channel("127.0.0.1", port) as other:
                table = await _object(other, Code.GET_ALL_TOPIC_CONFIG)
                assert "T" in table["topicConfigTable"]
        assert (await _object(channel, Code.GET_ALL_CONSUMER_OFFSET))["offsetTable"]["T@CG"] == {"0": 1}
        assert "CG" in (await _object(channel, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]


async def _object(channel: Channel, code: int) -> dict[str, dict[str, object]]:
    answer = await channel.ask(ask(code))
    assert answer.code == 0, answer.remark
    found = fastjson.loads(answer.body)
    assert isinstance(found, dict)
    return found


async def _registered(channel: Channel, **changes: str) -> RemotingCommand:
    return await channel.ask(ask(Code.REGISTER_BROKER, **{**SLAVE, **changes}))


async def test_a_slave_registers_under_the_name_of_the_box_and_stands_in_the_route(tmp_path: Path) -> None:
    async with master_box(tmp_path) as box, connected(box) as broker:
        await broker.ask(send("T"))
        async with connected(box, box.namesrv_port) as channel, connected(box, box.namesrv_port) as client:
            answer = await _registered(channel)
            own = f"127.0.0.1:{box.broker_port}"
            assert answer.ext == {"haServerAddr": f"127.0.0.1:{box.broker_port + 1}", "masterAddr": own}
            route = fastjson.loads((await client.ask(ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T"))).body)
            (row,) = route["brokerDatas"]
            assert row["brokerAddrs"] == {"0": own, "1": "127.0.0.1:30911"}
            assert [each["brokerName"] for each in route["queueDatas"]] == ["box"]
            cluster = fastjson.loads((await client.ask(ask(Code.GET_BROKER_CLUSTER_INFO))).body)
            assert cluster["brokerAddrTable"]["box"]["brokerAddrs"] == {"0": own, "1": "127.0.0.1:30911"}
            assert cluster["clusterAddrTable"] == {"DefaultCluster": ["box"]}
            refused = await _registered(client, brokerId="0")
            assert (refused.code, "give the broker at 127.0.0.1:30911 another name" in str(refused.remark)) == (1, True)
        async with connected(box, box.namesrv_port) as client:
            route = fastjson.loads((await client.ask(ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T"))).body)
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": own}, "it is gone with its connection"


async def test_a_box_that_is_no_master_has_no_slaves(tmp_path: Path) -> None:
    async with running_box(tmp_path, broker_port=apache_port()) as box:
        async with connected(box, box.namesrv_port) as channel:
            answer = await _registered(channel)
            assert (answer.code, 'set replication.role = "master" for slaves' in str(answer.remark)) == (1, True)
        for port in (box.broker_port + 1, box.broker_port - 2):
            with pytest.raises(OSError, match="all attempts to connect"):
                await trio.open_tcp_stream("127.0.0.1", port)
        async with connected(box) as channel:
            status = await _object(channel, Code.GET_BROKER_HA_STATUS)
            assert not status["haConnectionInfo"]


async def test_tools_see_each_slave_and_how_far_it_is(tmp_path: Path) -> None:
    async with master_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"first message"))
        async with slave_of(box) as slave:
            await taking(slave, b"first message")
            await slave.report()
            await channel.ask(send("T", b"second message"))
            await taking(slave, b"second message")
            status = await _object(channel, Code.GET_BROKER_HA_STATUS)
            (seen,) = status["haConnectionInfo"]
            assert isinstance(seen, dict)
            assert status["masterCommitLogMaxOffset"] == seen["transferFromWhere"] == slave.end
            assert (seen["inSync"], status["inSyncSlaveNums"], status["master"]) == (True, 1, True)


async def test_people_are_told_of_slaves(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        port = listeners[0].socket.getsockname()[1]
        master = Master(MasterRules(port), store)
        for loop in master.loops(listeners):
            nursery.start_soon(loop)
        await fill(store, 3)
        assert "Slaves    none is connected" in describe({"replication": master.told()})
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            slave = RawSlave(stream)
            await slave.report()
            await slave.take_to(store.committed)
            assert f"127.0.0.1:{stream.socket.getsockname()[1]} reports 0, 3 KiB behind" in describe(
                {"replication": master.told()}
            )
            await slave.report()
            with trio.fail_after(30):
                while "has everything" not in describe({"replication": master.told()}):
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


def test_slaves_come_from_this_machine_and_from_the_networks_that_are_named() -> None:
    admits = admitted(["10.1.0.0/16", "fd00::/8"])
    assert [admits(each) for each in ("127.0.0.1", "10.1.2.3", "10.2.0.1", "fd00::7", "::1")] == [
        *(True, True, False, True, True)
    ]
