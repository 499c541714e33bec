"""The first byte of a connection decides; `test_links.py` has the floods."""

from contextlib import suppress

import pytest
import trio

from appliance.group.links.link_port import MOST_UNDECIDED, LinkPort
from netstack.serving import limits
from netstack.serving.connect_pace import BURST
from netstack.serving.server import open_listeners
from netstack.wire.replication import REPORT
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.links.test_links import Member
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
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(port.serve, listeners)
        number = listeners[0].socket.getsockname()[1]
        for _ in range(2 * BURST):
            async with await trio.open_tcp_stream("127.0.0.1", number, local_address="127.0.0.9") as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"\x16\x03\x01" + b"\xff" * 20)
        await until(lambda: port.refused()["often"] >= BURST // 2)
        assert sum(member.refused().values()) <= 2 * BURST - port.refused()["often"]
        nursery.cancel_scope.cancel()


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
