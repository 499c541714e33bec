"""What the bytes of a client mean for its calls."""

from typing import NamedTuple


class CallOpened(NamedTuple):
    """A client began a call; names of headers are in lower case, the last of a name counts."""

    stream: int
    path: bytes
    metadata: dict[bytes, bytes]


class Received(NamedTuple):
    """One whole message of a call; `last`: the client has sent all it wants to send in it."""

    stream: int
    message: bytes
    last: bool = False


class HalfClosed(NamedTuple):
    """The client has sent all it wants to send in a call, and said so apart from its last message."""

    stream: int


class Cancelled(NamedTuple):
    """The client takes a call back, perhaps one that was answered just before."""

    stream: int


class Rejected(NamedTuple):
    """A call broke the rules of messages: it is answered already."""

    stream: int


CallEvent = CallOpened | Received | HalfClosed | Cancelled | Rejected
