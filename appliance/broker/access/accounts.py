"""Accounts: who may publish to and subscribe which topics and groups, and whose signature a request carries.

Plain values and decisions; `appliance.access.access` reads their file. Texts of refusals and the order of the checks
are visible to clients. Source: RocketMQ 4.9.8 PlainPermissionManager, PlainAccessValidator.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from appliance.broker.access.address_patterns import Matches, matcher
from appliance.broker.access.permissions import Denied
from appliance.broker.access.resources import needs
from appliance.broker.rights import REPLY_TOPIC, Need, Perm, ResourceKind
from appliance.broker.tables.topics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from netstack.wire.acl import ACCESS_KEY, is_signed, verify
from netstack.wire.command import RemotingCommand

LAYOUT = 1
LONGEST_SHOWN = 255  # of a name that a stranger chose, in answers and in the log
SHORTEST = 7  # of a key's name and of its secret, as Apache demands
KEY_NAME = re.compile(r"[\w.@-]{7,100}", re.ASCII)
DENY = Perm(0)
WORDS = {"DENY": DENY, "PUB": Perm.PUB, "SUB": Perm.SUB, "PUB|SUB": Perm.PUB | Perm.SUB}
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SHARED_TOPICS = frozenset({HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})
"""These topics hold messages of all topics: the default permission of an account does not cover them."""


class AccountError(ValueError):
    """An invalid account: the text names the key and the error."""


def perm_of(word: str) -> Perm:
    """Return the permission for DENY, PUB, SUB, PUB|SUB or SUB|PUB. Raises AccountError."""
    wanted = "|".join(sorted(part.strip().upper() for part in word.split("|")))
    if wanted not in WORDS:
        raise AccountError(f"{word!r} is not a permission; use DENY, PUB, SUB or PUB|SUB")
    return WORDS[wanted]


def word_of(perm: Perm) -> str:
    return next(word for word, value in WORDS.items() if value == perm)


@dataclass(frozen=True)
class Account:
    """One key. A rotated secret stays valid until `until_ms`, so that clients can change."""

    name: str
    secret: str = field(repr=False)
    admin: bool = False
    white: str = ""
    topic: Perm = DENY  # for topics not listed
    group: Perm = DENY
    topics: Mapping[str, Perm] = field(default_factory=dict)
    groups: Mapping[str, Perm] = field(default_factory=dict)
    previous: str = field(default="", repr=False)
    until_ms: int = 0
    addresses: str = ""  # where alone the key is good; empty: everywhere
    bound: bool = True  # False for a white list, which opens all data

    def __post_init__(self) -> None:
        if not KEY_NAME.fullmatch(self.name):
            raise AccountError(f"key {self.name!r}: 7 to 100 of A-Z a-z 0-9 . _ @ -")
        if len(self.secret) < SHORTEST:
            raise AccountError(f"key {self.name}: its secret has {len(self.secret)} characters, at least 7 are needed")

    @cached_property
    def from_white(self) -> Matches:
        """Whether the account's own white list holds an address."""
        return matcher([self.white])

    @cached_property
    def _at(self) -> Matches:
        return matcher([self.addresses])

    def lives_at(self, address: str) -> bool:
        """Return whether the key is bound to addresses and this is one of them."""
        return bool(self.addresses) and self._at(address)

    def grants(self, need: Need) -> bool:
        """Return whether this account has what a request needs."""
        if not self.bound or (self.admin and not self.topics and not self.groups):
            return True
        listed, otherwise = (self.topics, self.topic) if need.kind is ResourceKind.TOPIC else (self.groups, self.group)
        if need.kind is ResourceKind.TOPIC and (need.name in SHARED_TOPICS or need.name.endswith(REPLY_TOPIC)):
            otherwise &= Perm.PUB
        return bool(listed.get(need.name, otherwise) & need.perm)

    def rotated(self, secret: str, until_ms: int) -> "Account":
        """Return the account with a new secret; the old one is valid until then."""
        return replace(self, secret=secret, previous=self.secret, until_ms=until_ms)

    def to_object(self) -> dict[str, Any]:
        """Return its form in the file."""
        made: dict[str, Any] = {"key": self.name, "secret": self.secret, "admin": self.admin, "white": self.white}
        made |= {"topic": word_of(self.topic), "group": word_of(self.group)}
        made |= {"topics": {name: word_of(perm) for name, perm in self.topics.items()}}
        made |= {"groups": {name: word_of(perm) for name, perm in self.groups.items()}}
        made |= {"addresses": self.addresses} if self.addresses else {}
        return made | ({"previous": self.previous, "until_ms": self.until_ms} if self.previous else {})

    @classmethod
    def from_object(cls, read: Mapping[str, Any]) -> "Account":
        """Return the account of a file. Raises AccountError."""
        try:
            account = cls(
                name=str(read["key"]),
                secret=str(read["secret"]),
                admin=read.get("admin", False) is True,
                white=str(read.get("white", "")),
                topic=perm_of(read.get("topic", "DENY")),
                group=perm_of(read.get("group", "DENY")),
                topics={name: perm_of(word) for name, word in read.get("topics", {}).items()},
                groups={name: perm_of(word) for name, word in read.get("groups", {}).items()},
                previous=str(read.get("previous", "")),
                until_ms=int(read.get("until_ms", 0)),
                addresses=str(read.get("addresses", "")),
            )
            account.from_white("127.0.0.1")
            account.lives_at("127.0.0.1")
        except AccountError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise AccountError(f"account {read.get('key', '?')!r}: {exc}") from exc
        return account


