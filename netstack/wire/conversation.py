"""Who answers whom: the answers a handler may give, and requests of ours that wait for theirs.

A connection carries two independent conversations. Opaque numbers of requests we send are ours alone; only a frame
with the response bit is looked up among them, so a client may use the same numbers at the same time.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from netstack.wire.command import RemotingCommand, encode_command

Wake = Callable[[str | None], None]
"""Called once: with None when the wait was worth it, with the reason when it failed."""


class Reply:
    """An answer that is ready."""

    __slots__ = ("response",)

    def __init__(self, response: RemotingCommand) -> None:
        self.response = response


class DeferredReply:
    """An answer that leaves once something is durable up to a mark, mostly the log. Needs no task.

    `when` registers a wake for a mark and may call it at once; `failed` makes the answer for a reason. The state
    change itself has already happened, so requests behind this one see it. Answers of one pass that wait for the same
    thing wait together, for the highest of their marks.
    """

    __slots__ = ("failed", "mark", "response", "size", "when")

    def __init__(
        self,
        when: Callable[[int, Wake], None],
        mark: int,
        response: RemotingCommand | bytes,  # bytes: a whole frame
        failed: Callable[[str], RemotingCommand],
        size: int = 0,  # bytes that wait, if they are more than the request has
    ) -> None:
        self.when, self.mark, self.response, self.failed, self.size = when, mark, response, failed, size


class DeferredBatch:
    """Deferred replies of one connection that wait for the same thing, one after the other."""

    __slots__ = ("answers", "mark", "size", "when")

    def __init__(self, when: Callable[[int, Wake], None]) -> None:
        self.when, self.mark, self.size = when, 0, 0
        self.answers: list[tuple[bytes, Callable[[str], RemotingCommand]]] = []  # no frame: nobody wants an answer

    def frames(self, reason: str | None) -> list[bytes]:
        """Return what leaves now: the answers, or, for a reason, the failures in their place."""
        if reason is None:
            return [frame for frame, _ in self.answers if frame]
        return [encode_command(failed(reason)) for frame, failed in self.answers if frame]


class AsyncReply:
    """An answer that really has to be waited for: the only kind that gets a task. None means nothing is sent.

    A parked pull does not count as in flight: heartbeats and commits of its consumer share the connection. What
    `reads` messages reserves room for them in the outbox itself, all else begins when there is room. What
    `needs_body` turns the request's into objects in `run`; every other answer has done so before. `before` is waited
    for before that, `after` makes of what `run` returned what is told: nobody else with a large body waits for these.
    """

    __slots__ = ("after", "before", "needs_body", "pull", "reads", "run")

    def __init__(
        self,
        run: Callable[[], Awaitable[RemotingCommand | bytes | None]],
        *,
        pull: bool = False,
        reads: bool = False,
        needs_body: bool = False,
        before: Callable[[], Awaitable[None]] | None = None,
        after: Callable[[RemotingCommand | bytes | None], Awaitable[RemotingCommand | bytes | None]] | None = None,
    ) -> None:
        self.run, self.pull, self.reads, self.needs_body = run, pull, reads or pull, needs_body
        self.before, self.after = before, after


Answer = Reply | DeferredReply | AsyncReply | None
T = TypeVar("T")


class PendingRequests(Generic[T]):
    """Our requests on one connection by opaque. Source: RocketMQ 4.9.8 NettyRemotingAbstract.responseTable."""

    def __init__(self, first: int = 1) -> None:
        self._waiting: dict[int, T] = {}
        self._next = first

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, waiter: T) -> int:
        """Return a free opaque, positive and below 2^31, under which waiter is kept."""
        opaque = self.skip()
        self._waiting[opaque] = waiter
        return opaque

    def skip(self) -> int:
        """Return a free opaque for a request that gets no answer."""
        while (opaque := self._next) in self._waiting:
            self._next = opaque % 0x7FFFFFFF + 1
        self._next = opaque % 0x7FFFFFFF + 1
        return opaque

    def take(self, opaque: int) -> T | None:
        """Return who waits for this opaque and forget it; None for an answer that nobody (still) wants."""
        return self._waiting.pop(opaque, None)

    def drain(self) -> list[T]:
        """Return all waiters and forget them: the connection is gone."""
        waiters = list(self._waiting.values())
        self._waiting.clear()
        return waiters
