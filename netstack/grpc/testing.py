"""The other end for tests: a client on h2, and a server on a free port. Not part of a box."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

from netstack.grpc.calls import Service
from netstack.grpc.connection import GrpcServing
from netstack.grpc.http2 import PREFIX
from netstack.grpc.limits import GrpcLimits
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.server import open_listeners, serve_connections

RECEIVE = 1 << 20


def enveloped(message: bytes) -> bytes:
    """Return a message as it travels."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


class Outcome:
    """What came back of one call."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.trailers: dict[bytes, bytes] = {}
        self.reset: int | None = None
        self.ended = trio.Event()

    @property
    def status(self) -> int:
        """The gRPC status, -1 where none came."""
        return int(self.trailers.get(b"grpc-status", b"-1"))

    @property
    def text(self) -> str:
        return self.trailers.get(b"grpc-message", b"").decode()

    @property
    def messages(self) -> list[bytes]:
        """The whole messages so far."""
        found, at = [], 0
        while at + PREFIX <= len(self.body):
            end = at + PREFIX + int.from_bytes(self.body[at + 1 : at + PREFIX], "big")
            if end > len(self.body):
                break
            found.append(bytes(self.body[at + PREFIX : end]))
            at = end
        return found


class GrpcTestClient:
    """One connection; `run` reads what comes. `acknowledging`: windows are opened as it reads."""

    def __init__(self, stream: trio.abc.Stream, *, acknowledging: bool = True) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.stream, self.acknowledging = stream, acknowledging
        self.calls: dict[int, Outcome] = {}
        self.goodbye: ConnectionTerminated | None = None
        self.closed = trio.Event()
        self._changed, self._sending = trio.Condition(), trio.Lock()
        self.h2.initiate_connection()

    async def run(self) -> None:
        """Take what the server sends until it closes."""
        await self.flush()
        try:
            while data := await self.stream.receive_some(RECEIVE):
                for event in self.h2.receive_data(bytes(data)):
                    self._take(event)
                await self.flush()
                async with self._changed:
                    self._changed.notify_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        for outcome in self.calls.values():
            outcome.ended.set()
        self.closed.set()
        async with self._changed:
            self._changed.notify_all()

    async def wait_changed(self) -> None:
        """Return when something came, or the server has closed."""
        async with self._changed:
            await self._changed.wait()

    def _take(self, event: Any) -> None:
        if isinstance(event, ConnectionTerminated):
            self.goodbye = event
        outcome = self.calls.get(getattr(event, "stream_id", 0) or 0)
        if outcome is None:
            return
        if isinstance(event, DataReceived):
            outcome.body += event.data
            if self.acknowledging and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
        elif isinstance(event, (ResponseReceived, TrailersReceived)):
            outcome.trailers |= {bytes(name): bytes(value) for name, value in event.headers or ()}
        elif isinstance(event, StreamReset):
            outcome.reset = event.error_code
            outcome.ended.set()
        elif isinstance(event, StreamEnded):
            outcome.ended.set()

    async def flush(self) -> None:
        async with self._sending:
            if data := self.h2.data_to_send():
                try:
                    await self.stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # `run` finds out

    async def send_frame(self, data: bytes) -> None:
        """Send a frame that h2 would not make, between those of `run`."""
        async with self._sending:
            await self.stream.send_all(data)

    async def begin(self, path: str, metadata: Mapping[str, str] | None = None) -> int:
        """Open a call and return its number."""
        number = self.h2.get_next_available_stream_id()
        self.calls[number] = Outcome()
        head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "box"}
        head |= {"te": "trailers", "content-type": "application/grpc", **(metadata or {})}
        self.h2.send_headers(number, [(name.encode(), value.encode()) for name, value in head.items()])
        await self.flush()
        return number

    async def send(self, number: int, data: bytes, *, end: bool = False) -> None:
        """Send bytes of a call as the server's windows let them."""
        while data:
            size = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(data))
            if size:
                self.h2.send_data(number, data[:size], end_stream=end and size == len(data))
                data = data[size:]
                await self.flush()
            else:
                await self.wait_changed()

    async def call(self, path: str, message: bytes, metadata: Mapping[str, str] | None = None) -> Outcome:
        """Return what becomes of a call of one message."""
        number = await self.begin(path, metadata)
        await self.send(number, enveloped(message), end=True)
        await self.calls[number].ended.wait()
        return self.calls[number]


@asynccontextmanager
async def grpc_client(port: int, *, acknowledging: bool = True) -> AsyncGenerator[GrpcTestClient]:
    """Connect to a server on this machine."""
    async with trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        client = GrpcTestClient(stream, acknowledging=acknowledging)
        nursery.start_soon(client.run)
        yield client
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def grpc_serving(
    service: Service,
    limits: GrpcLimits | None = None,
    *,
    governor: Governor | None = None,
    shared: Limits | None = None,
) -> AsyncGenerator[int]:
    """Serve on a free port of 127.0.0.1 while inside; yields the port."""
    serving = GrpcServing(service, limits)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        start = partial(serve_connections, listeners, serving.connect, governor or Governor(shared))
        await nursery.start(start)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()
