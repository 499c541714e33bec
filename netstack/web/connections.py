"""The connections of a listener that people and scrapers look in by: few at once, and a code that is loaded when the
first of them comes.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from netstack.serving.addresses import is_loopback, plain_address
from netstack.serving.connect_pace import ConnectPace
from netstack.serving.places import Places
from netstack.serving.slots import share_of

if TYPE_CHECKING:
    from netstack.web.http import Request, Respond, Response

log = logging.getLogger("netstack.web")
CONNECTIONS = 16  # at once, of each listener
Load = Callable[[], "Respond"]  # imports the answering part: in a thread, as it takes a tenth of a second
Admit = Callable[[str, int], bool]  # whether a connection from an address and port is taken


def everybody(address: str, port: int) -> bool:
    """Take any connection."""
    return True


class WebConnections:
    """Takes the connections of one listener; the first of them has the answering part loaded."""

    def __init__(self, load: Load, admit: Admit = everybody) -> None:
        self._load, self._admit, self._pace = load, admit, ConnectPace()
        self._respond: Respond | None = None
        self._loading = trio.Lock()  # what is loaded knows who comes before whom: there is one
        self._places = Places(CONNECTIONS)

    async def __call__(self, stream: trio.SocketStream) -> None:
        """Answer one connection. One too many takes the place of the oldest of whoever has the most."""
        if not self._admitted(stream.socket):
            await trio.aclose_forcefully(stream)
            return
        try:
            with self._places.place(_address(stream.socket)):
                await self._serve(stream)
        finally:
            await trio.aclose_forcefully(stream)

    def _admitted(self, connection: trio.socket.SocketType) -> bool:
        if connection.family == socket.AF_UNIX:
            return True
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            return False  # it has gone already
        address = plain_address(str(host))
        return self._pace.admits(address) and self._admit(address, port)

    async def _serve(self, stream: trio.SocketStream) -> None:
        respond = await self._loaded()
        if respond is None:
            await stream.aclose()
            return
        from netstack.web.http import converse

        peer = _address(stream.socket)

        async def answer(request: Request) -> Response:
            return await respond(replace(request, peer=peer))

        try:
            await converse(stream, answer, near=is_near(stream.socket))
        except Exception as exc:  # the task of one connection: looking at a program must never end it
            log.error("event=page_connection_failed", exc_info=exc)
            await trio.aclose_forcefully(stream)

    async def _loaded(self) -> Respond | None:
        async with self._loading:
            try:
                self._respond = self._respond or await trio.to_thread.run_sync(self._load)
            except ImportError as exc:
                log.error("event=page_not_installed reason=%r next_step=install_the_package_again", str(exc))
            return self._respond


def _address(connection: trio.socket.SocketType) -> str:
    if connection.family == socket.AF_UNIX:
        return "this machine"
    try:
        return share_of(plain_address(str(connection.getpeername()[0])))
    except OSError:
        return "gone"


def is_near(connection: trio.socket.SocketType) -> bool:
    """Tell whether the other end is a program of this machine."""
    if connection.family == socket.AF_UNIX:
        return True
    try:
        return is_loopback(plain_address(str(connection.getpeername()[0])))
    except OSError:
        return False  # it has gone already
