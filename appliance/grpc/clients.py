"""Who calls: one session per client id, which the broker takes for a peer of its own.

The calls of a client may come on several connections, and those of several clients on one: what balances HTTP/2 between
them does both.

A signature of these clients covers the text of one header, the time, and nothing of the request. The clock in it is the
client's local one, so its age says nothing either.
Source: RocketMQ 5.3 DefaultAuthenticationContextBuilder, GrpcClientSettingsManager; rocketmq-clients Signature.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from appliance.broker.access.permissions import Denied
from appliance.broker.rights import NOBODY, Need, Signer
from appliance.broker.tables.clients import GRPC, Member
from appliance.grpc.answer_room import AnswerRoom, AnswerRooms
from appliance.grpc.kept_settings import KeptSettings
from appliance.grpc.outcome import Rejection
from appliance.grpc.renewals import Leases, Renew
from appliance.grpc.settings_waits import SettingsWaits
from netstack.errors import ChannelClosed
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import Code
from netstack.serving.peer import Peer
from netstack.wire.command import RemotingCommand
from netstack.wire.versions import version_number

CLIENT_ID, LANGUAGE, VERSION, DATE_TIME, AUTHORIZATION = (
    *(b"x-mq-client-id", b"x-mq-language"),
    b"x-mq-client-version",
    *(b"x-mq-date-time", b"authorization"),
)
SCHEME = "MQv2-HMAC-SHA1"
LONGEST_ID = 1024
MOST_GUESTS = 64  # clients of one connection that said nothing of themselves
MOST_SETTINGS_BYTES = 16 << 20  # of all clients together; those of one have 64 KiB at most, of stock ones some hundred
MOST_CONNECTIONS = 8  # of one client, those whose end is noticed
SILENT_S, SILENT_ALONE_S = 40.0, 25.0  # clients send a heartbeat every ten seconds; without a stream of telemetry
LANGUAGES = {"DOT_NET": "DOTNET", "GOLANG": "GO"}  # where remoting's names differ


class Gate(Protocol):
    """Access control, as far as a session needs it."""

    def opens_data(self, address: str, /) -> bool: ...
    def takes_copies(self, peer: Peer, /) -> bool: ...


class Commands(Protocol):
    """The way from the broker to a client."""

    def tell(self, code: int, ext: Mapping[str, str], body: bytes, /) -> bool: ...
    async def ask(self, code: int, ext: Mapping[str, str], body: bytes, /, *, timeout_s: float) -> RemotingCommand: ...


class KeyRing(Protocol):
    """The keys of clients. Raises Denied."""

    def proven(self, name: str, peer: Peer, proves: Callable[[str], bool], /) -> Signer: ...
    def white_listed(self, address: str, /) -> Signer | None: ...


class ClientSession:
    """One client: a `RequestPeer` of the broker's tables, whatever connections its calls come on.

    `connection` is that of its last call. `settings` are those it gave last, None before that and once it has left;
    `stream` is its open stream of telemetry; `leases` are the messages that are renewed for the client; `heard_s` is
    when it was heard of last.
    """

    __slots__ = (
        *("_callbacks", "client_id", "connection", "connections", "heard_s", "leases", "library", "settings"),
        *("signer", "stream"),
    )

    def __init__(self, peer: Peer, client_id: str, library: tuple[str, int], renew: Renew) -> None:
        self.connection, self.client_id, self.library = peer, client_id, library
        self.signer: Signer | None = None
        self.connections: dict[Peer, None] = {}
        self.leases, self.heard_s = Leases(renew), 0.0
        self.settings: KeptSettings | None = None
        self.stream: Commands | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def id(self) -> int:
        return self.connection.id

    @property
    def tls(self) -> bool:
        return self.connection.tls

    @property
    def remote(self) -> tuple[str, int]:
        return self.connection.remote

    @property
    def local(self) -> tuple[str, int]:
        return self.connection.local

    @property
    def born_host(self) -> bytes:
        return self.connection.born_host

    @property
    def language(self) -> str:
        return self.library[0]

    @property
    def version(self) -> int:
        return self.library[1]

    @property
    def listens(self) -> bool:
        return self.stream is not None

    @property
    def hung_up(self) -> bool:
        return self.connection.hung_up

    def member(self, now_ms: int) -> Member:
        """Return what the broker's tables keep of the client."""
        return Member(self.client_id, *self.library, now_ms, protocol=GRPC)

    def require(self, need: Need) -> None:
        """Raise Rejection unless who signed the call has what it needs."""
        if self.signer is not None and not self.signer.grants(need):
            text = f"{self.signer.name} has no permission for {need.kind.value} {need.name[:255]}"
            raise Rejection(Code.FORBIDDEN, text)

    def heard(self) -> None:
        """The client called, or got messages."""
        self.heard_s = trio.current_time()

    def is_silent(self, now_s: float) -> bool:
        """Tell whether the client seems to have died, though a connection of its calls lives: others share it."""
        return now_s - self.heard_s > (SILENT_S if self.stream is not None else SILENT_ALONE_S)

    def on_close(self, callback: Callable[[], None], /) -> None:
        """Run the plain function when the client leaves."""
        self._callbacks.append(callback)

    def left(self) -> None:
        """The client has gone: the tables forget it."""
        self.settings = self.stream = None
        callbacks, self._callbacks = self._callbacks, []
        self.leases.give_back()
        for callback in callbacks:
            callback()

    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> object:
        return self.stream is not None and self.stream.tell(code, ext, body)

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_s: float) -> RemotingCommand:
        """Raise Refused, AskTimeout, ChannelClosed."""
        if self.stream is None:
            raise ChannelClosed(str(self.connection), "the client has no stream of telemetry")
        return await self.stream.ask(code, ext, body, timeout_s=timeout_s)

    async def reserve(self, size: int, /) -> None:
        """The windows of HTTP/2 hold back what the client does not read."""

    def give_back(self, size: int, /) -> None: ...

    def close(self, reason: str, /) -> None:
        """The broker has not heard of the client for long: it may come back with new settings."""
        self.left()


