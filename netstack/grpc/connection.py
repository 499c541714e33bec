"""One connection of gRPC: a reader that serves every whole message of a receive in one pass, and a writer.

Only what has to be waited for gets a task. Answers that wait for the same sync leave in one write.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf

import trio

from netstack.errors import ProtocolError, told_of
from netstack.grpc.call_counts import CallCounts
from netstack.grpc.call_events import CallEvent, CallOpened, Cancelled, Received, Rejected
from netstack.grpc.calls import Answer, AnswerTask, Call, Deferred, Service, Streaming, Unary
from netstack.grpc.ended_calls import EndedCalls
from netstack.grpc.http2 import Http2Server
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.open_calls import OpenCalls, OwnCalls
from netstack.grpc.status import CallFailed, GrpcStatus, timeout_s
from netstack.grpc.uploads import OwnUploads, Uploads
from netstack.serving.governor import Governor
from netstack.serving.in_flight import OwnPartial, OwnPending
from netstack.serving.limits import PARTIAL_MODEST, PRESSED_S
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.receiver import receive_of
from netstack.serving.slots import share_of
from netstack.wire.conversation import Wake

RECEIVE = 64 << 10
PASS_S = 0.005  # spent on what one receive brought; then others have their turn
GOODBYE_TURNS = 5  # of the writer, to tell a client why its connection ends; one that does not read is not told
_log = logging.getLogger("netstack")


class _Open:
    """A call of this connection: what it is for, and what came for it."""

    __slots__ = ("call", "message", "method", "scope")

    def __init__(self, call: Call, method: Unary | Streaming) -> None:
        self.call, self.method = call, method
        self.message: bytes | None = None
        self.scope: trio.CancelScope | None = None  # of the task, where it has one


class GrpcServing:
    """What the connections of one port share: the service, its limits, the grants of large messages."""

    def __init__(self, service: Service, limits: GrpcLimits | None = None, counts: CallCounts | None = None) -> None:
        self.service, self.limits, self.counts = service, limits or GrpcLimits(), counts or CallCounts()
        self.uploads, self.calls = Uploads(self.limits.uploads_bytes), OpenCalls()

    def connect(self, stream: trio.abc.Stream, peer: Peer, outbox: Outbox, governor: Governor) -> "GrpcConnection":
        """Return what serves a stream."""
        return GrpcConnection(stream, peer, outbox, governor, self)


class GrpcConnection:
    """Serves one stream until it ends, breaks its rules or is cancelled."""

    def __init__(
        self, stream: trio.abc.Stream, peer: Peer, outbox: Outbox, governor: Governor, serving: GrpcServing
    ) -> None:
        self.peer = peer
        self._stream, self._outbox, self._governor, self._serving = stream, outbox, governor, serving
        uploads = OwnUploads(serving.uploads, share_of(peer.remote[0]))
        self._http2 = Http2Server(serving.limits, uploads, trio.current_time, OwnCalls(serving.calls))
        self._open: dict[int, _Open] = {}
        self._ended = EndedCalls()
        self._stuck: set[int] = set()  # streaming calls whose last message waits for the client's windows
        # Of this pass, with the bytes of each request or of its answer.
        self._deferred: dict[Callable[[int, Wake], None], list[tuple[int, Deferred, int]]] = {}
        self._read_at = trio.current_time()
        self._partial, self._pending = OwnPartial(governor.in_flight), OwnPending(governor.in_flight)
        self._ponging = False
        self._nursery: trio.Nursery

    async def run(self) -> str:
        """Return why the connection ended. The stream is closed, all tasks are over."""
        try:
            async with trio.open_nursery() as self._nursery:
                self.peer.finish, self._outbox.end = self.finish, partial(self.finish, "unsent")
                self._http2.woken = self._granted
                self._nursery.start_soon(self._write)
                self._flush()
                reason = await self._read()
                await self._say_goodbye()
                self.finish(reason)
        except Exception:  # a fault of ours, as what peers do ends with a reason: the others go on
            self.peer.close_reason = "failed"
            _log.exception("event=connection_failed peer=%s next_step=report_this", self.peer)
        finally:
            self.peer.finish = self._outbox.end = None
            self._http2.woken = lambda: None
            self._http2.close()
            self._open.clear()
            self._ended.clear()
            self._outbox.close()
            self.peer.end(self.peer.close_reason or "cancelled")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
        return self.peer.close_reason

    def finish(self, reason: str) -> None:
        """End the connection; the first reason counts."""
        self.peer.close_reason = self.peer.close_reason or reason
        self._nursery.cancel_scope.cancel()

    def silent_since(self) -> float:
        """When the peer's last bytes came, or when it connected, by trio's clock."""
        return self._read_at

    def is_busy(self) -> bool:
        """Whether a call of the peer is under way."""
        return self._pending.requests > 0

    def overdue(self, now: float) -> str | None:
        """Return why this connection is to be closed now, or None."""
        limits, outbox = self._governor.limits, self._outbox
        self._ended.forget(now)
        if outbox.unsent_bytes and now - outbox.progress_at > limits.unsent_s:
            return f"unsent: {outbox.unsent_bytes} bytes, nothing read for {limits.unsent_s:g} s"
        if reason := self._incomplete(now):
            return reason
        if now - max(self._read_at, outbox.progress_at) > limits.idle_s:
            return f"idle for {limits.idle_s:g} s"
        return None

    def _incomplete(self, now: float) -> str:
        """Return which message takes too long, empty where none does; less time is left while others want its room."""
        http2, serving, partial_s = self._http2, self._serving, self._serving.limits.partial_s
        went_on_at = self._partial.went_on_at  # before it was not read
        pressed = self._partial.size > PARTIAL_MODEST or self._partial.has_turn
        if pressed and self._governor.in_flight.partial_full:
            partial_s = PRESSED_S
        if (oldest := http2.oldest_partial()) is not None and now - max(oldest, went_on_at) > partial_s:
            return f"message incomplete after {partial_s:g} s"
        oldest = http2.oldest_partial(granted=True) if serving.uploads.is_crowded else None
        if oldest is not None and now - max(oldest, went_on_at) > PRESSED_S:
            return f"large message incomplete after {PRESSED_S:g} s, and others wait for its room"
        return ""

    async def _write(self) -> None:
        try:
            await self._outbox.run(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.finish("reset")

    async def _say_goodbye(self) -> None:
        """Let what is unsent leave: the client is to know why."""
        self._http2.go_away()
        self._flush()
        for _ in range(GOODBYE_TURNS):
            await trio.lowlevel.checkpoint()

    async def _read(self) -> str:
        receive, governor, http2 = receive_of(self._stream), self._governor, self._http2
        try:
            while data := await receive(RECEIVE):
                self._read_at = trio.current_time()
                events = http2.feed(bytes(data))
                governor.received(len(events), len(data))
                await self._serve_all(events)
                if http2.ended:
                    return "eof"
                await self._wait_room()
        except ProtocolError as broken:
            governor.note("protocol_error", self.peer.remote[0], port=self.peer.remote[1], reason=broken)
            return "protocol"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "reset"
        finally:
            self._flush_deferred()
            http2.woken = self._flush  # a grant counts nothing any more
            self._partial.note(0)
            self._partial.end_turn()
        return "eof"

    async def _serve_all(self, events: list[CallEvent]) -> None:
        began = time.perf_counter()
        for event in events:
            self._serve(event)
            if time.perf_counter() - began > PASS_S:
                self._flush_deferred()
                self._flush()
                await trio.lowlevel.checkpoint()
                began = time.perf_counter()
        self._flush_deferred()
        for number in [each for each in self._stuck if not self._http2.is_blocked(each)]:
            self._stuck.discard(number)
            if number in self._open:
                self._open[number].call.drained()
        self._flush()
        if not self._ponging and self._http2.pong_at is not None:
            self._ponging = True
            self._nursery.start_soon(self._pong)

    async def _pong(self) -> None:
        """Send what answers the pings when it is time; later pings may have come until then."""
        while (at := self._http2.pong_at) is not None:
            await trio.sleep_until(at)
            self._flush()
        self._ponging = False

    async def _wait_room(self) -> None:
        """Stop reading while the peer or the process has too much under way, or leaves too much unread."""
        self._partial.note(self._http2.partial_bytes)
        await self._partial.wait(self._http2.may_go_on)
        stopped = self._pending.is_stopped(self._http2.partial_bytes)
        if stopped or self._outbox.full:
            self._partial.end_turn()  # perhaps its peer reads no answers
        if stopped:
            await self._pending.wait(self._http2.partial_bytes)
        if self._outbox.full:
            self._outbox.drained = drained = trio.Event()
            await drained.wait()
        self._read_at = trio.current_time()

    def _granted(self) -> None:
        """A large message has room of its own now: it is not held back for that of others."""
        self._partial.note(self._http2.partial_bytes)
        self._flush()

    def _serve(self, event: CallEvent) -> None:
        number = event.stream
        if isinstance(event, CallOpened):
            self._begin(event)
            return
        one = self._open.get(number)
        if one is None:
            if isinstance(event, Cancelled):
                self._take_back(number)
            return
        if isinstance(event, Cancelled | Rejected):
            self._drop(number, one)
            return
        try:
            self._continue(number, one, event)
        except CallFailed as failed:
            self._drop(number, one)
            self._http2.finish(number, failed.status, failed.text)

    def _begin(self, event: CallOpened) -> None:
        method, number = self._serving.service.get(event.path), event.stream
        try:
            if method is None:
                self._serving.counts.unknown += 1
                raise CallFailed(GrpcStatus.UNIMPLEMENTED, f"no method {event.path[:200].decode('latin-1')}")
            self._serving.counts.requests[event.path] += 1
            limit_s = timeout_s(event.metadata.get(b"grpc-timeout"))
        except CallFailed as failed:
            self._http2.finish(number, failed.status, failed.text)
            return
        began_s = self._read_at
        deadline = inf if limit_s is None else began_s + limit_s
        call = Call(self.peer, event.metadata, partial(self._send, number), began_s, deadline)
        one = self._open[number] = _Open(call, method)
        if isinstance(method, Streaming):
            self._start(number, one, partial(method.handle, call))

    def _continue(self, number: int, one: _Open, event: CallEvent) -> None:
        last = event.last if isinstance(event, Received) else True
        if isinstance(one.method, Streaming):
            if isinstance(event, Received):
                one.call.arrived(event.message)
            if last:
                one.call.half_closed()
            return
        if isinstance(event, Received):
            if one.message is not None:
                raise CallFailed(GrpcStatus.INVALID_ARGUMENT, "a second message, this method takes one")
            one.message = event.message
            if not last:
                self._http2.hold(number, len(event.message))
        if last:
            if one.message is None:
                raise CallFailed(GrpcStatus.INVALID_ARGUMENT, "no message")
            message, one.message = one.message, None
            self._answer(number, one, self._handled(one.method, one.call, message), len(message))

    def _handled(self, method: Unary, call: Call, message: bytes) -> Answer:
        """A handler that fails ends its call and no other. Raises CallFailed."""
        try:
            return method.handle(call, message)
        except CallFailed:
            raise
        except Exception as exc:
            raise self._failed(call, exc) from exc

    def _failed(self, call: Call, exc: Exception) -> CallFailed:
        self._serving.counts.faults += 1
        reason, traced = told_of(exc)
        path = call.text(b":path")
        more = self._serving.counts.lines.line_end(self.peer.remote[0], path, time.monotonic())
        if more is not None:
            _log.error("event=call_failed path=%s peer=%s reason=%r%s", path, self.peer, reason, more, exc_info=traced)
        return CallFailed(GrpcStatus.INTERNAL, reason)

    def _answer(self, number: int, one: _Open, answer: Answer, size: int) -> None:
        """Let an answer leave now, with what it waits for or from a task; `size` is that of the request."""
        if isinstance(answer, bytes):
            self._finish(number, answer)
        elif isinstance(answer, Deferred):
            self._pending.requests += 1
            self._deferred.setdefault(answer.when, []).append((number, answer, max(size, len(answer.message))))
        else:
            self._start(number, one, partial(self._run_task, number, answer))

    def _flush_deferred(self) -> None:
        """Let the answers of this pass that wait for the same thing wait together, for the highest of their marks."""
        deferred, self._deferred = self._deferred, {}
        for when, rows in deferred.items():
            size = sum(size for _, _, size in rows)
            self._pending.take(size)
            when(max(row.mark for _, row, _ in rows), partial(self._on_durable, rows, size))

    def _on_durable(self, rows: list[tuple[int, Deferred, int]], size: int, reason: str | None) -> None:
        self._pending.give(size)
        self._pending.requests -= len(rows)
        for number, row, _ in rows:
            self._finish(number, row.message if reason is None else row.failed(reason))
        self._flush()

    def _finish(self, number: int, message: bytes) -> None:
        if self._open.pop(number, None) is not None:
            self._http2.answer(number, message)

    def _send(self, number: int, messages: Sequence[bytes], now: bool) -> bool:
        """Send messages of a streaming call, or leave them for what follows; False while they wait for windows."""
        if number not in self._open:
            return True  # the call is over, its task ends at its next step
        self._http2.send(number, *messages)
        blocked = self._http2.is_blocked(number)
        if now or blocked:
            self._flush()
        if blocked:
            self._stuck.add(number)
        return not blocked

    def _drop(self, number: int, one: _Open) -> None:
        self._open.pop(number, None)
        if one.scope is not None:
            one.scope.cancel()

    def _start(self, number: int, one: _Open, run: Callable[[], Awaitable[None]]) -> None:
        one.scope = trio.CancelScope(deadline=one.call.deadline)
        self._pending.requests += isinstance(one.method, Unary)
        self._nursery.start_soon(self._run, number, one, run)

    async def _run(self, number: int, one: _Open, run: Callable[[], Awaitable[None]]) -> None:
        """Run the task of one call, and say how it ended."""
        assert one.scope is not None
        failed: CallFailed | None = None
        try:
            with one.scope:
                await run()
        except CallFailed as told:
            failed = told
        except Exception as exc:
            failed = self._failed(one.call, exc)
        finally:
            self._pending.requests -= isinstance(one.method, Unary)
        if one.scope.cancelled_caught:
            failed = CallFailed(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call is over")
        if self._open.pop(number, None) is not None:
            if failed is None and one.call.taken_back is not None:
                self._ended.note(number, one.call.taken_back, trio.current_time())
            self._http2.finish(number, failed.status if failed else GrpcStatus.OK, failed.text if failed else "")
            self._flush()

    def _take_back(self, number: int) -> None:
        """The client has reset a call that is over: tell its handler if it may not have seen the end."""
        taken_back = self._ended.reset(number, trio.current_time())
        if taken_back is not None:
            try:
                taken_back()
            except Exception:
                _log.exception("event=call_not_taken_back peer=%s next_step=report_this", self.peer)

    async def _run_task(self, number: int, answer: AnswerTask) -> None:
        self._http2.send(number, await answer.run())

    def _flush(self) -> None:
        data = self._http2.outgoing()
        if data:
            self._outbox.send((data,))
