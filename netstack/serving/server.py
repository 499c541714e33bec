"""Accept connections and serve them: `serve_remoting`, and `serve_connections` of any protocol."""

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import trio

from netstack.errors import ProtocolError
from netstack.serving.addresses import is_loopback, plain_address
from netstack.serving.connection import Connection, Handle
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.outbox import Outbox, OutboxOwner
from netstack.serving.peer import Peer
from netstack.serving.slots import Slot
from netstack.serving.socket_options import set_options
from netstack.serving.tls import handshake_failure

BACKLOG = 1024
_log = logging.getLogger("netstack")
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Served(Protocol):
    """What serves the stream of one connection: remoting's `Connection`, or gRPC's."""

    @property
    def peer(self) -> Peer: ...
    async def run(self) -> str: ...
    def finish(self, reason: str, /) -> None: ...
    def overdue(self, now: float, /) -> str | None: ...
    def silent_since(self) -> float: ...
    def is_busy(self) -> bool: ...


Connect = Callable[[trio.abc.Stream, Peer, Outbox, Governor], Served]


class Brought(NamedTuple):
    """A client's connection that came another way than through a listener, its TLS taken off.

    remote, local: its ends as they were where it came in. descriptor: that of the socket it is carried over.
    """

    stream: trio.abc.Stream
    remote: tuple[str, int]
    local: tuple[str, int]
    tls: bool
    descriptor: int


ServeBrought = Callable[[Brought], Awaitable[None]]
"""Serves such a connection to its end, or refuses it as one at the port; closes it."""


class Secure(Protocol):
    """Decides by the first byte of a connection what it is spoken over; see `tls`."""

    async def secure(self, stream: trio.SocketStream) -> trio.abc.Stream:
        """Return the stream to read frames from. Raises ProtocolError, trio.BrokenResourceError."""


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Return listeners on the address, ready to be connected to. Raises OSError when the port is taken."""
    return list(await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG))


async def serve_remoting(
    listeners: Sequence[trio.SocketListener],
    handle: Handle,
    limits: Limits | None = None,
    *,
    governor: Governor | None = None,
    tls: Secure | None = None,
    allow: Callable[[str], bool] | None = None,
    task_status: trio.TaskStatus[ServeBrought] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. `governor` is shared by the ports of one process, `allow` tells by address who may come.

    `handle` answers each request at once and raises nothing but Refused; one-way requests reach it as others do.
    """

    def connect(stream: trio.abc.Stream, peer: Peer, outbox: Outbox, shared: Governor) -> Served:
        return Connection(stream, peer, outbox, handle, shared)

    serving = partial(serve_connections, listeners, connect, governor or Governor(limits), tls=tls, allow=allow)
    await serving(task_status=task_status)