class _Line:
    """A connection: the room for its answers, the clients that called on it, and those of them without settings."""

    __slots__ = ("clients", "guests", "room")

    def __init__(self, room: AnswerRoom) -> None:
        self.room = room
        self.clients, self.guests = set[ClientSession](), dict[ClientSession, None]()


class ClientSessions:
    """The sessions of all clients, by key and client id; one whose connections have all ended ends with them."""

    def __init__(self, gate: Gate, keys: KeyRing, renew: Renew, *, most: int = 4096) -> None:
        self._gate, self._keys, self._renew, self._most = gate, keys, renew, most
        self._rooms, self._lines = AnswerRooms(), dict[Peer, _Line]()
        self._known: dict[tuple[str, str], ClientSession] = {}
        self._settled: dict[ClientSession, int] = {}  # with settings, of so many bytes
        self._settings_bytes = 0
        self._waits = SettingsWaits()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, call: Call) -> ClientSession:
        """Return the session of a call, with who signed it. Raises Rejection."""
        client_id, peer = call.text(CLIENT_ID), call.peer
        if not client_id or len(client_id) > LONGEST_ID:
            text = f"header {CLIENT_ID.decode()} has {len(client_id)} characters, expected 1 to {LONGEST_ID}"
            raise Rejection(Code.CLIENT_ID_REQUIRED, text)
        signer = self._signer(call)
        key = NOBODY if signer is None else signer.name, client_id  # nobody gets at a client of another key by its id
        session = self._known.get(key)
        if session is None:
            session = self._open(key, ClientSession(peer, client_id, _library(call), self._renew))
        elif peer is not session.connection:
            self._called(session, peer)
        session.signer, session.heard_s = signer, max(session.heard_s, call.began_s)
        return session

    def room(self, peer: Peer) -> AnswerRoom:
        """Return the room for answers of a connection that a client has called on."""
        return self._line(peer).room

    def settle(self, session: ClientSession, settings: KeptSettings) -> None:
        """Keep what a client says of itself. Raises Rejection where clients have said as much as they may."""
        change = len(settings) - self._settled.get(session, 0)
        self._check_room(session, change)
        if session not in self._settled:
            for peer in session.connections:
                self._lines[peer].guests.pop(session, None)
            session.on_close(lambda: self._unsettled(session))
        self._settled[session] = len(settings)
        self._settings_bytes += change
        session.settings = settings
        self._called(session, session.connection)
        self._waits.told(session)

    async def await_settings(self, session: ClientSession) -> None:
        """Return when a client has said what it is, or has had its time for it."""
        if session.settings is None:
            await self._waits.wait(session)

    def _check_room(self, session: ClientSession, change: int) -> None:
        if session not in self._settled and len(self._settled) >= self._most:
            text = f"{len(self._settled)} clients, limits.clients allows {self._most}"
        elif change > 0 and self._settings_bytes + change > MOST_SETTINGS_BYTES:
            text = f"the settings of all clients have {self._settings_bytes} bytes, at most {MOST_SETTINGS_BYTES}"
            text = f"{text} are allowed and these need {change}: subscribe to fewer topics"
        else:
            return
        raise Rejection(Code.TOO_MANY_REQUESTS, text)

    def renewed(self) -> list[Leases]:
        """Return the leases that go on; clients that seem to have died give back theirs."""
        now_s, found = trio.current_time(), list[Leases]()
        for session in self._known.values():
            if session.leases and session.is_silent(now_s):
                session.leases.give_back()
            elif session.leases:
                found.append(session.leases)
        return found

    def _open(self, key: tuple[str, str], session: ClientSession) -> ClientSession:
        """Know a new client. The oldest one that said nothing of itself makes room, of those on its connection."""
        guests = self._line(session.connection).guests
        if len(guests) >= MOST_GUESTS:
            next(iter(guests)).left()
        guests[session] = None
        self._known[key] = session
        session.on_close(lambda: self._ended(key, session))
        self._join(session, session.connection)
        return session

    def _called(self, session: ClientSession, peer: Peer) -> None:
        """A client called on this connection; one that said nothing of itself lives as long as its first."""
        session.connection = peer
        if peer in session.connections or session.settings is None:
            return
        if len(session.connections) >= MOST_CONNECTIONS:
            self._apart(session, next(iter(session.connections)))
        self._join(session, peer)

    def _join(self, session: ClientSession, peer: Peer) -> None:
        session.connections[peer] = None
        self._line(peer).clients.add(session)

    def _apart(self, session: ClientSession, peer: Peer) -> None:
        session.connections.pop(peer, None)
        line = self._line(peer)
        line.clients.discard(session)
        line.guests.pop(session, None)

    def _line(self, peer: Peer) -> _Line:
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = _Line(AnswerRoom(self._rooms))
            peer.on_close(lambda: self._closed(peer))
        return line

    def _closed(self, peer: Peer) -> None:
        """A connection has ended: so have clients that call on no other."""
        line = self._lines.pop(peer, None)
        for session in line.clients if line else ():
            session.connections.pop(peer, None)
            if session.connections:
                session.connection = next(reversed(session.connections))
            else:
                session.left()

    def _unsettled(self, session: ClientSession) -> None:
        self._settings_bytes -= self._settled.pop(session, 0)

    def _ended(self, key: tuple[str, str], session: ClientSession) -> None:
        if self._known.get(key) is session:
            del self._known[key]
        for peer in list(session.connections):
            if peer in self._lines:
                self._apart(session, peer)

    def _signer(self, call: Call) -> Signer | None:
        """Return who signed, None where nobody need. Raises Rejection."""
        peer = call.peer
        if self._gate.opens_data(peer.remote[0]):
            return None
        white = self._keys.white_listed(peer.remote[0])
        if white is not None:
            return white
        name, signature = credentials(call.text(AUTHORIZATION))
        if not name:
            raise Rejection(Code.UNAUTHORIZED, "no key: this box takes signed requests (access.mode, access.allow)")
        date_time = call.metadata.get(DATE_TIME, b"")
        try:
            signer = self._keys.proven(name, peer, lambda secret: proves(secret, date_time, signature))
        except Denied as denied:
            raise Rejection(Code.UNAUTHORIZED, denied.remark) from denied
        if not self._gate.takes_copies(peer) and not signer.lives_at(peer.remote[0]):
            text = "a signature of gRPC covers the time alone, so who reads it can use it for anything"
            advice = f"use TLS, or `rocketbox access add {signer.name} --from ADDRESS`, or access.replay = off"
            raise Rejection(Code.UNAUTHORIZED, f"{text}: {advice}")
        return signer


def _library(call: Call) -> tuple[str, int]:
    """Return language and version of a client's library."""
    language = call.text(LANGUAGE)
    return LANGUAGES.get(language, language)[:16], version_number(call.text(VERSION))


def credentials(header: str) -> tuple[str, str]:
    """Return key and signature of an authorization header, both empty where it has none."""
    scheme, _, rest = header.partition(" ")
    if scheme != SCHEME or len(rest) > 1024:
        return "", ""
    fields = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    name = fields.get("Credential", "").partition("/")[0]
    return (name, fields.get("Signature", "")) if name else ("", "")


def proves(secret: str, signed: bytes, signature: str) -> bool:
    """Return whether a signature is the secret's; clients write its digits in either case."""
    wanted = hmac.new(secret.encode(), signed, hashlib.sha1).hexdigest()
    return bool(signed) and hmac.compare_digest(wanted, signature.lower().encode("ascii", "replace").decode())
