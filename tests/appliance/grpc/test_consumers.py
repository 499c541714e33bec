"""Settings of consumers, and their membership, against a real box."""

from pathlib import Path

from appliance.broker.tables.groups import Group
from appliance.grpc.consumers import max_attempts
from netstack.grpc.v2 import definition_pb2, service_pb2
from netstack.wire.codes import RequestCode
from netstack.wire.command import request
from tests.appliance.box import ask, connected
from tests.appliance.grpc.asking import Code, asking, consumer_settings, grpc_box


async def test_a_consumer_gets_batch_poll_and_retries_of_its_group(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        (answer,) = await client.told(await client.telemetry(consumer_settings("G", "T", push=True)), 1)
    subscription, policy = answer.settings.subscription, answer.settings.backoff_policy
    assert (subscription.fifo, subscription.receive_batch_size, subscription.long_polling_timeout.seconds) == (
        *(False, 32, 20),
    )
    assert policy.max_attempts == 17
    assert [each.seconds for each in policy.customized_backoff.next][:4] == [1, 5, 10, 30]


async def test_a_consumer_pauses_between_retries_as_its_group_says(tmp_path: Path) -> None:
    growing = b'{"exponentialRetryPolicy":{"initial":1500,"max":60000,"multiplier":3},"type":"EXPONENTIAL"}'
    listed = b'{"customizedRetryPolicy":{"next":[2000,7000]},"type":"CUSTOMIZED"}'
    async with grpc_box(tmp_path) as (box, port), asking(port) as client, connected(box) as line:
        for name, policy in ((b"E", growing), (b"C", listed)):
            body = b'{"groupName":"%b","groupRetryPolicy":%b}' % (name, policy)
            assert (await line.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))).code == 0
        (first,) = await client.told(await client.telemetry(consumer_settings("E", "T", push=True)), 1)
        (second,) = await client.told(await client.telemetry(consumer_settings("C", "T", push=True)), 1)
    grows = first.settings.backoff_policy.exponential_backoff
    assert (grows.initial.ToMilliseconds(), grows.max.seconds, grows.multiplier) == (1500, 60, 3)
    assert [each.seconds for each in second.settings.backoff_policy.customized_backoff.next] == [2, 7]


async def test_a_consumer_is_a_member_of_its_group_until_it_leaves(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client, connected(box) as line:
        await client.told(await client.telemetry(consumer_settings("G", "T")), 1)
        members = await line.ask(ask(38, consumerGroup="G"))
        assert (members.code, b"client@1" in members.body) == (0, True)
        heartbeat = service_pb2.HeartbeatRequest(client_type=definition_pb2.ClientType.SIMPLE_CONSUMER)
        heartbeat.group.name = "G"
        assert (await client.ask("Heartbeat", heartbeat)).status.code == Code.OK
        leave = service_pb2.NotifyClientTerminationRequest()
        leave.group.name = "G"
        assert (await client.ask("NotifyClientTermination", leave)).status.code == Code.OK
        assert (await line.ask(ask(38, consumerGroup="G"))).code == 1


async def test_a_wrong_expression_ends_the_stream(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        settings = consumer_settings("G", "T", tags="||")
        number = await client.telemetry(settings)
        await client.client.calls[number].ended.wait()
        assert client.client.calls[number].status == 3


def test_a_group_has_one_attempt_more_than_retries() -> None:
    assert [max_attempts(Group("G", retry_max_times=times)) for times in (16, 0, -1)] == [17, 1, 1]
