"""Both ends of a conversation for tests: a server on a free port, and a channel without a socket."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from netstack.serving.channel import ASKING, Channel
from netstack.serving.connection import Connection, Handle
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.server import Secure, open_listeners, serve_remoting
from netstack.wire.command import RemotingCommand, decode_command
from netstack.wire.conversation import Answer, Reply
from netstack.wire.frame import FrameDecoder


def echo(command: RemotingCommand, peer: Peer) -> Answer:
    """Answer with the ext fields and the body that came."""
    return Reply(command.reply(0, None, command.ext, command.body))


async def read_commands(stream: trio.abc.ReceiveStream, count: int) -> list[RemotingCommand]:
    """Return the next commands of a stream. Raises EOFError when it ends before."""
    decoder, found = FrameDecoder(), list[RemotingCommand]()
    while len(found) < count:
        data = await stream.receive_some(65536)
        if not data:
            raise EOFError(f"the stream ended after {len(found)} of {count} commands")
        decoder.feed(data)
        while (frame := decoder.next_frame()) is not None:
            found.append(decode_command(frame))
    return found


@asynccontextmanager
async def serving(
    handle: Handle = echo,
    limits: Limits | None = None,
    *,
    governor: Governor | None = None,
    tls: Secure | None = None,
    allow: Callable[[str], bool] | None = None,
) -> AsyncGenerator[int]:
    """Serve on a free port of 127.0.0.1 while inside; yields the port."""
    governor = governor or Governor(limits)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        await nursery.start(partial(serve_remoting, listeners, handle, governor=governor, tls=tls, allow=allow))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(handle: Handle, governor: Governor) -> AsyncGenerator[tuple[Connection, trio.abc.Stream]]:
    """Serve one memory stream; yields the connection and the stream of the other end."""
    ours, theirs = trio.testing.memory_stream_pair()
    outbox = Outbox(governor.limits.unsent_bytes, together=governor.unsent)
    connection = Connection(theirs, Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 10911), outbox), outbox, handle, governor)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        yield connection, ours
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def memory_channel(serve: Handle = echo, listen: Handle = echo) -> AsyncGenerator[tuple[Channel, Peer]]:
    """Yield a channel and the server's view of it: `serve` answers the channel, `listen` the server's requests."""
    governor = Governor(ASKING)
    async with connected(serve, governor) as (server, stream):
        outbox = Outbox()
        peer = Peer(0, ("10.0.0.2", 10911), ("10.0.0.1", 5), outbox)
        connection = Connection(stream, peer, outbox, listen, governor)
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            yield Channel(peer, connection), server.peer
            nursery.cancel_scope.cancel()
