"""Who may send which request: its class (see `request_table`), the mode, and where a peer stands.

Data is open to whom the mode admits, reading administration to the box's own networks, changes to loopback; an admin
key opens both from anywhere. Accounts are changed with an admin key alone. What has no class is never done over TCP.
Pure decisions: addresses and accounts come in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Protocol

from appliance.broker.access.replays import BOUND, HOT, OFF, STRICT, SeenSignatures, Term, term_of
from appliance.broker.access.request_table import ROWS, AccessClass
from appliance.broker.access.signed_fields import foreign, may_have_body
from appliance.broker.rights import Signer
from netstack.errors import Refused
from netstack.wire.acl import ACCESS_KEY, SIGNATURE
from netstack.wire.codes import ResponseCode
from netstack.wire.command import RemotingCommand
from storage_driver.named_tuple import NamedTuple

Network = IPv4Network | IPv6Network
SUBNET, KEYS, OPEN, LOOPBACK = "subnet", "keys", "open", "loopback"
REMEMBERED: Final = 4096


class Asker(Protocol):
    """The parts of a peer that access control uses; its `signer` is set here."""

    signer: Signer | None

    @property
    def id(self) -> int: ...
    @property
    def tls(self) -> bool: ...
    def on_close(self, callback: Callable[[], None], /) -> None: ...
    @property
    def remote(self) -> tuple[str, int]: ...
    @property
    def local(self) -> tuple[str, int]: ...


ACCESS: dict[int, AccessClass] = {code: row.access for code, row in ROWS.items()}
_CHANGING: Final = frozenset((AccessClass.CHANGE, AccessClass.JOIN, AccessClass.ACCOUNTS))


class AddressScope(Enum):
    """Where a peer's address is."""

    LOOPBACK = "loopback"
    INSIDE = "inside"  # the box's own networks, and those that are allowed
    OUTSIDE = "outside"