async def serve_connections(
    listeners: Sequence[trio.SocketListener],
    connect: Connect,
    governor: Governor,
    *,
    tls: Secure | None = None,
    allow: Callable[[str], bool] | None = None,
    task_status: trio.TaskStatus[ServeBrought] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, whatever protocol `connect` speaks on a stream; started with what serves one more."""
    server = _Server(connect, governor, tls, allow)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(server.accept, listener, nursery)
        nursery.start_soon(server.look_after)
        task_status.started(partial(server.serve_brought, nursery))


class _Place(NamedTuple):
    """What a connection was given: its slot, the scope that ends it, and its ends."""

    scope: trio.CancelScope
    slot: Slot
    remote: tuple[str, int]
    local: tuple[str, int]


class _Server:
    def __init__(
        self, connect: Connect, governor: Governor, tls: Secure | None, allow: Callable[[str], bool] | None
    ) -> None:
        self._connect, self._governor, self._tls, self._allow = connect, governor, tls, allow
        self._connections: set[Served] = set()

    async def accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        spare = _Spare()
        with spare:
            async with listener:
                while True:
                    try:
                        sock, _ = await listener.socket.accept()
                    except OSError as exc:
                        if exc.errno in _NO_DESCRIPTORS:
                            await self._shed(listener, spare, exc)
                        elif exc.errno in (errno.EBADF, errno.EINVAL, errno.ENOTSOCK):
                            raise
                        continue  # anything else concerns the one connection that was about to be accepted
                    self._admit(sock, nursery)

    async def _shed(self, listener: trio.SocketListener, spare: "_Spare", exc: OSError) -> None:
        """Close one waiting connection, so that its client fails at once instead of in its timeout; then pause."""
        self._governor.counted["no_descriptors"] += 1
        self._governor.note("no_descriptors", "any", reason=exc.strerror, next_step="raise LimitNOFILE")
        spare.release()
        try:
            with trio.move_on_after(0.01):
                sock, _ = await listener.socket.accept()
                sock.close()
        except OSError:
            pass
        await trio.sleep(0.1)
        spare.take()

    def _admit(self, sock: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        try:
            remote, local = _ends(sock)
            set_options(sock)
        except OSError:  # gone already
            sock.close()
            return
        own = is_loopback(remote[0]) or remote[0] == local[0]
        if not self._admits(remote, sock.fileno(), own=own):
            sock.close()
            return
        place, stream = self._place(remote, local, own=own), trio.SocketStream(sock)
        nursery.start_soon(self._run_within, place, stream, partial(self._accepted, place, stream))

    def _admits(self, remote: tuple[str, int], descriptor: int, *, own: bool) -> bool:
        """Tell whether a connection is let in; it has a place from here on."""
        reason = "access: address is not allowed" if self._allow and not self._allow(remote[0]) else None
        reason = reason or self._governor.admit(remote[0], descriptor=descriptor, own=own)
        if reason is not None:
            self._governor.refused(*remote, reason)
        return reason is None

    def _place(self, remote: tuple[str, int], local: tuple[str, int], *, own: bool) -> "_Place":
        scope = trio.CancelScope()
        slot = Slot(remote[0], trio.current_time(), scope.cancel, at=local[0])
        if not own:
            self._governor.slots.add(slot)
        return _Place(scope, slot, remote, local)

    async def serve_brought(self, nursery: trio.Nursery, brought: Brought) -> None:
        """Serve one to its end, which comes with that of the server at the latest."""
        if not self._admits(brought.remote, brought.descriptor, own=False):
            await trio.aclose_forcefully(brought.stream)
            return
        place, ended = self._place(brought.remote, brought.local, own=False), trio.Event()

        async def run() -> None:
            try:
                serving = partial(self._serve, place, brought.stream, descriptor=None, tls=brought.tls)
                await self._run_within(place, brought.stream, serving)
            finally:
                ended.set()

        nursery.start_soon(run)
        try:
            await ended.wait()
        finally:
            place.scope.cancel()

    async def _run_within(self, place: "_Place", stream: trio.abc.Stream, run: Callable[[], Awaitable[None]]) -> None:
        """Serve until the connection ends or its place is given away."""
        try:
            with place.scope:
                await run()
                return
        except Exception:  # before it is served; see Connection.run
            _log.exception("event=connection_failed peer=%s next_step=report_this", place.remote)
        finally:
            self._governor.slots.remove(place.slot)
            self._governor.release(place.remote[0])
        await trio.aclose_forcefully(stream)

    async def _accepted(self, place: "_Place", stream: trio.SocketStream) -> None:
        secured = await self._secured(stream, place.remote)
        if secured is not None:
            tls = secured is not stream
            await self._serve(place, secured, descriptor=stream.socket.fileno(), tls=tls)

    async def _serve(self, place: "_Place", stream: trio.abc.Stream, *, descriptor: int | None, tls: bool) -> None:
        governor, slot = self._governor, place.slot
        number = governor.next_id()
        plain, owner = None if tls else descriptor, OutboxOwner(slot.site, number)
        outbox = Outbox(governor.limits.unsent_bytes, plain, governor.unsent, owner)
        peer = Peer(number, place.remote, place.local, outbox, socket_fd=descriptor)
        peer.tls = tls
        connection = self._connect(stream, peer, outbox, governor)
        self._connections.add(connection)
        slot.silent_since, slot.busy = connection.silent_since, connection.is_busy
        slot.signed, slot.elsewhere = lambda: peer.signer is not None, lambda: peer.elsewhere
        try:
            reason = await connection.run()
        finally:
            self._connections.discard(connection)
            governor.counted["bytes_out"] += outbox.sent_bytes
        governor.counted[f"closed_{reason.partition(':')[0].partition(' ')[0]}"] += 1

    async def _secured(self, stream: trio.SocketStream, remote: tuple[str, int]) -> trio.abc.Stream | None:
        """Return the stream to serve, or None: the first byte or the handshake was wrong, it is closed."""
        if self._tls is None:
            return stream  # a TLS greeting reads as a frame of 369 MB and is refused by its length
        limits, governor = self._governor.limits, self._governor
        refused = ""
        with trio.move_on_after(limits.idle_s):  # the handshake has a limit of its own
            try:
                return await self._tls.secure(stream)
            except (ProtocolError, trio.BrokenResourceError) as exc:
                refused = handshake_failure(exc.__cause__ or exc) or "closed"  # itself it would keep this frame
        governor.counted["closed_tls" if refused else "closed_idle"] += 1
        if refused:
            governor.note("tls_refused", remote[0], port=remote[1], reason=refused)
        await trio.aclose_forcefully(stream)
        return None

    async def look_after(self) -> None:
        """Close once a second what is overdue."""
        while True:
            await trio.sleep(1)
            now = trio.current_time()
            for connection in list(self._connections):
                reason = connection.overdue(now)
                if reason is not None:
                    self._finish(connection, reason)

    def _finish(self, connection: Served, reason: str) -> None:
        remote = connection.peer.remote
        if not reason.startswith("idle"):
            self._governor.note("connection_closed", remote[0], port=remote[1], reason=reason)
        connection.finish(reason)


class _Spare:
    """One descriptor kept back, given up for a moment when there are no others."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        try:
            self._descriptor = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._descriptor = None  # tried again after the next pause

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _ends(sock: trio.socket.SocketType) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return remote and local address, IPv4 without its IPv6 dress."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return ("127.0.0.1", 0), ("127.0.0.1", 0)
    remote, local = sock.getpeername(), sock.getsockname()
    return (plain_address(remote[0]), remote[1]), (plain_address(local[0]), local[1])
