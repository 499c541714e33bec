"""The ports of a box, and listeners of the same ports that end on their own."""

import trio

from appliance.configuration.config import load_config
from appliance.ports import open_ports
from tests.appliance.box import FACTS
from tests.ports import apache_port

FREE = "[listen]\nbroker_port = {port}\nnamesrv_port = 0\n"


async def test_the_grpc_listener_that_was_opened_again_closes_alone_and_who_came_meanwhile_is_served_later() -> None:
    config = load_config(FREE.format(port=0) + f"[grpc]\nport = {apache_port()}\n", source="test", facts=FACTS)
    ports = await open_ports(config, {})
    number = ports.grpc[0].socket.getsockname()[1]
    for _ in range(2):
        again = ports.again()
        assert (again.broker, again.namesrv) == (ports.broker, ports.namesrv)
        async with await trio.open_tcp_stream("127.0.0.1", number) as client, again.grpc[0]:
            await client.send_all(b"x")
        async with await trio.open_tcp_stream("127.0.0.1", number) as client:
            served = await ports.again().grpc[0].accept()
            await served.aclose()
    for listener in (*ports.broker, *ports.namesrv, *ports.grpc):
        await listener.aclose()


async def test_ports_on_every_address_are_reached_over_the_loopback_whatever_address_clients_are_told() -> None:
    for host, near in (("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("127.0.0.5", "192.0.2.7")):
        config = load_config(f"{FREE.format(port=0)}host = '{host}'\n", source="test", facts=FACTS)
        ports = await open_ports(config, {})
        assert ports.near("192.0.2.7") == near
        for listener in (*ports.broker, *ports.namesrv):
            await listener.aclose()


async def test_members_of_a_group_and_masters_have_a_port_for_copies() -> None:
    port = apache_port()
    text = FREE.format(port=port) + '[replication]\nrole = "master"\n'
    ports = await open_ports(load_config(text, source="test", facts=FACTS), {})
    assert ports.replication[0].socket.getsockname()[1] == port + 1
    for listener in (*ports.broker, *ports.namesrv, *ports.vip, *ports.replication):
        await listener.aclose()
    assert (ports.broker_port, ports.replication_port) == (port, port + 1)  # also as the box ends
