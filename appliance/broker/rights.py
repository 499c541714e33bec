"""Grants of a key, and ownership.

What a key brought is that key's: client ids, producer groups, half messages, queue locks, registrations. A request is
bound when the mode asked for a key and one signed it. Who has access without a key, by place or by a white list, is
bound to nothing and brings what is nobody's. An admin's key opens everything.
"""

from enum import Enum, IntFlag
from typing import Protocol

from storage_driver.named_tuple import NamedTuple

RETRY, REPLY_TOPIC = "%RETRY%", "_REPLY_TOPIC"
NOBODY = ""  # the owner of what was brought without a key


class Perm(IntFlag):
    """What an account may do with a topic or a group; nothing is DENY."""

    PUB = 4
    SUB = 8


ANY = Perm.PUB | Perm.SUB  # of a need: one of them will do


class ResourceKind(Enum):
    TOPIC = "topic"
    GROUP = "group"


class Need(NamedTuple):
    """One permission a request takes."""

    kind: ResourceKind
    name: str
    perm: Perm


def of_topic(name: str, perm: Perm) -> Need:
    """Return the need of a topic; a retry topic belongs to its group, whatever is done with it."""
    if name.startswith(RETRY):
        return Need(ResourceKind.GROUP, name[len(RETRY) :], Perm.SUB)
    return Need(ResourceKind.TOPIC, name, perm)


class Signer(Protocol):
    """The signer of a request."""

    @property
    def name(self) -> str: ...
    @property
    def admin(self) -> bool: ...
    @property
    def bound(self) -> bool: ...
    def grants(self, need: Need, /) -> bool: ...
    def lives_at(self, address: str, /) -> bool: ...


class Signing(Protocol):
    """A connection, as far as it matters who signed the request on it that is being answered."""

    signer: Signer | None


def owner_of(peer: Signing) -> str:
    """Return whose that is what a request brings: the name of its key, or NOBODY."""
    signer = peer.signer
    return signer.name if signer is not None and signer.bound else NOBODY


def may_touch(signer: Signer | None, owner: str) -> bool:
    """Return whether a request may touch what an owner brought."""
    return signer is None or not signer.bound or signer.admin or owner in (NOBODY, signer.name)


def may(signer: Signer | None, topic: str, perm: Perm) -> bool:
    """Return whether a request may do this with the messages of a topic."""
    return signer is None or signer.grants(of_topic(topic, perm))
