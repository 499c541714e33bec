"""The port where copies of the log are taken: the first byte of a connection says by whom.

0x16 begins a TLS greeting, of a member of the group; 0 is the high byte of a log offset, which Apache's slaves say
first. Everything else is closed and counted.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from appliance.group.links.links import MemberLinks
from appliance.sockets import serve_peer
from netstack.serving.connect_pace import ConnectPace
from netstack.serving.places import Places
from netstack.serving.slots import share_of

TLS_GREETING, STOCK_REPORT = b"\x16", b"\0"
MOST_UNDECIDED: Final = 32  # connections that have said nothing yet
FIRST_BYTE_S: Final = 5.0
STOCK_FIRST_BYTE_S: Final = 20.0  # Apache's slave says something 5 s after it has connected
Stock = Callable[[trio.SocketStream, str, int], Awaitable[None]]


class LinkPort:
    """Serves members, and where `stock` is given Apache's slaves too."""

    def __init__(self, links: MemberLinks, stock: Stock | None = None) -> None:
        self._links, self._stock = links, stock
        self._undecided = Places(MOST_UNDECIDED)
        self._pace = ConnectPace()

    def refused(self) -> Mapping[str, int]:
        """Return how many connections were closed without being anybody's, by reason."""
        return dict(self._links.at_port)

    async def serve(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._connection, list(listeners))

    async def _connection(self, stream: trio.SocketStream) -> None:
        await serve_peer(stream, self._serve)

    async def _serve(self, stream: trio.SocketStream, host: str, port: int) -> None:
        """Serve one connection to its end."""
        if not self._pace.admits(host):
            self._links.at_port["often"] += 1
            return
        first = await self._first_byte(stream, share_of(host))
        if first == TLS_GREETING:
            known = partial(self._pace.give_back, host)  # a follower brings its clients, some hundred at a switch
            await self._links.accepted(stream, f"{host}:{port}", known)
        elif first == STOCK_REPORT and self._stock is not None:
            await self._stock(stream, host, port)
        elif first:
            self._links.at_port["unknown"] += 1

    async def _first_byte(self, stream: trio.SocketStream, share: str) -> bytes | None:
        """Return the byte, which stays in the socket; None when none came in time.

        A stock slave is silent for 5 s: by its place strangers cannot keep it out.
        """
        with (
            self._undecided.place(share),
            trio.move_on_after(FIRST_BYTE_S if self._stock is None else STOCK_FIRST_BYTE_S),
        ):
            try:
                return await stream.socket.recv(1, socket.MSG_PEEK)
            except OSError:
                return None
        self._links.at_port["undecided"] += 1
        return None
