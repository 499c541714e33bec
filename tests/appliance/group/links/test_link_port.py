"""The first byte of a connection decides; `test_links.py` has the floods."""

from contextlib import suppress

import pytest
import trio

from appliance.group.links.link_port import MOST_UNDECIDED, LinkPort
from appliance.group.relay.relay_frame import RelayedClient
from netstack.serving import limits
from netstack.serving.connect_pace import BURST
from netstack.serving.server import open_listeners
from netstack.wire.replication import REPORT
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.links.test_links import Member, serving
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_openssl]


async def test_a_stock_slave_and_a_member_come_to_the_same_port() -> None:
    member, reports = Member("a"), list[bytes]()

    async def stock(stream: trio.SocketStream, host: str, port: int) -> None:
        assert (host, port > 0) == ("127.0.0.1", True)
        reports.append(await stream.receive_some(REPORT.size))

    port = LinkPort(member.links, stock)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(port.serve, listeners)
        number = listeners[0].socket.getsockname()[1]
        for first in (REPORT.pack(4711), b"\x16\x03\x01" + b"\xff" * 20, b"\x17"):
            stream = await trio.open_tcp_stream("127.0.0.1", number)
            await stream.send_all(first)
        await until(lambda: reports == [REPORT.pack(4711)])
        await until(lambda: sum(member.refused().values()) == 1)
        await until(lambda: port.refused() == {"unknown": 1, "undecided": 0, "often": 0})
        nursery.cancel_scope.cancel()


async def test_who_says_nothing_does_not_keep_members_out() -> None:
    member, came = Member("a"), list[bytes]()

    async def stock(stream: trio.SocketStream, host: str, port: int) -> None:
        came.append(await stream.receive_some(REPORT.size))

    port = LinkPort(member.links, stock)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(port.serve, listeners)
        number = listeners[0].socket.getsockname()[1]
        silent = [await trio.open_tcp_stream("127.0.0.1", number) for _ in range(MOST_UNDECIDED)]
        await until(lambda: len(port._undecided) == MOST_UNDECIDED)
        stream = await trio.open_tcp_stream("127.0.0.1", number)
        await stream.send_all(REPORT.pack(4711))
        await until(lambda: came == [REPORT.pack(4711)])
        assert await silent[0].receive_some() == b"", "the oldest is closed for it"
        assert port.refused()["undecided"] == 1
        nursery.cancel_scope.cancel()


async def test_an_address_that_connects_again_and_again_is_closed_before_a_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "is_loopback", lambda address: address == "127.0.0.1")
    member = Member("a")
    port = LinkPort(member.links)
    port._pace._limits = port._pace._limits._replace(new_per_s=0.0)  # however long the connections of this test take
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(port.serve, listeners)
        number = listeners[0].socket.getsockname()[1]
        for _ in range(2 * BURST):
            async with await trio.open_tcp_stream("127.0.0.1", number, local_address="127.0.0.9") as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"\x16\x03\x01" + b"\xff" * 20)
        await until(lambda: port.refused()["often"] == BURST)
        assert sum(member.refused().values()) <= BURST
        nursery.cancel_scope.cancel()


async def test_a_member_that_brings_many_clients_connects_as_often_as_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a switch a follower brings all of its clients at once, and has to keep its own link."""
    monkeypatch.setattr(limits, "is_loopback", lambda address: False)
    a, b = Member("a"), Member("b")
    a.port._pace._limits = a.port._pace._limits._replace(new_per_s=0.0, new_burst=2)
    async with serving(a, b, dial=False):
        for number in range(1, 6):
            async with b.links.connected("a") as stream:
                await stream.send_all(RelayedClient(("10.0.0.1", 1), ("10.0.0.2", 2)).encode())
                await until(lambda: len(a.taken) == number)  # noqa: B023
    assert a.port.refused()["often"] == 0


async def test_who_connects_often_and_says_nothing_pushes_out_its_own_alone() -> None:
    member = Member("a")

    async def stock(stream: trio.SocketStream, host: str, port: int) -> None:
        await trio.sleep_forever()

    port = LinkPort(member.links, stock)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(port.serve, listeners)
        number = listeners[0].socket.getsockname()[1]
        slave = await trio.open_tcp_stream("127.0.0.1", number, local_address="127.0.0.9")
        await until(lambda: len(port._undecided) == 1)
        silent = [await trio.open_tcp_stream("127.0.0.1", number) for _ in range(MOST_UNDECIDED + 20)]
        await until(lambda: port.refused()["undecided"] == 21)
        with trio.move_on_after(0.05) as still_open:
            await slave.receive_some()
        assert still_open.cancelled_caught
        for stream in (slave, *silent):
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
