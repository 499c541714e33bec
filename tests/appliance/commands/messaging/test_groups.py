"""`rocketbox groups` against two brokers of one cluster that have a group with settings of their own."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.messaging.groups import add_arguments
from netstack.client import ClientError
from netstack.client.admin import Admin
from netstack.client.instance import Instance
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.bodies_admin import SubscriptionGroup
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Reply
from tests.appliance.commands.messaging.two_brokers import two_brokers


async def groups(admin: Admin, *words: str) -> Any:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args([*words, "--json"])
    return await arguments.act(admin, arguments)


async def test_a_change_leaves_what_it_does_not_name_as_each_broker_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_brokers(tmp_path) as admin:
        await admin.put_group(SubscriptionGroup(group_name="G", retry_max_times=3), at="a")
        await admin.put_group(SubscriptionGroup(group_name="G", consume_broadcast_enable=False), at="b")
        await admin.put_group(SubscriptionGroup(group_name="Alone", retry_max_times=2), at="b")

        assert await groups(admin, "change", "G", "--ordered") == 0
        assert {
            broker: (group.retry_max_times, group.consume_broadcast_enable, bool(group.consume_message_orderly))
            for broker, group in (await admin.groups())["G"].items()
        } == {"a": (3, True, True), "b": (16, False, True)}
        told = json.loads(capsys.readouterr().out)
        assert {broker: row["retries"] for broker, row in told["brokers"].items()} == {"a": 3, "b": 16}

        with pytest.raises(ClientError, match="G exists already"):
            await groups(admin, "create", "G", "--retries", "3")
        assert await groups(admin, "change", "Alone", "--ordered") == 0
        assert {
            broker: (group.retry_max_times, bool(group.consume_message_orderly))
            for broker, group in (await admin.groups())["Alone"].items()
        } == {"a": (16, True), "b": (2, True)}


TABLE = (
    b'{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3,"attributes":{"priority.factor":"5"}}},'
    b'"dataVersion":{"counter":1,"timestamp":1}}'
)
CLUSTER = (
    b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"b","cluster":"C"}},'
    b'"clusterAddrTable":{"C":["b"]}}'
)


async def test_a_change_sends_no_attributes_as_brokers_of_5x_take_changes_of_them_alone() -> None:
    """Source: RocketMQ 5.5.0 AttributeUtil.alterCurrentAttributes: `wrong format key`."""
    put = list[SubscriptionGroup]()

    def broker(request: RemotingCommand, peer: Peer) -> Reply:
        if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            put.append(SubscriptionGroup.from_bytes(request.body))
        return Reply(request.reply(body=TABLE))

    async with serving(broker) as port:
        names = CLUSTER % port
        async with (
            serving(lambda request, peer: Reply(request.reply(body=names))) as namesrv,
            Instance(f"127.0.0.1:{namesrv}") as instance,
        ):
            assert await groups(Admin(instance), "change", "G", "--retries", "3") == 0
    assert [(group.retry_max_times, group.attributes) for group in put] == [(3, None)]
