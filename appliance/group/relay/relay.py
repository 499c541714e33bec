"""A follower relays: what a gRPC client says is carried to the leader, and back, as it is.

It accepts a client as it would serve it, with its own address rules, certificate and limits. While nobody leads, a
client waits; when another leads its connection ends, and it connects again. Where the leader is not to be reached from
here, this box answers, with the leader's route, until it reaches that one: then these connections end. A connection
holds what one receive brought, in either direction: who does not read is not read from.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from math import inf
from typing import Final

import trio

from appliance.group.leadership import Leadership, LeadershipState
from appliance.group.links.link import LinkEnded
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.links import STREAM_ERRORS
from appliance.group.relay.begun_stream import BegunStream
from appliance.group.relay.relay_frame import BUSY, SERVED, RelayedClient
from appliance.group.relay.relayed_clients import RECEIVE_BYTES, RelayedClients
from netstack.serving.governor import Governor
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.server import Connect, ServeBrought, Served
from uplink_spark.errors import ProtocolError

WAIT_S: Final = 5.0  # for a leader that serves: an election takes four; what is called meanwhile has its own deadline
DIAL_S: Final = 3.0  # as a link has to connect; both times `group.timing` where that is above 1
AGAIN_S: Final = 0.05
LOOK_S: Final = 5.0  # between two looks for a leader that was not reached
QUIET_S: Final = 0.1  # after the leader's last word a client has no other call under way, most likely
MOST_WAITING: Final = 512
MOST_DIALING: Final = 4  # at once: the port of members greets sixteen
# An empty frame of SETTINGS (RFC 9113, 6.5), before those of the leader, at an address that is about to move: a channel
# that has none yet is not ready, has nothing to say, and its client never hears that the connection leads nowhere. At
# others it comes with the leader: what is called on a channel that is not ready waits, and costs no try.
NO_SETTINGS: Final = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
UNREACHED: Final = (*STREAM_ERRORS, trio.TooSlowError, ProtocolError, LinkEnded)
Connected = Callable[[str], AbstractAsyncContextManager[LinkTlsStream]]


class _Wait:
    """A client that waits for a leader; whom this box follows meanwhile, since when, whether that one is busy."""

    def __init__(self, client: RelayedClient, stack: AsyncExitStack) -> None:
        """stack: closes what is reached for the client."""
        self.client, self.stack = client, stack
        self.state, self.since, self.busy = LeadershipState(), inf, False

    def follows(self, state: LeadershipState) -> None:
        """This box follows who is to be dialed now."""
        if state != self.state:
            self.state, self.since, self.busy = state, trio.current_time(), False


class GrpcRelay:
    """What a member has for this as long as the box runs; `connected` connects to a member beside its link."""

    def __init__(
        self,
        relayed: RelayedClients,
        leadership: Leadership,
        member: str,
        connected: Connected,
        scale: float = 1.0,
    ) -> None:
        """scale: `group.timing`."""
        self.relayed, self.leadership, self._member = relayed, leadership, member
        self._connected, self._scale = connected, max(1.0, scale)
        self._waiting, self._dialing = 0, trio.CapacityLimiter(MOST_DIALING)
        self._unreached: LeadershipState | None = None  # under which the newest dial that ended failed
        self._reached, self._looking = trio.Event(), trio.Lock()

    def leading(self, *, floating: bool) -> "LeadersPort":
        """Return what the port of a leader is; `floating`: clients find the leader at an address that moves."""
        return LeadersPort(self.relayed, floating=floating)

    def following(self, floating: str = "") -> "FollowersPort":
        """Return what the port of a follower is; `floating`: the address that moves."""
        return FollowersPort(self, floating)

    def is_elsewhere(self, state: LeadershipState) -> bool:
        """Return whether another box leads."""
        return bool(state.leader) and state.leader != self._member

    async def reach(self, client: RelayedClient, stack: AsyncExitStack) -> "tuple[str, LinkTlsStream | None] | None":
        """Return who leads, and a connection on which it serves a client.

        None for the connection: this box has to answer, that leader takes none or is not reached from here. None where
        nobody leads and serves in time. The stack closes the connection.
        """
        if self._waiting >= MOST_WAITING:
            return None
        wait = _Wait(client, stack)
        self._waiting += 1
        try:
            with trio.move_on_after(WAIT_S * self._scale):
                while True:
                    wait.follows(await self.leadership.wait_for(self.is_elsewhere))
                    leader = wait.state.leader
                    if not self.relayed.takes(leader):  # it is of an older version
                        return leader, None
                    if (stream := await self._dialed(wait)) is not None:
                        return leader, stream
                    await trio.sleep(AGAIN_S)
        finally:
            self._waiting -= 1
        return (wait.state.leader, None) if self._is_out_of_reach(wait) else None

    def _is_out_of_reach(self, wait: _Wait) -> bool:
        """Return whether there was time enough to reach who leads now, it has not answered, and no other is reached.

        One that waits behind others who are, is closed and comes again.
        """
        there = self.leadership.current == wait.state == self._unreached and not wait.busy
        return there and trio.current_time() - wait.since >= DIAL_S * self._scale

    async def _dialed(self, wait: _Wait) -> LinkTlsStream | None:
        """Return a connection that the leader serves, None where it does not, or leads no longer."""
        found: LinkTlsStream | None = None
        async with trio.open_nursery() as nursery:

            async def until_another_leads() -> None:
                await self.leadership.wait_for(lambda state: state.leader != wait.state.leader)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_another_leads)
            found = await self._served(wait)
            nursery.cancel_scope.cancel()
        return found

    async def _served(self, wait: _Wait) -> LinkTlsStream | None:
        async with AsyncExitStack() as trying:
            try:
                if (stream := await self._asked(wait, trying)) is not None:
                    answer = await stream.receive_some(1)
                    if answer == SERVED:
                        await wait.stack.enter_async_context(trying.pop_all())
                        return stream
                    wait.busy = wait.busy or answer == BUSY
            except UNREACHED:
                pass
        return None

    async def _asked(self, wait: _Wait, stack: AsyncExitStack) -> LinkTlsStream | None:
        """Return a connection on which a leader was told whose it is, None after a pause where it cannot be reached."""
        async with self._dialing:
            try:
                with trio.fail_after(DIAL_S * self._scale):
                    stream = await stack.enter_async_context(self._connected(wait.state.leader))
                    stream.receive_at_most(RECEIVE_BYTES)
                    await stream.send_all(wait.client.encode())
            except UNREACHED:
                self._unreached = wait.state
                await trio.sleep(AGAIN_S)  # all who wait share the pause
                return None
        self._note_reached()
        return stream

    def _note_reached(self) -> None:
        self._unreached = None
        self._reached.set()
        self._reached = trio.Event()

    async def until_reached(self, leader: str) -> None:
        """Return once a leader that was out of reach is reached: of those who wait one looks for all."""
        reached = self._reached
        while not reached.is_set():
            async with self._looking:
                with trio.move_on_after(LOOK_S):
                    await reached.wait()
                if not reached.is_set():
                    await self._look(leader)

    async def _look(self, leader: str) -> None:
        try:
            with trio.fail_after(DIAL_S * self._scale):
                async with self._connected(leader):
                    self._note_reached()
        except UNREACHED:
            pass


class LeadersPort:
    """A leader serves what comes to its port, and what its followers bring."""

    def __init__(self, relayed: RelayedClients, *, floating: bool) -> None:
        self._relayed, self._floating = relayed, floating

    def connect(self, own: Connect) -> Connect:
        """Return what a connection of a client becomes."""
        return own

    async def run(self, serve: ServeBrought) -> None:
        """Have clients served that followers bring, until cancelled."""
        await self._relayed.serve_by(serve)

    def each_serves(self) -> bool:
        """Return whether a client is to be told of every box."""
        return not self._floating and self._relayed.all_take


class FollowersPort:
    """A follower carries what comes to its port to the leader."""

    def __init__(self, relay: GrpcRelay, floating: str) -> None:
        self._relay, self._floating = relay, floating

    def connect(self, own: Connect) -> Connect:
        """Return what a connection of a client becomes; `own` serves it here, with what a follower may answer."""

        def connect(stream: trio.abc.Stream, peer: Peer, outbox: Outbox, governor: Governor) -> Served:
            begun = BegunStream(stream)
            here = partial(own, begun, peer, outbox, governor)
            relayed = RelayedConnection(begun, peer, governor, self._relay, here)
            relayed.moves = peer.local[0] == self._floating
            return relayed

        return connect

    async def run(self, serve: ServeBrought) -> None:
        """A follower serves nobody that another brings."""
        await trio.lowlevel.checkpoint()

    def each_serves(self) -> bool:
        """Return that it is not: who is served here at all came because of an older version."""
        return False


class RelayedConnection:
    """One connection of a client to a follower. `own` is what serves it where the leader does not."""

    def __init__(
        self, stream: BegunStream, peer: Peer, governor: Governor, relay: GrpcRelay, own: Callable[[], Served]
    ) -> None:
        self.peer, self._governor = peer, governor
        self._stream, self._relay, self._own = stream, relay, own
        self._scope = trio.CancelScope()
        self._asked_at = self._answered_at = trio.current_time()  # when client and leader said something last
        self._giving_since = inf  # the client what it has not taken yet
        self._served: Served | None = None  # by this box itself
        self.moves = False  # whether it was made to an address that moves

    async def run(self) -> str:
        """Return why the connection ended. The stream is closed."""
        try:
            with self._scope:
                await self._run()
        finally:
            self.peer.end(self.peer.close_reason or "cancelled")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
        return self.peer.close_reason

    async def _run(self) -> None:
        if not await self._began():
            return
        async with AsyncExitStack() as stack:
            reached = await self._reached(stack)
            if reached is None:
                self.finish("unserved")
                return
            leader, upstream = reached
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_after, leader)
                if upstream is None:
                    if self._relay.relayed.takes(leader):
                        nursery.start_soon(self._end_once_reached, leader)
                    self._served = self._own()
                    await self._served.run()
                else:
                    self.peer.elsewhere = True
                    nursery.start_soon(self._carry_up, upstream)
                    nursery.start_soon(self._carry_down, upstream)
                    await trio.sleep_forever()
                self._scope.cancel()

    async def _began(self) -> bool:
        """Let the channel be ready at once where it may not wait; whether the client has said something in time."""
        limit_s = self._governor.limits.first_frame_s
        try:
            if self.moves:
                await self._stream.send_all(NO_SETTINGS)
            with trio.move_on_after(limit_s):
                if await self._stream.read_ahead(RECEIVE_BYTES):
                    return True
                self.finish("eof")
        except BROKEN:
            self.finish("reset")
        self.finish(f"first: nothing came in {limit_s:g} s")  # unless there was a reason before
        return False

    async def _reached(self, stack: AsyncExitStack) -> tuple[str, LinkTlsStream | None] | None:
        """Return what the relay reaches; a client that goes meanwhile is not dialed for any longer."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_ahead)
            client = RelayedClient(self.peer.remote, self.peer.local, self.peer.tls)
            reached = await self._relay.reach(client, stack)
            nursery.cancel_scope.cancel()
        return reached

    async def _read_ahead(self) -> None:
        """Notice that the client ends its connection, as long as it says little."""
        try:
            while self._stream.begun < RECEIVE_BYTES:
                if not await self._stream.read_ahead(RECEIVE_BYTES):
                    self.finish("eof")
                    return
        except BROKEN:
            self.finish("reset")

    async def _end_after(self, leader: str) -> None:
        """End the connection when another than this leads, or nobody."""
        await self._relay.leadership.wait_for(lambda state: state.leader != leader)
        self.finish("leader")

    async def _end_once_reached(self, leader: str) -> None:
        """End a connection that is served here because the leader was not reached: the client comes again."""
        await self._relay.until_reached(leader)
        self.finish("leader")

    async def _carry_up(self, upstream: LinkTlsStream) -> None:
        """Carry what the client says until it ends."""
        try:
            while data := await self._stream.receive_some(RECEIVE_BYTES):
                self._asked_at = trio.current_time()
                await upstream.send_all(data)
        except BROKEN:
            pass
        self.finish("eof")

    async def _carry_down(self, upstream: LinkTlsStream) -> None:
        """Carry what the leader says until it ends."""
        try:
            while data := await upstream.receive_some(RECEIVE_BYTES):
                self._answered_at = self._giving_since = trio.current_time()
                await self._stream.send_all(data)
                self._giving_since = inf
        except BROKEN:
            pass
        self.finish("leader")

    def finish(self, reason: str) -> None:
        """End the connection; the first reason counts."""
        self.peer.close_reason = self.peer.close_reason or reason
        self._scope.cancel()

    def silent_since(self) -> float:
        """When bytes of the client or for it came last, by trio's clock."""
        if self._served is not None:
            return self._served.silent_since()
        return max(self._asked_at, self._answered_at)

    def is_busy(self) -> bool:
        """Whether a call is under way, as far as this box knows: what came last came from the client, or just now."""
        if self._served is not None:
            return self._served.is_busy()
        return self._asked_at > self._answered_at or trio.current_time() - self._answered_at < QUIET_S

    def overdue(self, now: float) -> str | None:
        """Return why this connection is to be closed now, or None; of what it says the leader decides that."""
        if self._served is not None:
            return self._served.overdue(now)
        limit_s = self._governor.limits.unsent_s
        if now - self._giving_since > limit_s:
            return f"unsent: what the leader said last is not read for {limit_s:g} s"
        return None
