"""Known signatures: a signed request is valid from the address that sent it first.

A signature covers the values of a request and its body, not its code, its field names or the time, so whoever can read
the wire can send it again, also under another code. What nobody can read is not remembered: TLS, and this machine.
Source of what is signed: RocketMQ 4.9.8 AclUtils.combineRequestContent.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from netstack.wire.codes import RequestCode

OFF, STRICT = "off", "strict"
MOST_OF_ONE, MOST = 8192, 32_768  # signatures of one key, of all; 12 MiB (CPython 3.11)

_C = RequestCode
BOUND = frozenset(  # their bodies name the client, or values that no other client sends
    map(int, (_C.HEART_BEAT, _C.UNREGISTER_CLIENT, _C.LOCK_BATCH_MQ, _C.UNLOCK_BATCH_MQ, _C.END_TRANSACTION))
)
HOT = frozenset(
    (
        *(_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE, _C.PULL_MESSAGE, _C.LITE_PULL_MESSAGE),
        *(_C.POP_MESSAGE, _C.ACK_MESSAGE, _C.BATCH_ACK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME),
    )
)


class Term(Enum):
    """How long a signature is bound to its address."""

    NOT = "not at all"
    CONNECTION = "as long as its connection lives"  # a client that moved to another address says the same again
    BOX = "as long as the box runs"  # an admin's: also what only looks may be sent again as a change


class RequestOrigin(Protocol):
    """Where a signed request came from."""

    @property
    def id(self) -> int: ...
    @property
    def remote(self) -> tuple[str, int]: ...
    def on_close(self, callback: Callable[[], None], /) -> None: ...


class SeenSignatures:
    """Key -> signature -> address. Bounded per key and in all; the oldest of a key is dropped."""

    def __init__(self, *, most_of_one: int = MOST_OF_ONE, most: int = MOST) -> None:
        self._most_of_one, self._most, self._count = most_of_one, most, 0
        self._of: dict[str, dict[str, str]] = {}
        self._until_closed: dict[int, set[tuple[str, str]]] = {}  # connection -> what ends with it

    def elsewhere(self, key: str, signature: str, address: str) -> str | None:
        """Return the other address from which a signature came first, None when it is new or came from here."""
        first = self._of.get(key, {}).get(signature)
        return None if first == address else first

    def note(self, key: str, signature: str, peer: RequestOrigin, term: Term) -> None:
        """Remember where a signature came from, unless it is known."""
        own = self._of.setdefault(key, {})
        if signature in own:
            if term is Term.BOX:
                own[signature] = own.pop(signature)  # the newest now
            return
        if own and (len(own) >= self._most_of_one or self._count >= self._most):
            self._forget(key, next(iter(own)))
        if self._count < self._most:
            self._of.setdefault(key, {})[signature] = peer.remote[0]
            self._count += 1
            if term is Term.CONNECTION:
                self._end_with(peer, key, signature)

    def _end_with(self, peer: RequestOrigin, key: str, signature: str) -> None:
        ending = self._until_closed.get(peer.id)
        if ending is None:
            ending = self._until_closed[peer.id] = set()
            peer.on_close(lambda: self._closed(peer.id))
        if len(ending) < self._most_of_one:
            ending.add((key, signature))

    def _closed(self, number: int) -> None:
        for key, signature in self._until_closed.pop(number, ()):
            self._forget(key, signature)

    def _forget(self, key: str, signature: str) -> None:
        own = self._of.get(key, {})
        if own.pop(signature, None) is not None:
            self._count -= 1
        if not own:
            self._of.pop(key, None)

    def __len__(self) -> int:
        return self._count


def term_of(code: int, *, admin: bool, data: bool, joins: bool) -> Term:
    """Return how long the signature of a request is bound, by its class and by whose key it is."""
    if joins or code in BOUND:
        return Term.CONNECTION
    if not admin or (data and code in HOT):
        return Term.NOT
    return Term.BOX
