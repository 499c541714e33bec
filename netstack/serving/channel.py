"""One connection from the asking side: the Python client, probes and tools speak through it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from netstack.serving.addresses import plain_address
from netstack.serving.connection import Connection, Handle
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer

# The other side speaks when it is asked, and the ids of a batch of 32,768 messages have 1.6 MiB.
ASKING = Limits(first_frame_s=float("inf"), header_bytes=2 << 20)


class Channel:
    """Requests out, answers in; requests of the server go to the `handle` given at opening."""

    def __init__(self, peer: Peer, connection: Connection) -> None:
        self.peer, self._connection = peer, connection

    @property
    def closed(self) -> trio.Event:
        """Set when the connection has ended, from whichever side."""
        return self.peer.closed

    def silent_since(self, moment: float) -> bool:
        """True when nothing has come from the other side after this moment of trio's clock."""
        heard_at = self._connection.heard_at
        return heard_at is None or heard_at <= moment

    async def ask(self, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        """Return the answer, whatever its code. Raises AskTimeout, ChannelClosed."""
        return await self.peer.ask_command(command, timeout_s)

    def tell(self, command: RemotingCommand) -> bool:
        """Send a one-way request; False when it was dropped, since the connection is gone or its outbox is full."""
        return self.peer.tell_command(command)

    def close(self) -> None:
        self._connection.finish("closed here")


@asynccontextmanager
async def open_channel(
    host: str,
    port: int,
    *,
    handle: Handle | None = None,
    tls: ssl.SSLContext | None = None,
    connect_timeout_s: float = 3.0,
    limits: Limits = ASKING,
) -> AsyncGenerator[Channel]:
    """Connect and yield the channel; leaving closes it. Raises OSError, also for a failed TLS handshake."""
    stream: trio.abc.Stream
    try:
        with trio.fail_after(connect_timeout_s):
            plain = await trio.open_tcp_stream(host, port)
            stream = plain
            if tls is not None:
                secured = trio.SSLStream(plain, tls, server_hostname=host, https_compatible=True)
                await secured.do_handshake()
                stream = secured
    except trio.BrokenResourceError as exc:
        raise ConnectionError(f"TLS handshake with {host}:{port} failed: {exc.__cause__ or exc}") from exc
    except UnicodeError as exc:
        raise OSError(f"{host!r} is not a host name: {exc}") from exc  # a label is empty or longer than 63 letters
    except trio.TooSlowError:
        raise TimeoutError(f"no connection to {host}:{port} within {connect_timeout_s:g} s") from None
    remote, local = plain.socket.getpeername(), plain.socket.getsockname()
    outbox = Outbox(limits.unsent_bytes)
    peer = Peer(0, (plain_address(remote[0]), remote[1]), (plain_address(local[0]), local[1]), outbox)
    peer.tls = tls is not None
    connection = Connection(stream, peer, outbox, handle or _refuse_all, Governor(limits))
    lifetime = trio.open_nursery()  # entered by hand, so that what the caller raises is not wrapped in a group
    nursery = await lifetime.__aenter__()
    try:
        await nursery.start(connection.run)
        yield Channel(peer, connection)
    finally:
        nursery.cancel_scope.cancel()
        await lifetime.__aexit__(None, None, None)


def _refuse_all(request: RemotingCommand, peer: Peer) -> Answer:
    """A caller without a handler asks only; a server's request gets no answer and times out there."""
    return None
