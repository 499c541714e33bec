"""Accept connections and serve them: `serve_remoting`, and `serve_connections` of any protocol."""

import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import trio

from netstack.errors import ProtocolError
from netstack.serving.addresses import is_loopback, plain_address
from netstack.serving.connection import Connection, Handle
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.slots import Slot

BACKLOG = 1024
_log = logging.getLogger("netstack")
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_TIMES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 30_000}


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
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
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
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, whatever protocol `connect` speaks on a stream."""
    server = _Server(connect, governor, tls, allow)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(server.accept, listener, nursery)
        nursery.start_soon(server.look_after)
        task_status.started()


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
            _set_options(sock)
        except OSError:  # gone already
            sock.close()
            return
        reason = "access: address is not allowed" if self._allow and not self._allow(remote[0]) else None
        own = is_loopback(remote[0]) or remote[0] == local[0]
        reason = reason or self._governor.admit(remote[0], descriptor=sock.fileno(), own=own)
        if reason is not None:
            sock.close()
            self._governor.refused(*remote, reason)
            return
        scope = trio.CancelScope()
        slot = Slot(remote[0], trio.current_time(), scope.cancel, at=local[0])
        if not own:
            self._governor.slots.add(slot)
        nursery.start_soon(self._run_within, scope, slot, trio.SocketStream(sock), remote, local)

    async def _run_within(
        self,
        scope: trio.CancelScope,
        slot: Slot,
        stream: trio.SocketStream,
        remote: tuple[str, int],
        local: tuple[str, int],
    ) -> None:
        """Serve until the connection ends or its place is given away."""
        try:
            with scope:
                await self._run(slot, stream, remote, local)
                return
        except Exception:  # before it is served; see Connection.run
            _log.exception("event=connection_failed peer=%s next_step=report_this", remote)
        finally:
            self._governor.slots.remove(slot)
        await trio.aclose_forcefully(stream)

    async def _run(
        self, slot: Slot, stream: trio.SocketStream, remote: tuple[str, int], local: tuple[str, int]
    ) -> None:
        governor = self._governor
        try:
            secured = await self._secured(stream, remote)
            if secured is None:
                return
            descriptor = stream.socket.fileno() if secured is stream else None
            outbox = Outbox(governor.limits.unsent_bytes, descriptor, governor.unsent)
            peer = Peer(governor.next_id(), remote, local, outbox)
            peer.tls = secured is not stream
            connection = self._connect(secured, peer, outbox, governor)
            self._connections.add(connection)
            slot.silent_since, slot.busy = connection.silent_since, connection.is_busy
            slot.signed = lambda: peer.signer is not None
            try:
                reason = await connection.run()
            finally:
                self._connections.discard(connection)
                governor.counted["bytes_out"] += outbox.sent_bytes
            governor.counted[f"closed_{reason.partition(':')[0].partition(' ')[0]}"] += 1
        finally:
            governor.release(remote[0])

    async def _secured(self, stream: trio.SocketStream, remote: tuple[str, int]) -> trio.abc.Stream | None:
        """Return the stream to serve, or None: the first byte or the handshake was wrong, it is closed."""
        if self._tls is None:
            return stream  # a TLS greeting reads as a frame of 369 MB and is refused by its length
        limits, governor = self._governor.limits, self._governor
        refused = ""
        with trio.move_on_after(limits.first_frame_s):
            try:
                return await self._tls.secure(stream)
            except (ProtocolError, trio.BrokenResourceError) as exc:
                refused = str(exc.__cause__ or exc) or "closed"  # itself it would keep this frame
        governor.counted["closed_tls" if refused else "closed_first"] += 1
        event = "tls_refused" if refused else "connection_closed"  # the handshake has a limit of its own
        reason = refused or f"first frame incomplete after {limits.first_frame_s:g} s"
        governor.note(event, remote[0], port=remote[1], reason=reason)
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


def _set_options(sock: trio.socket.SocketType) -> None:
    """A peer that vanished is noticed in 30 s instead of 15 minutes, and no answer waits for a full packet."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _TIMES.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
