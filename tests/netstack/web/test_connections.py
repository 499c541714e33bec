"""Connections of a page: who is near, how many fit, and that what fails behind them costs one connection."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from netstack.web.connections import WebConnections, is_near
from netstack.web.http import Request, Response, plain

QUESTION = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "near"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.7", False),
     ("::ffff:10.0.0.7", False), ("fe80::1", False)],
)  # fmt: skip
def test_only_programs_of_this_machine_are_near(host: str, near: bool) -> None:
    connection: Any = SimpleNamespace(family=socket.AF_INET, getpeername=lambda: (host, 5))
    assert is_near(connection) == near


def test_who_has_gone_is_not_near_and_a_local_socket_is() -> None:
    def gone() -> None:
        raise OSError(107, "not connected")

    connection: Any = SimpleNamespace(family=socket.AF_INET, getpeername=gone)
    assert not is_near(connection)
    assert is_near(SimpleNamespace(family=socket.AF_UNIX))  # type: ignore[arg-type]


async def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    one, two = trio.socket.socketpair()
    return trio.SocketStream(one), trio.SocketStream(two)


async def answer_of(client: trio.SocketStream) -> bytes:
    data = b""
    while got := await client.receive_some():
        data += got
    return data


async def test_the_answering_part_is_loaded_once_and_told_who_is_near() -> None:
    loads, seen = list[int](), list[bool]()

    async def respond(request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        seen.append(request.near)
        return plain(200, "fine")

    def load() -> Any:
        loads.append(1)
        return respond

    door = WebConnections(load)
    for _ in range(2):
        client, server = await pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door, server)
            await client.send_all(QUESTION)
            assert (await answer_of(client)).startswith(b"HTTP/1.1 200")
    assert (loads, seen) == ([1], [True, True])


async def test_one_connection_too_many_takes_the_place_of_the_oldest_of_who_has_the_most() -> None:
    async def respond(request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        return plain(200, "fine")

    door = WebConnections(lambda: respond)
    async with trio.open_nursery() as nursery:
        waiting = []
        for _ in range(600):
            client, server = await pair()
            nursery.start_soon(door, server)
            waiting.append(client)
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.02)
        client, server = await pair()
        nursery.start_soon(door, server)
        await client.send_all(QUESTION)
        assert (await answer_of(client)).startswith(b"HTTP/1.1 200")
        assert await answer_of(waiting[0]) == b"", "the oldest was ended"
        nursery.cancel_scope.cancel()


async def test_a_part_that_is_not_installed_closes_the_door_and_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load() -> Any:
        raise ImportError("no h11")

    client, server = await pair()
    await WebConnections(load)(server)
    assert await answer_of(client) == b""
    assert "event=page_not_installed reason='no h11' next_step=install_the_package_again" in caplog.text
