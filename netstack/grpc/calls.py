"""What a service is to a gRPC server: methods by their paths, the calls they get, the answers they give."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import trio

from netstack.grpc.status import CallFailed, GrpcStatus
from netstack.serving.peer import Peer
from netstack.wire.conversation import Wake

MOST_UNREAD = 64  # messages of a streaming call that its handler has not taken yet
MOST_UNREAD_BYTES = 16 << 10  # and of them


class Deferred(NamedTuple):
    """An answer that leaves once something is durable up to a mark. `failed` makes the message for a reason."""

    when: Callable[[int, Wake], None]
    mark: int
    message: bytes
    failed: Callable[[str], bytes]


class AnswerTask(NamedTuple):
    """An answer that has to be waited for, in a task of its own."""

    run: Callable[[], Awaitable[bytes]]


Answer = bytes | Deferred | AnswerTask


class Call:
    """One call as its handler sees it. `metadata`: names in lower case; `deadline`, `began_s`: by trio's clock."""

    __slots__ = (
        *("_closed", "_drained", "_has_message", "_messages", "_send", "_stuck", "began_s", "deadline", "metadata"),
        *("peer", "taken_back"),
    )

    def __init__(
        self,
        peer: Peer,
        metadata: Mapping[bytes, bytes],
        send: Callable[[Sequence[bytes], bool], bool],
        began_s: float,
        deadline: float = inf,
    ) -> None:
        self.peer, self.metadata, self._send, self.began_s, self.deadline = peer, metadata, send, began_s, deadline
        self._messages: deque[bytes] | None = None
        self._has_message: trio.Event | None = None  # while somebody waits
        self._drained: trio.Event | None = None
        self._closed = self._stuck = False
        self.taken_back: Callable[[], None] | None = None  # for a client that did not wait for the end of its answer

    def text(self, name: bytes) -> str:
        """Return one field of the metadata, empty where it is absent."""
        return self.metadata.get(name, b"").decode("utf-8", "replace")

    async def receive(self) -> bytes | None:
        """Return the client's next message, None when it has sent its last."""
        while not self._messages:
            if self._closed:
                return None
            self._has_message = trio.Event()
            await self._has_message.wait()
        return self._messages.popleft()

    async def send(self, *messages: bytes, last: bool = False) -> None:
        """Send messages together; return when the client's windows have taken them, so that no more than those wait.

        `last`: the call ends with them, and they leave with its end. A client may open its windows wide and read
        nothing: then the connection has to take them too.
        """
        if self._send(messages, not last):
            if last:  # nobody else needs a turn, but who has no client any more must not go on
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
        else:
            self._stuck, self._drained = True, trio.Event()
            await self._drained.wait()
        if self.peer.full:
            await self.peer.reserve(0)

    def post(self, message: bytes) -> bool:
        """Send a message without waiting; False when it is dropped, since the client does not read."""
        if self._stuck or self.peer.full:
            return False
        self._stuck = not self._send((message,), True)
        return True

    def arrived(self, message: bytes) -> None:
        """The client sent a message. Raises CallFailed when too many are unread."""
        if self._messages is None:
            self._messages = deque()
        if len(self._messages) >= MOST_UNREAD:
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, f"{MOST_UNREAD} messages of this call are not read yet")
        size = sum(map(len, self._messages)) + len(message)
        if size > MOST_UNREAD_BYTES and self._has_message is None:  # who waits for it takes it at once
            text = f"{size} bytes of this call are not read yet, at most {MOST_UNREAD_BYTES} are allowed"
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)
        self._messages.append(message)
        self._wake()

    def half_closed(self) -> None:
        """The client has sent its last message."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._has_message is not None:
            self._has_message.set()
            self._has_message = None

    def drained(self) -> None:
        """The client's windows have taken what waited."""
        self._stuck = False
        if self._drained is not None:
            self._drained.set()
            self._drained = None


class Unary(NamedTuple):
    """A method of one message in and one out. `handle` is plain: it decides at once, or gives what waits."""

    handle: Callable[[Call, bytes], Answer]


class Streaming(NamedTuple):
    """A method of any number of messages either way; the call ends when `handle` returns or raises CallFailed."""

    handle: Callable[[Call], Awaitable[None]]


Service = Mapping[bytes, Unary | Streaming]
"""Path (`/package.Service/Method`) → method."""
