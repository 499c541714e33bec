import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from netstack.serving.receiver import receive_of


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Yield both ends of a real connection."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        server = await listener.accept()
    async with client, server:
        yield client, server


async def test_bytes_come_in_order_whatever_was_asked_for() -> None:
    async with connected() as (client, server):
        receive, sent, got = receive_of(server), bytes(range(256)) * 700, bytearray()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for at in range(0, len(sent), 999):
                    await client.send_all(sent[at : at + 999])
                await client.send_eof()

            nursery.start_soon(send)
            while piece := await receive(1 + len(got) % 5000):
                got += piece
        assert bytes(got) == sent


async def test_what_comes_while_nobody_receives_is_not_waited_for_twice() -> None:
    async with connected() as (client, server):
        receive = receive_of(server)
        await client.send_all(b"one")
        assert await receive(100) == b"one"
        await client.send_all(b"two")
        await trio.sleep(0.01)
        with trio.fail_after(5):
            assert await receive(2) + await receive(100) == b"two"


async def test_a_receive_is_given_up_when_cancelled_and_the_next_one_gets_all() -> None:
    async with connected() as (client, server):
        receive = receive_of(server)
        await client.send_all(b"x")
        assert await receive(100) == b"x"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, 100)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await client.send_all(b"y")
        assert await receive(100) == b"y"


async def test_a_reset_is_a_broken_stream() -> None:
    async with connected() as (client, server):
        receive = receive_of(server)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await receive(100)


async def test_receiving_lets_others_run_also_when_there_is_always_more() -> None:
    async with connected() as (client, server):
        receive, turns = receive_of(server), 0
        await client.send_all(b"x" * 1000)
        async with trio.open_nursery() as nursery:

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(count)
            for _ in range(1000):
                await receive(1)
            nursery.cancel_scope.cancel()
        assert turns > 500


async def test_other_streams_are_left_as_they_are() -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"abc")
    assert bytes(await receive_of(ours)(10)) == b"abc"


async def test_a_socket_that_was_closed_between_two_receives_is_a_broken_stream() -> None:
    async with connected() as (mine, theirs):
        receive = receive_of(mine)
        await theirs.send_all(b"abc")
        assert await receive(100) == b"abc"  # short: the next one waits first
        mine.socket.close()
        with pytest.raises(trio.BrokenResourceError):
            await receive(100)
