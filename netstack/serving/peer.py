"""The other end of a connection as handlers see it: where it is, whether it is still there, and asking it."""

from collections.abc import Callable, Mapping
from select import POLLRDHUP, poll
from typing import Any, Protocol

import trio

from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.addresses import host_bytes, host_port
from netstack.serving.outbox import Outbox
from netstack.wire.command import ExtFields, RemotingCommand, encode_command, request
from netstack.wire.conversation import PendingRequests


class Posted(Protocol):
    """A request that no task waits for: it encodes itself, and is told its answer by the reader."""

    def frame(self, opaque: int) -> bytes:
        """Return the whole request under this opaque."""
        ...

    def settle(self, answer: RemotingCommand | None) -> None:
        """Take the answer, None when the connection has ended. Called once at most; must not raise."""
        ...


class _Question:
    """One request of ours that a task waits for: woken by its answer or by the end of the connection."""

    __slots__ = ("answer", "settled")

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.answer: RemotingCommand | None = None

    def settle(self, answer: RemotingCommand | None) -> None:
        self.answer = answer
        self.settled.set()


class Peer:
    """One per connection. `closed` is set, and the on_close callbacks run, once, when the connection has ended."""

    def __init__(
        self,
        number: int,
        remote: tuple[str, int],
        local: tuple[str, int],
        outbox: Outbox,
        *,
        socket_fd: int | None = None,
    ) -> None:
        """socket_fd: of the socket, open until the connection has ended; None where there is none to ask."""
        self._socket_fd = socket_fd
        self.id, self.remote, self.local = number, remote, local
        self.born_host = host_bytes(*remote)
        self.tls = False
        self.signer: Any = None  # what the check of requests says of who signed the last one; nothing here reads it
        self.elsewhere = False  # whether another box serves it, to which this one relays
        self.closed = trio.Event()
        self.close_reason = ""
        self._outbox = outbox
        self._asked: PendingRequests[_Question | Posted] = PendingRequests()
        self._on_close: list[Callable[[], None]] = []
        self._standing = 0
        self.finish: Callable[[str], None] | None = None  # set by the connection while it serves

    def __str__(self) -> str:
        return host_port(*self.remote)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run the plain function when the connection ends; at once if it has."""
        if self.closed.is_set():
            callback()
        else:
            self._on_close.append(callback)

    def begin(self, standing: int) -> None:
        """Another broker answers from here on: what the one before wanted to do at the end is forgotten with it."""
        if standing != self._standing:
            self._standing = standing
            self._on_close.clear()

    async def ask(
        self, code: int, ext: Mapping[str, str] | ExtFields | None = None, body: bytes = b"", *, timeout_s: float
    ) -> RemotingCommand:
        """Send a request and return its answer, whatever its code. Raises AskTimeout, ChannelClosed."""
        return await self.ask_command(request(code, ext, body), timeout_s)

    async def ask_command(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """As ask, for a whole command; its opaque is given here."""
        if self.closed.is_set():
            raise ChannelClosed(str(self), self.close_reason)
        question = _Question()
        command.opaque = self._asked.open(question)
        try:
            self._outbox.put(encode_command(command))
            with trio.move_on_after(timeout_s):
                await question.settled.wait()
        finally:
            self._asked.take(command.opaque)
        if question.answer is None:
            if self.closed.is_set():
                raise ChannelClosed(str(self), self.close_reason)
            raise AskTimeout(str(self), command.code, timeout_s)
        return question.answer

    def post(self, request: Posted) -> int:
        """Send a request without waiting; return the opaque, for `forget`.

        Who posts bounds what is under way: the outbox takes everything.
        """
        opaque = self._asked.open(request)
        if self.closed.is_set():
            self._asked.take(opaque)
            request.settle(None)
        else:
            self._outbox.put(request.frame(opaque))
        return opaque

    def forget(self, opaque: int) -> None:
        """Ignore the answer to a posted request: it is not told any more."""
        self._asked.take(opaque)

    def tell(self, code: int, ext: Mapping[str, str] | ExtFields | None = None, body: bytes = b"") -> bool:
        """Send a one-way request; False when it was dropped, since the peer is gone or does not read."""
        return self.tell_command(request(code, ext, body, oneway=True))

    def tell_command(self, command: RemotingCommand) -> bool:
        if self.closed.is_set() or self._outbox.full:
            return False
        command.opaque = self._asked.skip()
        self._outbox.put(encode_command(command))
        return True

    async def reserve(self, size: int) -> None:
        """Return when the peer has read enough for an answer of about this size; `give_back` follows."""
        await self._outbox.reserve(size)

    @property
    def listens(self) -> bool:
        """Whether a request can be sent to it."""
        return not self.closed.is_set()

    @property
    def hung_up(self) -> bool:
        """Whether the other side has ended the connection, even if nobody has read so far: the kernel knows."""
        if self.closed.is_set() or self._socket_fd is None:
            return self.closed.is_set()
        asked = poll()
        asked.register(self._socket_fd, POLLRDHUP)
        return bool(asked.poll(0))

    @property
    def full(self) -> bool:
        """Whether the peer leaves too much unread."""
        return self._outbox.full

    def give_back(self, size: int) -> None:
        """The answer is made, or there is none."""
        self._outbox.give_back(size)

    def close(self, reason: str) -> None:
        """End the connection from this side, soon; what is unsent is dropped. The first reason counts."""
        if self.finish is not None:
            self.finish(reason)

    def settle(self, response: RemotingCommand) -> bool:
        """Hand an answer to who asked; False when nobody did or nobody waits any more."""
        question = self._asked.take(response.opaque)
        if question is None:
            return False
        question.settle(response)
        return True

    def end(self, reason: str) -> None:
        """The connection is over: wake who waits for an answer, tell who wanted to know."""
        if self.closed.is_set():
            return
        self.close_reason = reason
        self.closed.set()
        for question in self._asked.drain():
            question.settle(None)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback()
