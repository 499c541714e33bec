"""Who calls: one session per connection and client id, which the broker takes for a peer of its own.

A signature of these clients covers the text of one header, the time, and nothing of the request. The clock in it is the
client's local one, so its age says nothing either.
Source: RocketMQ 5.3 DefaultAuthenticationContextBuilder; rocketmq-clients Signature.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

from appliance.broker.access.permissions import Denied
from appliance.broker.rights import Need, Signer
from appliance.broker.tables.clients import GRPC, Member
from appliance.grpc.answer_room import AnswerRoom, AnswerRooms
from appliance.grpc.outcome import Rejection
from appliance.grpc.renewals import Leases, Renew, Renewals
from netstack.errors import ChannelClosed
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import Code, Settings
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
MOST_SESSIONS = 64  # client ids of one connection; each client has a connection of its own
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
    """One client on one connection: a `RequestPeer` of the broker's tables.

    `settings` are those it gave last, None before that and once it has left; `stream` is its open stream of telemetry;
    `room` is the connection's, `leases` are the messages that are renewed for the client.
    """

    __slots__ = (
        *("_callbacks", "born_host", "client_id", "connection", "language", "leases", "room", "settings", "signer"),
        *("stream", "version"),
    )

    def __init__(self, peer: Peer, client_id: str, library: tuple[str, int], room: AnswerRoom, leases: Leases) -> None:
        self.connection, self.client_id, (self.language, self.version) = peer, client_id, library
        self.room, self.leases = room, leases
        self.born_host = peer.born_host
        self.signer: Signer | None = None
        self.settings: Settings | None = None
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

    def member(self, now_ms: int) -> Member:
        """Return what the broker's tables keep of the client."""
        return Member(self.client_id, self.language, self.version, now_ms, protocol=GRPC)

    def require(self, need: Need) -> None:
        """Raise Rejection unless who signed the call has what it needs."""
        if self.signer is not None and not self.signer.grants(need):
            text = f"{self.signer.name} has no permission for {need.kind.value} {need.name[:255]}"
            raise Rejection(Code.FORBIDDEN, text)

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


class ClientSessions:
    """The sessions of all connections; a connection that ends takes its own along."""

    def __init__(self, gate: Gate, keys: KeyRing, renew: Renew) -> None:
        self._gate, self._keys, self._renew = gate, keys, renew
        self.renewals, self._rooms = Renewals(), AnswerRooms()
        self._of: dict[Peer, dict[str, ClientSession]] = {}
        self._room_of: dict[Peer, AnswerRoom] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def of(self, call: Call) -> ClientSession:
        """Return the session of a call, with who signed it. Raises Rejection."""
        client_id, peer = call.text(CLIENT_ID), call.peer
        if not client_id or len(client_id) > LONGEST_ID:
            text = f"header {CLIENT_ID.decode()} has {len(client_id)} characters, expected 1 to {LONGEST_ID}"
            raise Rejection(Code.CLIENT_ID_REQUIRED, text)
        signer = self._signer(call)
        own = self._of.get(peer)
        if own is None:
            own = self._of[peer] = {}
            self._room_of[peer] = AnswerRoom(self._rooms)
            peer.on_close(lambda: self._closed(peer))
        session = own.get(client_id)
        if session is None:
            if len(own) >= MOST_SESSIONS:
                self._end(own, next(iter(own)))
            leases, room = self.renewals.open(self._renew), self._room_of[peer]
            session = own[client_id] = ClientSession(peer, client_id, _library(call), room, leases)
        session.signer = signer
        return session

    def forget(self, session: ClientSession) -> None:
        """The client says that it ends."""
        for own in self._of.values():
            if own.get(session.client_id) is session:
                self._end(own, session.client_id)
                return

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

    def _closed(self, peer: Peer) -> None:
        self._room_of.pop(peer, None)
        own = self._of.pop(peer, {})
        for client_id in list(own):
            self._end(own, client_id)

    def _end(self, own: dict[str, ClientSession], client_id: str) -> None:
        session = own.pop(client_id)
        session.left()
        self.renewals.close(session.leases)


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
