"""The links of one member: dials some of the others, is dialed by the rest, has one link to each.

Who connects shows a certificate of the group before it costs more than a handshake; how many may be at that at a time
is bounded, and so is what a member may send. A link that ends is dialed again within a second or two.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import trio

from appliance.group.links.frames import (
    FETCH,
    HELLO,
    REFUSED,
    RELAY,
    WELCOME,
    LinkFrame,
    LinkFrameDecoder,
    LinkRefused,
    MemberHello,
    decode_hello,
    decode_refused,
)
from appliance.group.links.link import Link, LinkClocks, LinkEnded, LinkPace
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.link_tls import LinkTls, MemberCertificates, member_of
from netstack.serving.limits import LogLimiter
from netstack.serving.places import Places
from netstack.serving.slots import share_of
from netstack.serving.socket_options import set_options
from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import ProtocolError

log = logging.getLogger("appliance.group")
CONNECT_S: Final = 3.0
RETRY_S, MOST_RETRY_S = 0.2, 2.0
LOOK_S, APART_S = 30.0, 5.0  # between two looks at the certificates; between two links to renew
REST_S: Final = 1.0  # how long a replaced link stays open for the other side, which may still use it
STRANGER_MS: Final = 2000  # it may become a member any time
MOST_GREETING: Final = 16  # connections whose member is not known yet
MOST_GREETING_BYTES: Final = 1 << 17
STREAM_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
_OFTEN: Final = (
    "greeting",
    "places",
    "certificate",
    "stranger",
    "twin",
    "garbage",
    "silent",
    "slow",
    "differs",
    "closed",
)
REASONS: Final = (*_OFTEN, "relay")


class LinkUser(Protocol):
    """What sits behind the links. All but `take`, `send_segment` and `take_client` never wait."""

    def hello(self) -> MemberHello: ...
    def check(self, hello: MemberHello) -> LinkRefused | None:
        """Return why a member's log is not to be linked with this one."""

    def begun(self, link: Link, hello: MemberHello) -> None: ...
    def ended(self, link: Link) -> None: ...
    async def take(self, link: Link, frame: LinkFrame) -> None: ...
    async def send_segment(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Send a member what it fetches. Raises LinkEnded, ProtocolError, OSError."""

    async def take_client(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Serve a gRPC client that a member brings. Raises LinkEnded, ProtocolError, OSError."""


class LinkPeer(NamedTuple):
    """Another member: where its link is, whether it is dialed from here."""

    host: str
    port: int
    dialed: bool


class _Greeting(NamedTuple):
    """A member that has said who it is, what came behind that, and what reads on."""

    hello: MemberHello
    behind: Sequence[LinkFrame]
    decoder: LinkFrameDecoder


class _Beside(NamedTuple):
    """A connection beside the link: a member fetches a segment, or brings a gRPC client."""

    member: str
    frame: LinkFrame


class LinksSeen(NamedTuple):
    """Who is linked, why links were refused or lost so far, what the last reason was by member, connections so far."""

    linked: tuple[str, ...]
    refused: Mapping[str, int]
    last: Mapping[str, str]
    connections: int
    sent_bytes: int
    received_bytes: int


class MemberLinks:
    """The links of one member."""

    def __init__(
        self,
        tls: LinkTls,
        user: LinkUser,
        *,
        new_decoder: Callable[[], LinkFrameDecoder],
        clocks: LinkClocks,
        pace: LinkPace,
    ) -> None:
        self._tls, self._user, self._new_decoder, self._clocks, self._pace = tls, user, new_decoder, clocks, pace
        self._peers: dict[str, LinkPeer] = {}
        self._links: dict[str, tuple[Link, bytes]] = {}  # with the session of the member's process
        self._changed, self._greeting = trio.Event(), Places(MOST_GREETING)
        self._refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.at_port = Counter({"unknown": 0, "undecided": 0, "often": 0})  # nobody's connections
        self._last: dict[str, str] = {}
        self._told = LogLimiter()
        self._connections = 0
        self._bytes = [0, 0]  # sent, received, by links that have ended

    def set_peers(self, peers: Mapping[str, LinkPeer]) -> None:
        """Link with these members from now on, with nobody else."""
        if peers == self._peers:
            return
        self._peers = dict(peers)
        for member, (link, _) in self._links.items():
            if member not in peers:
                link.end(LinkEnded("stranger", f"{member} is no longer a member"))
        self._tell_changed()

    def _tell_changed(self) -> None:
        """Peers are others, or a link is gone."""
        self._changed.set()
        self._changed = trio.Event()

    def link(self, member: str) -> Link | None:
        """Return the link to a member, None while there is none."""
        found = self._links.get(member)
        return found[0] if found is not None else None

    def send(self, member: str, frame: bytes) -> None:
        """Send a frame; it is lost where no link is."""
        if (link := self.link(member)) is not None:
            link.put(frame)

    def wake(self) -> None:
        """Ask all pumps again."""
        for link, _ in self._links.values():
            link.wake()

    def statistics(self) -> LinksSeen:
        """Return a snapshot."""
        links = [link for link, _ in self._links.values()]
        return LinksSeen(
            tuple(sorted(self._links)),
            dict(self._refused),
            dict(self._last),
            self._connections,
            self._bytes[0] + sum(link.sent_bytes for link in links),
            self._bytes[1] + sum(link.received_bytes for link in links),
        )

    def certificates(self) -> MemberCertificates:
        """Return what is known of the certificates of this member and the others."""
        return self._tls.statistics()

    async def _renew(self, nursery: trio.Nursery) -> None:
        """Make links anew, one after the other, where this member has new certificates.

        The new link begins before the old one ends. One that is refused changes nothing, and is tried again.
        """
        known, old = self._tls.renewals, set[Link]()
        while True:
            await trio.sleep(LOOK_S)
            self._tls.look()
            if self._tls.renewals != known:
                known, old = self._tls.renewals, {link for link, _ in self._links.values()}
            for member, (link, _) in list(self._links.items()):
                if link in old and (peer := self._peers.get(member)) is not None:
                    nursery.start_soon(self._dialed, member, peer)
                    await trio.sleep(APART_S)
            old &= {link for link, _ in self._links.values()}

    # ---- dialing

    async def run(self) -> None:
        """Dial until cancelled."""
        kept: dict[str, tuple[LinkPeer, trio.CancelScope]] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._renew, nursery)
            while True:
                changed = self._changed
                for member in [name for name, (peer, _) in kept.items() if self._peers.get(name) != peer]:
                    kept.pop(member)[1].cancel()
                for member, peer in self._peers.items():
                    if peer.dialed and member not in kept:
                        kept[member] = peer, trio.CancelScope()
                        nursery.start_soon(self._keep, member, *kept[member])
                await changed.wait()

    async def _keep(self, member: str, peer: LinkPeer, scope: trio.CancelScope) -> None:
        """Have a link to a member until cancelled."""
        with scope:
            await self._redial(member, peer)

    async def _redial(self, member: str, peer: LinkPeer) -> None:
        pause_s = RETRY_S
        while True:
            while self.link(member) is not None:  # it was replaced beside this one, or by the other side
                await self._changed.wait()
            began = self._clocks.now_s()
            refused = await self._dialed(member, peer)
            if self._clocks.now_s() - began > MOST_RETRY_S + self._pace.silence_s:
                pause_s = RETRY_S
            await trio.sleep(max(pause_s, refused.retry_ms / 1000 if refused is not None else 0.0))
            pause_s = min(2 * pause_s, MOST_RETRY_S)

    async def _dialed(self, member: str, peer: LinkPeer) -> LinkRefused | None:
        """Have one link, to its end; return what the other side said if it refused."""
        refused: LinkRefused | None = None
        try:
            async with self._connected(peer) as stream:
                with trio.fail_after(self._pace.handshake_s):
                    greeting = await self._greet(stream, member)
                await self._serve(stream, greeting, rest_s=0.0)
        except* (*STREAM_ERRORS, trio.TooSlowError, ProtocolError, LinkEnded) as group:
            ended = first_of(group)
            refused = ended.refused if isinstance(ended, LinkEnded) else None
            self._note(member, f"{peer.host}:{peer.port}", ended)
        return refused

    @asynccontextmanager
    async def _connected(self, peer: LinkPeer) -> AsyncIterator[LinkTlsStream]:
        with trio.fail_after(CONNECT_S):
            tcp = await trio.open_tcp_stream(peer.host, peer.port)
        async with tcp:
            set_options(tcp.socket)
            yield LinkTlsStream(tcp, self._tls.dialing, server_side=False)

    @asynccontextmanager
    async def connected(self, member: str) -> AsyncIterator[LinkTlsStream]:
        """Yield a connection to a member beside its link, after the handshake. Raises as a stream, LinkEnded."""
        if (peer := self._peers.get(member)) is None:
            raise LinkEnded("stranger", f"{member} is not a member")
        async with self._connected(peer) as stream:
            with trio.fail_after(self._pace.handshake_s):
                await self._shake_hands(stream, member)
            yield stream

    async def _shake_hands(self, stream: LinkTlsStream, member: str) -> MemberHello:
        """Return the own greeting once the other side has shown who it is."""
        await stream.do_handshake()
        hello = self._user.hello()
        named = member_of(stream.session)
        if named != (hello.group, member):
            raise ProtocolError(f"{named[1]} of group {named[0]} answers where {member} of {hello.group} was expected")
        return hello

    async def _greet(self, stream: LinkTlsStream, member: str) -> _Greeting:
        hello = await self._shake_hands(stream, member)
        await stream.send_all(hello.encode(HELLO))
        decoder = self._new_decoder()
        frame, *behind = await _first_frames(stream, decoder)
        if frame.kind == REFUSED:
            refused = decode_refused(frame)
            raise LinkEnded("differs", f"{member} refuses: {refused.code}: {refused.text}", refused)
        if frame.kind != WELCOME:
            raise ProtocolError(f"a frame of type {frame.kind:#04x} instead of WELCOME")
        return _Greeting(self._greeted(frame, (hello.group, member)), behind, decoder)

    def _greeted(self, frame: LinkFrame, named: tuple[str, str]) -> MemberHello:
        """Return a member's greeting when it is who its certificate names. Raises ProtocolError, LinkEnded."""
        hello = decode_hello(frame)
        if (hello.group, hello.member) != named:
            text = f"it says {hello.member} of group {hello.group}, its certificate {named[1]} of {named[0]}"
            raise ProtocolError(text)
        if (refused := self._user.check(hello)) is not None:
            raise LinkEnded("differs", refused.text, refused)
        return hello

    # ---- being dialed

    async def accepted(self, tcp: trio.SocketStream, address: str, known: Callable[[], None]) -> None:
        """Serve a connection that was accepted, to its end; whatever that is, it is the end of this one alone.

        known: called once it is a member's.
        """
        stream = LinkTlsStream(tcp, self._tls.accepting)
        member = ""
        try:
            async with tcp:
                set_options(tcp.socket)
                greeting = await self._greeted_in_time(stream, share_of(address.rpartition(":")[0]))
                known()
                if isinstance(greeting, _Beside):
                    await self._serve_beside(stream, greeting)
                    return
                member = greeting.hello.member
                await self._serve(stream, greeting, rest_s=REST_S)
        except* (*STREAM_ERRORS, trio.TooSlowError, ProtocolError, LinkEnded) as group:
            self._note(member, address, first_of(group))

    async def _serve_beside(self, stream: LinkTlsStream, beside: _Beside) -> None:
        if beside.frame.kind == RELAY:
            await self._user.take_client(beside.member, stream, beside.frame)
        else:
            await self._user.send_segment(beside.member, stream, beside.frame)

    async def _greeted_in_time(self, stream: LinkTlsStream, share: str) -> "_Greeting | _Beside":
        """Return what the other end came for. Raises LinkEnded when its place was given to a newcomer."""
        with self._greeting.place(share):
            return await self._welcome(stream)
        raise LinkEnded("places", "too many connections are being greeted, and this one was the oldest")

    async def _welcome(self, stream: LinkTlsStream) -> "_Greeting | _Beside":
        with trio.fail_after(self._pace.handshake_s):
            await stream.do_handshake()
            named = member_of(stream.session)
            decoder = self._new_decoder()
            try:
                frame = await self._first(stream, named, decoder)
                if frame.kind in (FETCH, RELAY):
                    return _Beside(named[1], frame)
                hello = self._welcomed(frame, named)
            except LinkEnded as ended:
                if ended.refused is not None:
                    await stream.send_all(ended.refused.encode())
                raise
            await stream.send_all(self._user.hello().encode(WELCOME))
        return _Greeting(hello, (), decoder)

    async def _first(self, stream: LinkTlsStream, named: tuple[str, str], decoder: LinkFrameDecoder) -> LinkFrame:
        """Return the first frame of a member. Raises LinkEnded, ProtocolError."""
        own = self._user.hello()
        if named[0] != own.group or named[1] not in self._peers:
            text = f"{named[1]} of group {named[0]} is not a member of {own.group} here: `group join`, or stop it"
            raise LinkEnded("stranger", text, LinkRefused("stranger", text, STRANGER_MS))
        frame, *behind = await _first_frames(stream, decoder)
        if behind:
            raise ProtocolError("more than a greeting came at once")
        return frame

    def _welcomed(self, frame: LinkFrame, named: tuple[str, str]) -> MemberHello:
        if frame.kind != HELLO:
            raise ProtocolError(f"a frame of type {frame.kind:#04x} instead of HELLO")
        hello = self._greeted(frame, named)
        self._check_twin(hello)
        return hello

    def _check_twin(self, hello: MemberHello) -> None:
        """Raise LinkEnded while another process of this name has a link."""
        if (found := self._links.get(hello.member)) is None:
            return
        link, session = found
        if session != hello.session and self._clocks.now_s() - link.heard_s < self._pace.silence_s / 2:
            text = f"another process is linked as {hello.member}: two of one name, or it restarts"
            raise LinkEnded("twin", text, LinkRefused("twin", text))

    # ---- serving

    async def _serve(self, stream: LinkTlsStream, greeting: _Greeting, *, rest_s: float) -> None:
        """Have a link to its end. The one before it ends after `rest_s`: by then the other side uses the new one."""
        hello = greeting.hello
        link = Link(stream, hello.member, greeting.decoder, pace=self._pace, clocks=self._clocks)
        if (before := self.link(hello.member)) is not None:
            self._drop(before)
        self._links[hello.member] = link, hello.session
        self._connections += 1
        self._last.pop(hello.member, None)
        self._tls.saw(hello.member, stream.session)
        log.info("event=link_begins member=%s end=%d", hello.member, hello.synced)

        async def take(frame: LinkFrame) -> None:
            await self._user.take(link, frame)

        async with trio.open_nursery() as nursery:
            if before is not None:
                nursery.start_soon(before.end_replaced, rest_s)
            try:
                self._user.begun(link, hello)
                await link.run(take, greeting.behind)
            finally:
                if self.link(hello.member) is link:
                    self._drop(link)

    def _drop(self, link: Link) -> None:
        del self._links[link.member]
        link.pump(None)
        self._bytes[0] += link.sent_bytes
        self._bytes[1] += link.received_bytes
        self._user.ended(link)
        self._tell_changed()

    def _note(self, member: str, address: str, error: BaseException) -> None:
        """Count and tell why a link was refused or has ended."""
        reason, text = reason_of(error), str(error) or type(error).__name__
        if reason == "closed" and self.link(member) is not None:
            return  # it was replaced
        if isinstance(error, trio.TooSlowError):
            text = "no answer in time: look at the network between the two"
        if isinstance(cause := error.__cause__, Exception) and isinstance(error, trio.BrokenResourceError):
            text = f"{text}: {cause}"
        self._refused[reason] += 1
        if member:
            self._last[member] = text
        peer = member or address.rpartition(":")[0]  # the next one comes from another port
        if (more := self._told.line_end(peer, reason, trio.current_time())) is not None:
            log.warning("event=link_lost peer=%s reason=%s text=%r%s", member or address, reason, text, more)


async def _first_frames(stream: LinkTlsStream, decoder: LinkFrameDecoder) -> list[LinkFrame]:
    """Return the first frame and what came with it. Raises ProtocolError, LinkEnded."""
    received = 0
    while True:
        data = await stream.receive_some()
        if not data:
            raise LinkEnded("closed", "the other side closed the connection before it said who it is")
        received += len(data)
        if received > MOST_GREETING_BYTES:
            raise ProtocolError(f"a greeting of more than {MOST_GREETING_BYTES} bytes")
        if frames := decoder.feed(data):
            return frames


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group, LinkEnded before others."""
    ended = group.subgroup(LinkEnded)
    found: BaseException = ended if ended is not None else group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def reason_of(error: BaseException) -> str:
    """Return the metrics' label of an error."""
    if isinstance(error, LinkEnded):
        return error.reason if error.reason in REASONS else "closed"
    if isinstance(error, ProtocolError):
        return "garbage"
    if isinstance(error, trio.TooSlowError):
        return "greeting"
    if isinstance(error, trio.BrokenResourceError) and "handshake" in str(error):
        return "certificate"
    return "closed"
