"""One connection per address, opened once for all, opened again when lost, closed with the client."""

import pytest
import trio

from netstack.client.errors import TimedOut, Unreachable
from netstack.client.links import Links, host_and_port
from netstack.testing import echo, serving


@pytest.mark.parametrize(
    ("address", "parts"), [("h:1", ("h", 1)), ("[::1]:22", ("::1", 22)), ("10.0.0.1:9876", ("10.0.0.1", 9876))]
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["", "host", ":1", "h:x", "h:²", "h:65536", "h:999999"])
def test_a_wrong_address_says_what_is_expected(address: str) -> None:
    with pytest.raises(Unreachable, match="HOST:PORT"):
        host_and_port(address)


@pytest.mark.parametrize("address", ["http://h:9876", "http://h:9876/", "rocketmq://h"])
def test_an_address_with_a_scheme_says_to_leave_it_out(address: str) -> None:
    with pytest.raises(Unreachable, match=r"HOST:PORT: leave out (http|rocketmq)://;"):
        host_and_port(address)


async def test_all_who_ask_at_once_get_the_same_connection() -> None:
    opened: list[str] = []
    links = Links(echo, None, opened.append)
    async with serving() as port, trio.open_nursery() as nursery:
        address, got = f"127.0.0.1:{port}", []

        async def ask() -> None:
            got.append(await links.channel(address, nursery))

        async with trio.open_nursery() as askers:
            for _ in range(10):
                askers.start_soon(ask)
        assert len(set(map(id, got))) == 1
        assert opened == links.addresses == [address]
        links.drop(address)
        assert await links.channel(address, nursery) is not got[0]
        links.keep_only(())
        assert links.opened(address) is None
        links.close()
        with pytest.raises(Unreachable, match="closed"):
            await links.channel(address, nursery)


async def test_a_cancelled_asker_leaves_the_connection_to_the_others() -> None:
    links = Links(echo, None, lambda address: None)
    async with serving() as port, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            scope.cancel()
            await links.channel(f"127.0.0.1:{port}", nursery)
        assert (await links.channel(f"127.0.0.1:{port}", nursery)).peer.remote[1] == port
        links.close()


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_a_name_that_is_none_is_unreachable_and_harms_no_other_connection(host: str) -> None:
    links = Links(echo, None, lambda address: None)
    async with serving() as port, trio.open_nursery() as nursery:
        channel = await links.channel(f"127.0.0.1:{port}", nursery)
        with pytest.raises(Unreachable, match="is not a host name"):
            await links.channel(f"{host}:10911", nursery)
        assert not channel.closed.is_set()
        links.close()


async def test_nobody_listening_is_told_at_once_and_silence_after_the_time() -> None:
    links = Links(echo, None, lambda address: None)
    async with trio.open_nursery() as nursery:
        with pytest.raises(Unreachable, match="127"):
            await links.channel("127.0.0.1:1", nursery)
        with pytest.raises((TimedOut, Unreachable)):
            await links.channel("192.0.2.1:9", nursery, 0.05)  # an address that answers nobody
        links.close()