class Accounts:
    """All keys of a box, and the addresses that need none. Nothing in it changes."""

    def __init__(
        self,
        keys: Mapping[str, Account] = MappingProxyType({}),
        white: tuple[str, ...] = (),
        version: int = 0,
        changed_ms: int = 0,
    ) -> None:
        self.keys, self.white, self.version, self.changed_ms = keys, white, version, changed_ms

    @cached_property
    def from_white(self) -> Matches:
        return matcher(self.white)

    def to_object(self) -> dict[str, Any]:
        """Return the file's content."""
        rows = [account.to_object() for _, account in sorted(self.keys.items())]
        said = {"layout": LAYOUT, "version": self.version, "changed_ms": self.changed_ms}
        return {**said, "white": list(self.white), "accounts": rows}

    @classmethod
    def from_object(cls, read: object) -> "Accounts":
        """Return the accounts of a file's content. Raises AccountError."""
        if not isinstance(read, dict) or not isinstance(read.get("accounts"), list):
            raise AccountError('not a list of accounts: {"layout": 1, "accounts": [...]} is expected')
        layout = read.get("layout", 0)
        if not isinstance(layout, int) or layout > LAYOUT:
            raise AccountError(f"layout {layout!r} is newer than this program, which reads up to {LAYOUT}")
        try:
            found = [Account.from_object(row) for row in read["accounts"]]
            made = cls(
                {account.name: account for account in reversed(found)},  # the first of a name counts
                tuple(map(str, read.get("white", []))),
                int(read.get("version", 0)),
                int(read.get("changed_ms", 0)),
            )
            made.from_white("127.0.0.1")
        except (TypeError, AttributeError, OverflowError) as exc:
            raise AccountError(str(exc)) from exc
        except AccountError:
            raise
        except ValueError as exc:
            raise AccountError(f"white list: {exc}") from exc
        return made

    def changed(self, now_ms: int, *, put: Iterable[Account] = (), drop: Iterable[str] = ()) -> "Accounts":
        """Return the table with accounts added, replaced and taken out."""
        gone = set(drop)
        kept = {name: account for name, account in self.keys.items() if name not in gone}
        return Accounts(kept | {each.name: each for each in put}, self.white, self.version + 1, now_ms)

    def signer(self, request: RemotingCommand, address: str, now_ms: Callable[[], int]) -> Account | None:
        """Return whose request this is; None for one without a signature. Raises Denied.

        A white list stands in for the signature, never for the right to administer: addresses are easily spoofed.
        """
        if self.from_white(address):
            return WHITE_LISTED
        if not is_signed(request.ext):
            return None
        name = request.ext.get(ACCESS_KEY, "")
        account = self.keys.get(name)
        if account is None:
            raise Denied(f"No acl config for {name[:LONGEST_SHOWN]}")
        if account.from_white(address):
            return replace(WHITE_LISTED, name=account.name)
        check_signature(request, account, now_ms)
        if account.addresses and not account.lives_at(address):
            raise Denied(f"accessKey={account.name} is not valid from {address}")
        check_resources(request, account)
        return account

    def proven(self, name: str, address: str, proves: Callable[[str], bool], now_ms: Callable[[], int]) -> Account:
        """Return the account of a name that one of its secrets proves, as `proves` tells. Raises Denied."""
        if self.from_white(address):
            return WHITE_LISTED
        account = self.keys.get(name)
        if account is None:
            raise Denied(f"No acl config for {name[:LONGEST_SHOWN]}")
        if account.from_white(address):
            return replace(WHITE_LISTED, name=account.name)
        former = account.previous if now_ms() < account.until_ms else ""
        if not proves(account.secret) and not (former and proves(former)):
            raise Denied(f"Check signature failed for accessKey={account.name}")
        if account.addresses and not account.lives_at(address):
            raise Denied(f"accessKey={account.name} is not valid from {address}")
        return account


WHITE_LISTED = Account("white_list", "-" * SHORTEST, bound=False)  # data only


def check_signature(request: RemotingCommand, account: Account, now_ms: Callable[[], int]) -> None:
    """Raises Denied unless the request is signed with the account's secret, or with the one before in its time."""
    if verify(request, account.secret):
        return
    if not (account.previous and now_ms() < account.until_ms and verify(request, account.previous)):
        raise Denied(f"Check signature failed for accessKey={account.name}")


def check_resources(request: RemotingCommand, account: Account) -> None:
    """Raises Denied unless the account has all that the request needs."""
    wanted = needs(request)
    if any(need.name == TRACE_TOPIC and need.perm is Perm.PUB for need in wanted):
        return
    for need in wanted:
        if not account.grants(need):
            raise Denied(f"No default permission for {need.kind.value}:{need.name[:LONGEST_SHOWN]}")
