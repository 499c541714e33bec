"""Request code → handler; whatever a handler raises becomes a response code, so that every request is answered.

A code nobody handles is answered with 3.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from appliance.broker.access.permissions import Denied
from appliance.broker.rights import Signer
from netstack.errors import Refused, told_of
from netstack.serving.limits import LogLimiter
from netstack.wire.codes import LONG_POLLS, SENDS, RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, AsyncReply, DeferredReply, Reply
from storage_driver.log.marks import reached
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.requests")
REMEMBERED_REFUSALS, LONGEST_LOGGED = 4096, 500
LARGE: Final = 65_536  # bytes of a body: some ms to read
UNREAD: Final = frozenset(
    map(
        int,
        (
            *(*LONG_POLLS, *SENDS),
            *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
        ),
    )
)  # their bodies are not read as text, or not at all
UNKNOWN: Final = -1  # all codes nobody handles: a scanner gets one line


class RequestPeer(Protocol):
    """The connection a request came in on, as far as handlers use it."""

    signer: Signer | None

    @property
    def tls(self) -> bool: ...
    @property
    def id(self) -> int: ...
    @property
    def remote(self) -> tuple[str, int]: ...
    @property
    def local(self) -> tuple[str, int]: ...
    @property
    def born_host(self) -> bytes: ...
    @property
    def listens(self) -> bool:
        """Whether it can be told anything now."""
        ...

    @property
    def hung_up(self) -> bool:
        """Whether it has ended the connection, even if nobody has read so far."""
        ...

    async def ask(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_s: float
    ) -> RemotingCommand: ...
    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> object: ...
    def on_close(self, callback: Callable[[], None], /) -> None: ...
    async def reserve(self, size: int, /) -> None: ...
    def give_back(self, size: int, /) -> None: ...
    def close(self, reason: str, /) -> None: ...


Handle = Callable[[RemotingCommand, RequestPeer], Answer]
Check = Callable[[RemotingCommand, RequestPeer], None]


class RefusedWith(Refused):
    """A refusal whose reply carries ext fields, as each reply to a send does."""

    def __init__(self, code: int, remark: str, ext: dict[str, str]) -> None:
        super().__init__(code, remark)
        self.ext = ext


class ResponderStatistics(NamedTuple):
    """What was asked and what came of it, by request code."""

    requests: Mapping[int, int]
    refusals: Mapping[tuple[int, int], int]  # (request code, response code)
    denied: Mapping[int, int]  # requests of those who may not send them
    faults: int
    unknown: int


class Responder:
    """Answers the requests of one port."""

    def __init__(self, handlers: Mapping[int, Handle], *, check: Check | None = None) -> None:
        self._handlers, self._check = dict(handlers), check
        self._requests: Counter[int] = Counter()
        self._refusals: Counter[tuple[int, int]] = Counter()
        self._denied: Counter[int] = Counter()
        self._faults = self._unknown = 0
        self._logged: set[tuple[str, int]] = set()
        self._lines, self._large = LogLimiter(), trio.Lock()

    def __call__(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Return the answer to one request; raises nothing."""
        code = request.code
        handle = self._handlers.get(code)
        if handle is None:
            return self._not_supported(request, peer)
        self._requests[code] += 1  # codes that strangers make up have no counters of their own
        try:
            if self._check is not None:
                try:
                    self._check(request, peer)
                except Refused:
                    self._denied[code] += 1
                    raise
            if request.send is None and len(request.body) > LARGE and code not in UNREAD:
                answer: Answer = AsyncReply(partial(self._one_by_one, handle, request, peer))
            else:
                answer = handle(request, peer)
        except Refused as exc:
            return Reply(self._refused(request, peer, exc))
        except Exception as exc:
            return Reply(self._fault(request, peer, exc))
        if type(answer) is AsyncReply:
            run = answer.run if answer.before is None and answer.after is None else partial(settled, answer)
            return AsyncReply(self._guarded(run, request, peer), pull=answer.pull, reads=answer.reads)
        return answer

    async def _one_by_one(
        self, handle: Handle, request: RemotingCommand, peer: RequestPeer
    ) -> RemotingCommand | bytes | None:
        """Answer a request whose body may become fifty MiB of objects: no two of them at a time.

        What an answer waits for before or after that (a lease, a client that is asked, the disk) keeps nobody waiting.
        """
        async with self._large:
            found = handle(request, peer)
        if not isinstance(found, AsyncReply) or not found.needs_body:
            return await settled(found)
        return await settled(AsyncReply(partial(self._in_turn, found.run), before=found.before, after=found.after))

    async def _in_turn(
        self, run: Callable[[], Awaitable[RemotingCommand | bytes | None]]
    ) -> RemotingCommand | bytes | None:
        async with self._large:
            return await run()

    def statistics(self) -> ResponderStatistics:
        """Return what was asked so far."""
        return ResponderStatistics(
            dict(self._requests), dict(self._refusals), dict(self._denied), self._faults, self._unknown
        )

    def _guarded(
        self, run: Callable[[], Awaitable[RemotingCommand | bytes | None]], request: RemotingCommand, peer: RequestPeer
    ) -> Callable[[], Awaitable[RemotingCommand | bytes | None]]:
        async def guarded() -> RemotingCommand | bytes | None:
            try:
                return await run()
            except Refused as exc:
                return self._refused(request, peer, exc)
            except Exception as exc:
                return self._fault(request, peer, exc)

        return guarded

    def _not_supported(self, request: RemotingCommand, peer: RequestPeer) -> Reply:
        self._unknown += 1
        self._log_once(peer, request.code, "not supported", UNKNOWN)
        remark = f" request type {request.code} not supported"
        return Reply(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _refused(self, request: RemotingCommand, peer: RequestPeer, refused: Refused) -> RemotingCommand:
        self._refusals[request.code, refused.code] += 1
        if refused.code == ResponseCode.NO_PERMISSION or isinstance(refused, Denied):
            self._log_once(peer, request.code, refused.remark)
        return request.reply(refused.code, refused.remark, refused.ext if isinstance(refused, RefusedWith) else None)

    def _fault(self, request: RemotingCommand, peer: RequestPeer, exc: Exception) -> RemotingCommand:
        self._faults += 1
        reason, traced = told_of(exc)
        if (more := self._lines.line_end(peer.remote[0], str(request.code), time.monotonic())) is not None:
            where = (request.code, *peer.remote[:2])
            log.error("event=request_failed code=%d peer=%s:%d reason=%r%s", *where, reason, more, exc_info=traced)
        return request.reply(ResponseCode.SYSTEM_ERROR, reason)

    def _log_once(self, peer: RequestPeer, code: int, reason: str, kind: int | None = None) -> None:
        """Log the first refusal of a code, or of a kind of codes, for each address."""
        first = (peer.remote[0], code if kind is None else kind)
        if first not in self._logged and len(self._logged) < REMEMBERED_REFUSALS:
            self._logged.add(first)
            log.warning(
                "event=request_refused code=%d peer=%s reason=%r", code, peer.remote[0], reason[:LONGEST_LOGGED]
            )


async def settled(answer: Answer) -> RemotingCommand | bytes | None:
    """Return what is answered in the end; None: nothing. Raises Refused."""
    match answer:
        case Reply(response=response):
            return response
        case AsyncReply(run=run, before=before, after=after):
            if before is not None:
                await before()
            told = await run()
            return told if after is None else await after(told)
        case DeferredReply(when=when, mark=mark, response=response, failed=failed):
            reason = await reached(when, mark)
            return response if reason is None else failed(reason)
    return None


def merged(*tables: Mapping[int, Handle]) -> dict[int, Handle]:
    """Return all handlers; two parts that claim one code are a programming error."""
    found: dict[int, Handle] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        if twice:
            raise ValueError(f"two handlers for request codes {sorted(twice)}")
        found |= table
    return found


def deferred(codes: Iterable[int], make: Callable[[], Mapping[int, Handle]]) -> dict[int, Handle]:
    """Return handlers that are made when the first of them is asked, so that a start need not import them."""
    made: dict[int, Handle] = {}

    def handle(request: RemotingCommand, peer: RequestPeer) -> Answer:
        if not made:
            made.update(make())
        return made[request.code](request, peer)

    return dict.fromkeys(codes, handle)


def without(handlers: Mapping[int, Handle], codes: Iterable[int]) -> dict[int, Handle]:
    """Return the handlers of a port that leaves some requests out."""
    left_out = set(codes)
    return {code: handle for code, handle in handlers.items() if code not in left_out}


__all__ = [
    "Answer",
    "AsyncReply",
    "Check",
    "DeferredReply",
    "Handle",
    "RefusedWith",
    "Reply",
    "RequestPeer",
    "Responder",
    "deferred",
    "merged",
    "settled",
    "without",
]
