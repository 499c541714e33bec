"""Two boxes as processes: a gRPC client at a follower sends and receives, and goes on when the other one leads."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.access.access import accounts_path
from appliance.group.links.frames import RELAY, encode_frame
from appliance.group.links.link_tls import LinkTls
from appliance.group.relay.relay_frame import RelayedClient
from netstack.grpc.testing import grpc_client
from netstack.grpc.v2 import definition_pb2, service_pb2
from netstack.serving.channel import open_channel
from tests.appliance.box import ask, send
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.appliance.group.real_group import RealMember, start, until, wait_for
from tests.appliance.grpc.asking import Asker, Code, acking, consumer_settings, message, receiving, sending
from tests.appliance.grpc.test_clients import NAMED, signed
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, KEYS_MODE, SECRET, write
from tests.appliance.keys import signed as signed_remoting
from tests.ports import free_port
from uplink_spark.wire.tls import TlsStream

pytestmark = [pytest.mark.slow, needs_openssl]
GROUP, TOPIC = "CG", "T"
MOST_MORE_MB = 8


def pair(folder: Path, more: str = "") -> list[tuple[RealMember, int]]:
    """Return two members with their ports of gRPC, not started."""
    boxes = [(RealMember(folder / name), free_port()) for name in "ab"]
    for box, port in boxes:
        box.configure([each for each, _ in boxes], f"[grpc]\nport = {port}\n{more}")
    return boxes


def route(*ports: int) -> Any:
    """Return the question of a client that was given these ports."""
    asked = service_pb2.QueryRouteRequest()
    asked.topic.name, asked.endpoints.scheme = TOPIC, definition_pb2.AddressScheme.IPv4
    for port in ports:
        asked.endpoints.addresses.add(host="127.0.0.1", port=port)
    return asked


async def sent(port: int, body: bytes) -> None:
    """Send until it is stored, over a new connection where one has ended."""
    with trio.fail_after(30):
        while True:
            async with grpc_client(port) as client:
                outcome = await Asker(client).outcome("SendMessage", sending(message(TOPIC, body)))
                if outcome.status == 0 and outcome.messages:
                    found = service_pb2.SendMessageResponse.FromString(outcome.messages[0])
                    if found.status.code == Code.OK:
                        return
            await trio.sleep(0.02)


async def received(port: int, count: int) -> set[bytes]:
    """Receive and acknowledge so many messages."""
    found = set[bytes]()
    async with grpc_client(port) as client:
        asker = Asker(client, "consumer@1")
        await asker.told(await asker.telemetry(consumer_settings(GROUP, TOPIC)), 1)
        while len(found) < count:
            _, messages = await asker.receive(receiving(GROUP, TOPIC, invisible_s=10, poll_s=5))
            if messages:
                acked = await asker.ask("AckMessage", acking(GROUP, TOPIC, *messages))
                assert acked.status.code == Code.OK
            found |= {bytes(each.body) for each in messages}
    return found


async def flood(leader: RealMember) -> None:
    """Bring clients and what is none, as the other member, and leave them."""
    tls = LinkTls(certificates() / "a", clock_ok=True)
    frames = (RelayedClient(("10.9.9.9", 9), ("10.1.0.12", 8081)).encode(), encode_frame(RELAY, {"host": "x" * 60_000}))
    async with AsyncExitStack() as stack:
        for number in range(40):
            tcp = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", leader.broker_port + 1))
            stream = TlsStream(tcp, tls.dialing, server_side=False)
            await stream.do_handshake()
            await stream.send_all(frames[number % 8 == 7])
            await stream.receive_some(1)


async def led_by_first(a: RealMember, b: RealMember) -> None:
    """Start both; the first one leads."""
    await start(a, b)
    await a.ask("group.promote")
    await wait_for(a, serves=True)
    await wait_for(b, leader="a")


async def test_a_client_at_either_box_goes_on_with_whichever_leads(tmp_path: Path) -> None:
    (a, at_a), (b, at_b) = boxes = pair(tmp_path)
    try:
        with trio.fail_after(90):
            await led_by_first(a, b)
            async with open_channel("127.0.0.1", a.broker_port) as channel:
                assert (await channel.ask(send(TOPIC, b"made"), 10)).code == 0
            async with grpc_client(at_b) as client:
                asker = Asker(client)
                found = await asker.ask("QueryRoute", route(at_a, at_b))
                named = {
                    tuple(each.port for each in queue.broker.endpoints.addresses) for queue in found.message_queues
                }
                assert named == {(at_a, at_b)}, "both boxes serve"
                found = await asker.ask("QueryRoute", route(at_b))
                assert {queue.broker.endpoints.addresses[0].port for queue in found.message_queues} == {at_b}
                await sent(at_b, b"by the follower")
                assert await received(at_b, 2) == {b"made", b"by the follower"}
                await b.ask("group.promote")
                with trio.fail_after(20):
                    await client.closed.wait()
            await sent(at_a, b"by the box that led")
            await sent(at_b, b"at the new leader")
            assert {b"by the box that led", b"at the new leader"} <= await received(at_a, 2)
            await flood(b)
            before = b.resident_mb()
            await flood(b)
            assert b.resident_mb() < before + MOST_MORE_MB
            await sent(at_a, b"after the flood")
    finally:
        for box, _ in boxes:
            if box.running:
                box.kill()


async def answer_to(port: int, **metadata: str) -> int:
    """Return the code of a send with these headers, of the first that is answered."""
    with trio.fail_after(30):
        while True:
            async with grpc_client(port) as client:
                outcome = await Asker(client, **metadata).outcome("SendMessage", sending(message(TOPIC)))
                if outcome.status == 0 and outcome.messages:
                    return int(service_pb2.SendMessageResponse.FromString(outcome.messages[0]).status.code)
            await trio.sleep(0.02)


async def answers(port: int) -> list[int]:
    """Return what a client hears without a key, with a wrong one and with the right one."""
    return [await answer_to(port, **each) for each in ({}, signed("device-1", "wrong"), signed("device-1", SECRET))]


async def test_who_signs_at_a_follower_is_judged_by_the_leader_and_by_the_next_one(tmp_path: Path) -> None:
    (a, at_a), (b, at_b) = boxes = pair(tmp_path, KEYS_MODE)
    wanted = [Code.UNAUTHORIZED, Code.UNAUTHORIZED, Code.OK]
    write(a.data, DEVICE, ADMIN)
    try:
        with trio.fail_after(90):
            await led_by_first(a, b)
            async with open_channel("127.0.0.1", a.broker_port) as channel:
                made = ask(17, topic=TOPIC, readQueueNums=1, writeQueueNums=1, perm=6, **NAMED)
                assert (await channel.ask(signed_remoting(made, "admin-1", ADMIN_SECRET), 10)).code == 0
            assert await answers(at_b) == wanted, "by way of the follower"
            await until(accounts_path(b.data).exists)
            await b.ask("access.reload")
            await b.ask("group.promote")
            await wait_for(b, serves=True)
            await wait_for(a, leader="b")
            assert await answers(at_a) == wanted, "the new leader has the keys of the old one"
            assert await answers(at_b) == wanted
    finally:
        for box, _ in boxes:
            if box.running:
                box.kill()
