"""TLS with the box's own certificate, which is loaded at the first greeting; on loopback it is made then.

Few clients ever greet in TLS, and OpenSSL takes time at the start and memory.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import trio

from netstack.errors import ProtocolError
from netstack.serving.tls import GREETING, TlsDoor, TlsStatistics

log = logging.getLogger("appliance")


class LazyTls:
    """The `tls` of serve_remoting. `make` blocks: it is called once, in a thread; None means that TLS cannot be."""

    def __init__(self, make: Callable[[], TlsDoor | None]) -> None:
        self._make = make
        self._door: TlsDoor | None = None
        self._asked, self._made = trio.Event(), trio.Event()

    async def secure(self, stream: trio.SocketStream) -> trio.abc.Stream:
        """Return the stream to read frames from, after the handshake. Raises ProtocolError, BrokenResourceError."""
        try:
            first = await stream.socket.recv(1, socket.MSG_PEEK)
        except OSError as exc:
            raise trio.BrokenResourceError from exc
        if first[:1] != bytes([GREETING]):
            return stream
        self._asked.set()
        await self._made.wait()
        if self._door is None:
            raise ProtocolError("a TLS greeting, but no certificate could be made")
        return await self._door.secure(stream)

    async def run(self) -> None:
        """Make the door when it is asked for, then take up changed files; until cancelled."""
        await self._asked.wait()
        self._door = await trio.to_thread.run_sync(self._make)
        self._made.set()
        if self._door is not None:
            await self._door.run()

    def statistics(self) -> TlsStatistics | None:
        """Return what is in force, None before the first greeting."""
        return self._door.statistics() if self._door else None
