"""The box's way to the gateway: each way it can fail has its cause, and nothing is left open."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.ports import free_port
from uplink_spark.box.link.connect import Backoff, ConnectFailed, GatewayRefused, greet, open_stream
from uplink_spark.config import UplinkConfig
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.frames import ErrorFrame, FrameType, Hello, Welcome, decode_hello, encode_ping
from uplink_spark.wire.link import FrameReader

HELLO = Hello("box-17", ((5, 0),), ((7, 0),), 0, 1 << 40, 1_700_000_000_000, 1, "test")
WELCOME = Welcome(b"L" * 16, ((5, 0, 10),), (), None, 1 << 20, 64, ("zlib",), 0, 1_700_000_000_000)
CONFIG = UplinkConfig(gateway="127.0.0.1", box="box-17")


async def greeted(answer: bytes) -> Welcome:
    near, far = trio.testing.memory_stream_pair()
    await far.send_all(answer)
    connection = await greet(near, HELLO, None)
    kind, body = await FrameReader(far).next_frame(pieces=False)
    assert (kind, decode_hello(body)) == (FrameType.HELLO, HELLO)
    return connection.welcome


async def test_hello_is_answered_by_welcome() -> None:
    assert await greeted(WELCOME.encode()) == WELCOME


async def test_a_gateway_that_turns_the_box_away_is_quoted() -> None:
    fault = ErrorFrame("diverged", "another history above log offset 5", 0, 5)
    with pytest.raises(GatewayRefused, match="diverged: another history above log offset 5") as raised:
        await greeted(fault.encode())
    assert raised.value.fault.fork == 5


async def test_another_frame_or_another_version_is_a_fault_of_the_protocol() -> None:
    with pytest.raises(ProtocolError, match="is not expected here"):
        await greeted(encode_ping(FrameType.PING, 1))
    newer = Welcome(b"L" * 16, (), (), None, 1, 1, ("zlib",), 0, 0, version=9)
    with pytest.raises(ProtocolError, match="version 9"):
        await greeted(newer.encode())


async def test_a_gateway_that_says_nothing_is_given_up_after_ten_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, _far = trio.testing.memory_stream_pair()
    with pytest.raises(ConnectFailed, match="no WELCOME within 10 s") as raised:
        await greet(near, HELLO, None)
    assert raised.value.cause == "silent"
    assert trio.current_time() == pytest.approx(10, abs=0.1)


async def test_a_port_nobody_listens_on_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=f"^{address}: cannot connect: Connection refused$") as raised:
        async with open_stream(CONFIG, address, clock_ok=True):
            pytest.fail("connected")
    assert raised.value.cause == "tcp"


async def test_a_gateway_elsewhere_needs_certificates_before_a_packet_leaves() -> None:
    with pytest.raises(ConnectFailed, match=r"gateway 192\.0\.2\.1 without certificates") as raised:
        async with open_stream(CONFIG, "192.0.2.1:10940", clock_ok=True):
            pytest.fail("connected")
    assert raised.value.cause == "config"


async def test_certificates_that_are_not_there_yet_are_a_failed_connection(tmp_path: Path) -> None:
    config = UplinkConfig(gateway="192.0.2.1:10940", box="box-17", certs=tmp_path)
    with pytest.raises(ConnectFailed, match=r"box\.crt, box\.key, ca\.crt are needed"):
        async with open_stream(config, config.gateway, clock_ok=True):
            pytest.fail("connected")


async def test_an_address_a_gateway_sent_the_box_to_may_be_none() -> None:
    with pytest.raises(ConnectFailed, match="use HOST:PORT"):
        async with open_stream(CONFIG, "127.0.0.1:x", clock_ok=True):
            pytest.fail("connected")


async def test_the_socket_is_closed_when_its_user_leaves_with_an_error() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(RuntimeError, match="of the user"):  # noqa: PT012
        async with open_stream(CONFIG, f"127.0.0.1:{port}", clock_ok=True) as (_, tcp):
            accepted = await listeners[0].accept()
            raise RuntimeError("of the user")
    assert tcp.socket.fileno() == -1
    with trio.fail_after(25):
        assert await accepted.receive_some() == b""
    await accepted.aclose()
    await listeners[0].aclose()


def test_after_the_network_failed_a_box_comes_back_within_a_minute_after_refusals_within_minutes() -> None:
    random.seed(7)
    network, refused = Backoff(), Backoff()
    waits = [network.next_s(refused=False) for _ in range(200)]
    assert waits[0] <= 0.15
    assert max(waits) <= 60
    assert len({round(wait, 3) for wait in waits[-50:]}) > 40  # a fleet does not return at once
    assert 150 < max(refused.next_s() for _ in range(200)) <= 450
    network.reset()
    assert network.next_s(refused=False) <= 0.15


async def test_a_plain_connection_that_is_cut_says_nothing_of_certificates() -> None:
    async def cut(stream: trio.SocketStream) -> None:
        await stream.receive_some(10)
        await stream.aclose()

    said = Hello("box-17", ((5, 0),), ((7, 0),), 0, 97, 1_700_000_000_000, 1, "test")
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, cut, listeners)
        config = UplinkConfig(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", "box-17")
        with pytest.raises(ConnectFailed, match="gateway closed before WELCOME") as found:
            async with open_stream(config, config.gateway, clock_ok=True) as (stream, _):
                await greet(stream, said, None)
        nursery.cancel_scope.cancel()
    assert "certificate" not in str(found.value)
    assert found.value.cause == "network"
