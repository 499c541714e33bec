"""A leader serves the gRPC clients that its followers bring, like those that come to its own port.

A connection that comes while the broker is being composed waits for it; whoever brings one is a member, and no more of
them wait than `MOST_WAITING`. How many are served the governor of the box decides. They end with the link of the member
that brought them: where it has lost its power nothing else says so, and what is sent to them comes to nobody.
"""

from collections.abc import Container
from typing import Final

import trio

from appliance.group.links.frames import LinkFrame
from appliance.group.links.link import LinkEnded
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.relay.relay_frame import BUSY, SERVED, RelayedClient, decode_relay
from netstack.serving.server import Brought, ServeBrought
from uplink_spark.wire.tls import FEED_BYTES

WAIT_S: Final = 2.5  # for the broker; a follower asks again while its client waits
MOST_WAITING: Final = 256
SEND_S: Final = 5.0  # for the first byte
RECEIVE_BYTES: Final = 32 << 10  # at once: what is not read yet is held for each connection


class RelayedClients:
    """What serves them, while this box leads; which other boxes serve such clients when they lead."""

    def __init__(self) -> None:
        self._serve: ServeBrought | None = None
        self._changed = trio.Event()
        self._waiting = 0
        self._takes: dict[str, bool] = {}
        self._brought: dict[str, set[trio.CancelScope]] = {}  # by member

    def heard(self, member: str, takes: bool) -> None:
        """Note whether another box takes such clients: one of an older version does not."""
        self._takes[member] = takes

    def takes(self, member: str) -> bool:
        """Return whether another box takes such clients; of one that was never heard it is expected."""
        return self._takes.get(member, True)

    @property
    def all_take(self) -> bool:
        """Whether that holds of each."""
        return all(self._takes.values())

    def know(self, members: Container[str]) -> None:
        """Forget who is no longer a member, and end what it has brought."""
        for member in [each for each in self._takes if each not in members]:
            del self._takes[member]
        for member in [each for each in self._brought if each not in members]:
            self.left(member)
            del self._brought[member]

    def left(self, member: str) -> None:
        """End what a member has brought: its link has ended."""
        for scope in self._brought.get(member, ()):
            scope.cancel()

    async def serve_by(self, serve: ServeBrought) -> None:
        """Have clients served until cancelled."""
        self._serve = serve
        self._changed.set()
        self._changed = trio.Event()
        try:
            await trio.sleep_forever()
        finally:
            self._serve = None

    async def take(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Serve what a member brings to its end. Raises LinkEnded, ProtocolError, OSError, trio's errors of streams."""
        client = decode_relay(frame).seen_from(stream.remote_host)
        with trio.CancelScope() as scope:
            brought = self._brought.setdefault(member, set())
            brought.add(scope)
            try:
                await self._take(client, stream)
            finally:
                brought.discard(scope)

    async def _take(self, client: RelayedClient, stream: LinkTlsStream) -> None:
        serve = await self._serving()
        with trio.fail_after(SEND_S):
            await stream.send_all(SERVED if serve is not None else BUSY)
        if serve is None or serve is not self._serve:  # what served may have ended while the byte left
            raise LinkEnded("relay", "a gRPC client came while this box does not serve, or too many wait")
        stream.receive_at_most(RECEIVE_BYTES)
        await serve(Brought(RelayedStream(stream), client.remote, client.local, client.tls, stream.descriptor))

    async def _serving(self) -> ServeBrought | None:
        """Return what serves, None when nothing does in time or too many wait."""
        if self._serve is None and self._waiting < MOST_WAITING:
            self._waiting += 1
            try:
                with trio.move_on_after(WAIT_S):
                    while self._serve is None:
                        await self._changed.wait()
            finally:
                self._waiting -= 1
        return self._serve


class RelayedStream(trio.abc.Stream):
    """The bytes of a client between members."""

    def __init__(self, stream: LinkTlsStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what came. Raises trio's errors of streams."""
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send little at a time: of much each client that does not read would keep OpenSSL's copy, and a thread."""
        with memoryview(data) as view:
            for at in range(0, len(view), FEED_BYTES):
                await self._stream.send_all(view[at : at + FEED_BYTES])

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()
