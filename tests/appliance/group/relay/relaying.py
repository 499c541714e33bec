"""Two members on real links, of which one serves gRPC clients and the other relays."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from appliance.group.leadership import FOLLOWER, Leadership, LeadershipState
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.relay.relay import GrpcRelay
from appliance.group.relay.relayed_clients import RelayedClients
from netstack.grpc.calls import Answer, AnswerTask, Call, Service, Unary
from netstack.grpc.connection import GrpcServing
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.server import Connect, Served, open_listeners, serve_connections
from netstack.serving.tls import TlsDoor
from tests.appliance.group.links.test_links import Member, serving

ELSEWHERE = LeadershipState(FOLLOWER, 3, "a", "")
ECHO, SIZE, WAIT = "/t/Echo", "/t/Large", "/t/Wait"


class Seen:
    """What a leader saw of its clients, and what it answers."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[str, int], tuple[str, int], bool]] = []
        self.waits = trio.Event()  # for this

    def service(self) -> Service:
        return {ECHO.encode(): Unary(self._echo), SIZE.encode(): Unary(self._large), WAIT.encode(): Unary(self._wait)}

    def _echo(self, call: Call, message: bytes) -> Answer:
        self.seen.append((call.peer.remote, call.peer.local, call.peer.tls))
        return message

    def _wait(self, call: Call, message: bytes) -> Answer:
        async def made() -> bytes:
            await self.waits.wait()
            return message

        return AnswerTask(made)

    def _large(self, call: Call, message: bytes) -> Answer:
        async def made() -> bytes:
            await trio.lowlevel.checkpoint()
            return bytes(int(message))

        return AnswerTask(made)


class Pair:
    """a serves, b relays; `at_b` is the port of b. `limits` are those of b, `scale` is the group's timing."""

    def __init__(self, seen: Seen, limits: Limits | None = None, scale: float = 1.0) -> None:
        self.seen = seen
        self.a, self.b = Member("a"), Member("b")
        self.relayed, self.own = RelayedClients(), RelayedClients()
        self.a.relayed = self.relayed
        self.leadership = Leadership(LeadershipState())
        self.asked = list[str]()
        self.cable_s = 0.0  # that a connection takes
        self.relay = GrpcRelay(self.own, self.leadership, "b", self._connected, scale)
        self.at_a, self.at_b = Governor(), Governor(limits)
        self.accepted = list[Served]()  # by b
        self.port_of_b = 0
        self._leading = trio.CancelScope()

    @asynccontextmanager
    async def _connected(self, leader: str) -> AsyncIterator[LinkTlsStream]:
        self.asked.append(leader)
        await trio.sleep(self.cable_s)
        async with self.b.links.connected(leader) as stream:
            yield stream

    async def serve_at_a(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let a serve clients until `leave`."""
        with trio.CancelScope() as self._leading:
            async with trio.open_nursery() as nursery:
                connect = GrpcServing(self.seen.service()).connect
                serve = await nursery.start(serve_connections, (), connect, self.at_a)
                nursery.start_soon(self.relayed.serve_by, serve)
                task_status.started()

    def leave(self) -> None:
        """The standing of a ends."""
        self._leading.cancel()


@asynccontextmanager
async def relaying(
    seen: Seen,
    *,
    tls: TlsDoor | None = None,
    own: Connect | None = None,
    floating: str = "",
    limits: Limits | None = None,
    scale: float = 1.0,
) -> AsyncIterator[tuple[Pair, Callable[[], Awaitable[None]]]]:
    """Run both; yields them, and what lets a serve."""
    pair = Pair(seen, limits, scale)
    with trio.fail_after(60):
        async with _running(pair, tls, own, floating) as nursery:
            yield pair, partial(nursery.start, pair.serve_at_a)


@asynccontextmanager
async def _running(pair: Pair, tls: TlsDoor | None, own: Connect | None, floating: str) -> AsyncIterator[trio.Nursery]:
    async with serving(pair.a, pair.b, dial=False) as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        pair.port_of_b = listeners[0].socket.getsockname()[1]
        following = pair.relay.following(floating).connect(own or GrpcServing({}).connect)

        def connect(stream: trio.abc.Stream, peer: Peer, outbox: Outbox, governor: Governor) -> Served:
            pair.accepted.append(made := following(stream, peer, outbox, governor))
            return made

        await nursery.start(partial(serve_connections, listeners, connect, pair.at_b, tls=tls))
        yield nursery
