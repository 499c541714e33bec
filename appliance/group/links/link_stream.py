"""The encrypted stream of a link: what the socket does not take at once leaves in a thread.

A MiB of a copy leaves in ten pieces or so, as the other side makes room; for each the loop would have to wake a task
and ask the kernel twice, which took a fifth of what a copy costs its leader. Where the other side keeps up the socket
takes a whole frame at once (0.1 ms for 300 KB), and no thread is woken for it.
"""

import os
import select
import socket
import ssl
from typing import Final

import trio

from appliance.group.links.thread_stream import ThreadStream
from netstack.serving.addresses import plain_address
from netstack.serving.receiver import receive_of
from uplink_spark.wire.tls import NOTHING, TlsStream

LARGE: Final = 128 << 10  # bytes that wait for room: less leaves as room comes
LOOK_MS: Final = 100  # how soon a thread hears that its task is cancelled
RECEIVE_BYTES: Final = 512 << 10


class LinkTlsStream(TlsStream):
    """One end of a link."""

    def __init__(self, tcp: trio.SocketStream, context: ssl.SSLContext, *, server_side: bool = True) -> None:
        super().__init__(tcp, context, server_side=server_side, receive_bytes=RECEIVE_BYTES)
        self._sending = trio.CapacityLimiter(1)
        self._receive = receive_of(tcp)

    @property
    def remote_host(self) -> str:
        """The address of the other side. Raises OSError where it has gone."""
        return plain_address(self._tcp.socket.getpeername()[0])

    @property
    def descriptor(self) -> int:
        """The number of the socket."""
        return self._tcp.socket.fileno()

    def receive_at_most(self, size: int) -> None:
        """Hold no more than this of what was received and not taken yet."""
        self._most = size

    def in_thread(self, silence_s: float) -> ThreadStream:
        """Hand the connection to a thread; no task sends or receives any more."""
        self._in.write(self._received)
        self._received = NOTHING
        own = socket.socket(fileno=os.dup(self._tcp.socket.fileno()))
        return ThreadStream(own, self.session, self._in, self._out, silence_s=silence_s)

    async def _flush(self) -> None:
        data = memoryview(self._out.read())
        if len(data) >= LARGE:
            data = data[self._taken_at_once(data) :]
        if len(data) < LARGE:
            await self._tcp.send_all(data)
            return
        own = self._tcp.socket.dup()  # of the thread: the number of a socket that is closed may be a file's by then
        with own:
            left = await trio.to_thread.run_sync(_send_all, own.fileno(), data, limiter=self._sending)
        if left is not None:
            raise trio.BrokenResourceError(f"socket connection broken: {left}") from left

    def _taken_at_once(self, data: memoryview) -> int:
        """Send what the socket has room for now; return how many bytes. Raises BrokenResourceError."""
        try:
            return os.write(self._tcp.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise trio.BrokenResourceError(f"socket connection broken: {exc}") from exc


def _send_all(fd: int, data: memoryview) -> OSError | None:
    """Send everything; return why that cannot be done. Blocks. Raises trio.Cancelled with the task that waits."""
    room, at = select.poll(), 0
    room.register(fd, select.POLLOUT)
    while at < len(data):
        try:
            at += os.write(fd, data[at:])
        except BlockingIOError:
            while not room.poll(LOOK_MS):
                trio.from_thread.check_cancelled()
        except OSError as exc:
            return exc
    return None
