"""The stream of a link: much leaves while the other side makes room, and a send that cannot go on ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from appliance.group.links.link_stream import LARGE, LinkTlsStream
from appliance.group.links.link_tls import LinkTls
from tests.appliance.group.certificates import certificates, needs_openssl

pytestmark = [pytest.mark.slow, needs_openssl]
MUCH = bytes(range(256)) * (48 << 10)  # more than a socket takes


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[LinkTlsStream, LinkTlsStream]]:
    """Two ends of a connection, after the handshake."""
    site = certificates()
    tls = [LinkTls(site / name, clock_ok=True) for name in ("a", "b")]
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        dialing = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        accepting = await listener.accept()
    async with dialing, accepting:
        ends = LinkTlsStream(dialing, tls[0].dialing, server_side=False), LinkTlsStream(accepting, tls[1].accepting)
        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(end.do_handshake)
        yield ends


async def test_what_the_socket_does_not_take_at_once_comes_whole_and_in_order() -> None:
    async with connected() as (one, other):
        received = bytearray()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.send_all, MUCH)
                while len(received) < len(MUCH):
                    received += await other.receive_some()
            await one.send_all(b"little")
            assert received == MUCH
            assert await other.receive_some() == b"little"


async def test_what_the_socket_has_room_for_leaves_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (one, other):
        own = trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF
        one._tcp.socket.setsockopt(*own, 8 * LARGE)
        if one._tcp.socket.getsockopt(*own) < 8 * LARGE:
            pytest.skip("the system allows no such buffer")
        monkeypatch.setattr("appliance.group.links.link_stream._send_all", lambda *_: pytest.fail("a thread sends"))
        with trio.fail_after(60):
            await one.send_all(MUCH[: LARGE + 1])
            received = bytearray()
            while len(received) <= LARGE:
                received += await other.receive_some()
        assert received == MUCH[: LARGE + 1]


async def test_a_send_that_nobody_takes_can_be_cancelled() -> None:
    async with connected() as (one, _):
        with trio.fail_after(60), trio.move_on_after(0.2) as scope:
            await one.send_all(MUCH)
        assert scope.cancelled_caught


async def test_a_send_to_who_is_gone_ends() -> None:
    async with connected() as (one, other):
        await other.aclose()
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            await one.send_all(MUCH)


async def test_a_stream_holds_no_more_than_it_was_told() -> None:
    async with connected() as (one, other), trio.open_nursery() as nursery:
        nursery.start_soon(one.send_all, MUCH)
        await other.receive_some(1)
        other.receive_at_most(4096)
        with trio.fail_after(60):
            while len(other._received):  # what came before
                await other.receive_some(1000)
            for _ in range(1000):
                await other.receive_some(1000)
                assert len(other._received) <= 4096
        assert (other.remote_host, other.descriptor > 0) == ("127.0.0.1", True)
        nursery.cancel_scope.cancel()
