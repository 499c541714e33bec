"""QueryRoute and QueryAssignment against a real box: queues, types, and the address that the client used."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.grpc import opening
from netstack.grpc.v2 import definition_pb2, service_pb2
from netstack.serving.server import Connect, ServeBrought
from tests.appliance.box import ask, connected
from tests.appliance.grpc.asking import Code, asking, grpc_box, make_topic

NORMAL, FIFO, DELAY, TRANSACTION = 1, 2, 3, 4
READ, WRITE, BOTH = 2, 3, 4
DOMAIN = definition_pb2.AddressScheme.DOMAIN_NAME


def route(topic: str, *addresses: tuple[str, int]) -> Any:
    made = service_pb2.QueryRouteRequest()
    made.topic.name = topic
    if addresses:
        made.endpoints.scheme = DOMAIN
        for host, port in addresses:
            made.endpoints.addresses.add(host=host, port=port)
    return made


async def test_a_route_names_the_queues_and_the_address_that_the_client_gave(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "T", queues=3)
        found = await client.ask("QueryRoute", route("T", ("press-17.example", 18081)))
        queues = found.message_queues
        assert (found.status.code, [each.id for each in queues]) == (Code.OK, [0, 1, 2])
        assert {each.permission for each in queues} == {BOTH}
        assert {tuple(each.accept_message_types) for each in queues} == {(NORMAL, FIFO, DELAY, TRANSACTION)}
        (broker,) = {each.broker.SerializeToString() for each in queues}
        named = definition_pb2.Broker.FromString(broker)
        assert (named.name, named.id, named.endpoints.scheme) == ("box", 0, DOMAIN)
        assert [(each.host, each.port) for each in named.endpoints.addresses] == [("press-17.example", 18081)]


async def test_of_several_addresses_the_one_that_was_reached_is_named(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for given in ((), (("10.9.9.9", 1), ("127.0.0.1", 4711)), (("10.9.9.9", 1), ("10.9.9.8", 2))):
            found = await client.ask("QueryRoute", route("T", *given))
            (queue,) = found.message_queues
            (address,) = queue.broker.endpoints.addresses
            wanted = 4711 if len(given) == 2 and given[1][0] == "127.0.0.1" else port
            assert (address.host, address.port) == ("127.0.0.1", wanted)


class Group:
    """The port of a member whose group serves clients at each box, or not."""

    def __init__(self) -> None:
        self.serves = True

    def connect(self, own: Connect) -> Connect:
        return own

    async def run(self, serve: ServeBrought) -> None:
        await trio.lowlevel.checkpoint()

    def each_serves(self) -> bool:
        return self.serves


async def test_a_client_of_a_group_is_told_all_addresses_that_it_gave_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, v4 = Group(), definition_pb2.AddressScheme.IPv4
    monkeypatch.setattr(opening, "GrpcParts", partial(opening.GrpcParts, group=group))
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:

        async def named(*given: tuple[str, int], scheme: int = v4) -> list[tuple[str, int]]:
            asked = route("T", *given)
            asked.endpoints.scheme = scheme
            found = await client.ask("QueryRoute", asked)
            return [(each.host, each.port) for each in found.message_queues[0].broker.endpoints.addresses]

        boxes = [("10.1.0.13", 8081), ("10.1.0.11", 8081), ("10.1.0.12", 8081)]
        reached = [("127.0.0.1", port)]
        assert await named(*boxes) == boxes
        assert await named(boxes[0]) == boxes[:1]
        assert await named(*boxes, scheme=DOMAIN) == reached, "stock clients take one name"
        assert await named(*boxes * 3) == reached, "too many"
        assert await named(boxes[0], ("1" * 1000, 1)) == reached, "too long to be told with each queue"
        group.serves = False
        assert await named(*boxes) == reached


async def test_queues_are_told_apart_by_what_may_be_done_with_them(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        async with connected(box) as channel:
            counts = {"readQueueNums": 3, "writeQueueNums": 1, "perm": 6}
            fields = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}
            await channel.ask(ask(17, topic="Shrunk", **counts, **fields))
        await make_topic(box, "Orders", attributes="+message.type=FIFO")
        found = await client.ask("QueryRoute", route("Shrunk"))
        assert [(each.id, each.permission) for each in found.message_queues] == [(0, READ), (1, READ), (2, BOTH)]
        found = await client.ask("QueryRoute", route("Orders"))
        assert [list(each.accept_message_types) for each in found.message_queues] == [[FIFO]]


async def test_an_unknown_topic_has_no_route_and_is_not_made(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for _ in range(2):
            found = await client.ask("QueryRoute", route("Unknown"))
            assert found.status.code == Code.TOPIC_NOT_FOUND
        assert (await client.ask("QueryRoute", route("a b"))).status.code == Code.ILLEGAL_TOPIC


async def test_a_group_gets_all_queues_as_one_an_ordered_group_each_of_them(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "T", queues=3)
        async with connected(box) as channel:
            group = b'{"groupName":"Ordered","consumeMessageOrderly":true}'
            command = ask(200)
            command.body = group
            assert (await channel.ask(command)).code == 0
        asked = service_pb2.QueryAssignmentRequest()
        asked.topic.name, asked.group.name = "T", "Any"
        found = await client.ask("QueryAssignment", asked)
        assert [each.message_queue.id for each in found.assignments] == [-1]
        asked.group.name = "Ordered"
        found = await client.ask("QueryAssignment", asked)
        assert [each.message_queue.id for each in found.assignments] == [0, 1, 2]
        asked.group.name = "a b"
        assert (await client.ask("QueryAssignment", asked)).status.code == Code.ILLEGAL_CONSUMER_GROUP


async def test_a_follower_names_the_box_that_leads_at_the_port_that_the_client_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "GrpcParts", partial(opening.GrpcParts, leader_host=lambda reached: "10.1.0.12"))
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for given, wanted in (((), port), ((("10.1.0.11", 8081),), 8081)):
            found = await client.ask("QueryRoute", route("T", *given))
            (address,) = found.message_queues[0].broker.endpoints.addresses
            assert (address.host, address.port) == ("10.1.0.12", wanted)