class Denied(Refused):
    """A signature that is missing, wrong, or of an account that may not do this; code and text as Apache's brokers."""

    def __init__(self, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {reason}")


class AccessRules(NamedTuple):
    """`access.mode`, `access.admin`, `access.allow` and `access.replay` of the configuration.

    `closed`: only this machine may reach the box, whatever address its sockets listen to.
    """

    mode: str = SUBNET
    admin: str = LOOPBACK
    allow: tuple[str, ...] = ()
    closed: bool = False
    replay: str = OFF


class Permissions:
    """Callable for `Responder`: passes a request or raises Refused."""

    def __init__(
        self,
        rules: AccessRules,
        *,
        networks: Callable[[], Sequence[Network]],
        account_of: Callable[[RemotingCommand, Asker], Signer | None] = lambda request, peer: None,
        classes: Mapping[int, AccessClass] = ACCESS,
    ) -> None:
        """networks: the box's own; account_of: who signed a request, None for nobody, Refused when it is forged."""
        self._rules, self._networks, self._account_of, self._classes = rules, networks, account_of, classes
        self._allowed = [ip_network(text, strict=False) for text in rules.allow]
        self._places: dict[str, AddressScope] = {}
        self._known: Sequence[Network] = ()
        # Two tables, so that many sends do not push out what an admin asked before.
        self._seen, self._seen_hot = SeenSignatures(), SeenSignatures()
        self._passed: set[tuple[int, str]] = set()  # code and address that need no key, as long as networks stay

    def admits(self, address: str) -> bool:
        """Return whether connections from an address are accepted."""
        place = self.place_of(address)
        if self._rules.closed:
            return place is AddressScope.LOOPBACK
        return self._rules.mode != SUBNET or place is not AddressScope.OUTSIDE

    def opens_data(self, address: str) -> bool:
        """Return whether an address may send and receive messages without a key."""
        return self._may_without_key(AccessClass.DATA, self.place_of(address))

    def takes_copies(self, peer: Asker) -> bool:
        """Return whether a signature that covers nothing of its request is accepted from a peer.

        Whoever reads it on its way can send anything with it: unless `access.replay` is off it must come over TLS or
        from this machine.
        """
        here = self.place_of(peer.remote[0]) is AddressScope.LOOPBACK or peer.remote[0] == peer.local[0]
        return peer.tls or here or self._rules.replay == OFF

    def __call__(self, request: RemotingCommand, peer: Asker) -> None:
        """Let a request pass. Raises Refused: 3 for requests that are never allowed, 16 for the wrong place, Denied."""
        passed = (request.code, peer.remote[0]) in self._passed and self._networks() is self._known
        if passed and (not request.ext or _unsigned(request)):
            return
        wanted = self._classes.get(request.code)
        if wanted is None:
            raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
        place = self.place_of(peer.remote[0])
        if self._may_without_key(wanted, place):
            if _unsigned(request):
                self._passed.add((request.code, peer.remote[0]))
            elif self._rules.replay != OFF:
                self._note_unasked(request, peer)
            return
        account = self._account_of(request, peer)
        if account is None:
            advice = self._advice(request.code, wanted, place)
            if self._rules.mode == KEYS:
                raise Denied(f"No accessKey is configured; {advice}")
            raise Refused(ResponseCode.NO_PERMISSION, advice)
        if wanted is not AccessClass.DATA and not account.admin:
            raise Denied(f"Need admin permission for request code={request.code}, but accessKey={account.name} is not")
        if account.bound and self._rules.replay != OFF:
            self._check_replay(request, peer, account)
        if wanted is AccessClass.DATA or self._rules.mode == KEYS:
            peer.signer = account  # elsewhere the same peer may send data without a key

    def _note_unasked(self, request: RemotingCommand, peer: Asker) -> None:
        """Remember a signature that was not needed: another sender may replay it where one is needed."""
        try:
            account = self._account_of(request, peer)
        except Refused:
            return  # it opens nothing
        if account is not None and account.bound:
            self._note(request, peer, account)

    def _note(self, request: RemotingCommand, peer: Asker, account: Signer) -> bool:
        """Remember where a signature came from; return whether others could read it on its way."""
        wanted = self._classes[request.code]
        data, joins = wanted is AccessClass.DATA, wanted is AccessClass.JOIN
        term = term_of(request.code, admin=account.admin, data=data, joins=joins)
        here = self.place_of(peer.remote[0]) is AddressScope.LOOPBACK or peer.remote[0] == peer.local[0]
        readable = not peer.tls and not here
        if readable and term is not Term.NOT:
            self._seen.note(account.name, request.ext[SIGNATURE], peer, term)
        elif readable and account.admin:  # a send, cut into other fields, is the deletion of a topic
            self._seen_hot.note(account.name, request.ext[SIGNATURE], peer, Term.BOX)
        return readable

    def _check_replay(self, request: RemotingCommand, peer: Asker, account: Signer) -> None:
        """Raises Denied for a signed request that may be a copy of somebody else's."""
        address, wanted = peer.remote[0], self._classes[request.code]
        signed = account.name, request.ext[SIGNATURE], address
        first = self._seen.elsewhere(*signed) or self._seen_hot.elsewhere(*signed)
        if first is not None and (request.code in BOUND or wanted in _CHANGING):
            text = (
                f"this signed request came from {first} before, so the one from {address} may be a copy and is refused"
            )
            raise Denied(f"{text}: give each machine its own key, or use TLS and rotate the key")
        if wanted is AccessClass.CHANGE or wanted is AccessClass.ACCOUNTS:
            if request.body and not may_have_body(request.code):
                text = f"request code {request.code} has no body, and a signature covers it as part of the fields"
                raise Denied(f"{text}: this may be a copy of another request")
            name = foreign(request.code, request.ext)
            if name is not None:
                raise Denied(f"request code {request.code} has no field {name[:60]}, so a signature does not cover it")
        if self._note(request, peer, account) and self._rules.replay == STRICT and not account.lives_at(address):
            text = "access.replay is strict: a signed request is accepted only over TLS or from an address of its key"
            raise Denied(f"{text}; use TLS, or `rocketbox access add {account.name} --from {address}`")

    def _may_without_key(self, wanted: AccessClass, place: AddressScope) -> bool:
        rules = self._rules
        if wanted is AccessClass.DATA:
            return rules.mode == OPEN or (rules.mode == SUBNET and place is not AddressScope.OUTSIDE)
        if wanted is AccessClass.READ or wanted is AccessClass.JOIN:
            return rules.mode != KEYS and place is not AddressScope.OUTSIDE
        if wanted is AccessClass.ACCOUNTS:
            return False
        if rules.admin == LOOPBACK:
            return place is AddressScope.LOOPBACK
        return rules.admin == SUBNET and place is not AddressScope.OUTSIDE

    def place_of(self, address: str) -> AddressScope:
        """Return where an address is; remembered until the box's networks change."""
        networks = self._networks()
        if networks is not self._known or len(self._places) > REMEMBERED:
            self._known = networks
            self._places.clear()
            self._passed.clear()
        place = self._places.get(address)
        if place is None:
            place = self._places[address] = _place(address, (*networks, *self._allowed))
        return place

    def _advice(self, code: int, wanted: AccessClass, place: AddressScope) -> str:
        what = f"request code {code} ({wanted.value}) is not allowed from here ({place.value})"
        if wanted is AccessClass.ACCOUNTS:
            return f"{what}: sign it with an admin key, or use `rocketbox access` on the box"
        if wanted is AccessClass.CHANGE and self._rules.admin == LOOPBACK:
            return f"{what}: send it over loopback, with an admin key, or set access.admin"
        if self._rules.mode == KEYS:
            return f"{what}: sign it with a key that has this permission"
        return f"{what}: add the network to access.allow, or sign it with an admin key"


def _unsigned(request: RemotingCommand) -> bool:
    """Return whether a request has no signature, or one that is not to be remembered."""
    return ACCESS_KEY not in request.ext or request.code in HOT


def _place(address: str, inside: Iterable[Network]) -> AddressScope:
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return AddressScope.LOOPBACK
    return AddressScope.INSIDE if any(parsed in network for network in inside) else AddressScope.OUTSIDE
