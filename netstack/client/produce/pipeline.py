"""Many sends in flight without a task for each: a window, answers by callback, a task per retry."""

from collections import deque

import trio

from netstack.client.errors import ClientError, TimedOut, Unreachable, UsageError
from netstack.client.messages import SendResult
from netstack.client.produce.sending import Sender, worth_retrying
from netstack.client.routes import TopicRoute
from netstack.client.send_request import EncodedRequest, EndsOnFailure, send_result
from netstack.serving.peer import Peer
from netstack.wire.command import RemotingCommand, encode_command
from netstack.wire.json_body import MessageQueue

PACE_BYTES = 64 * 1024  # posted between two turns of the writer: with a window at once, client and broker take turns
FRAME_BYTES = 1024  # what a send costs besides its body, in time of bodies


class Pending:
    """A send in flight; `wait` returns its result."""

    __slots__ = (
        *("_event", "_pipeline", "address", "began", "error", "fixed", "opaque", "out", "peer", "queue", "result"),
        "until",
    )

    def __init__(
        self, pipeline: "Pipeline", out: EncodedRequest, span: tuple[float, float], queue: MessageQueue, *, fixed: bool
    ) -> None:
        self._pipeline, self.out, self.queue, self.fixed = pipeline, out, queue, fixed
        self.began, self.until = span
        self.address = ""
        self.peer: Peer | None = None  # of the attempt under way
        self.opaque = 0
        self.result: SendResult | None = None
        self.error: ClientError | None = None
        self._event: trio.Event | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    @property
    def message_id(self) -> str:
        return ",".join(self.out.message_ids)

    async def wait(self) -> SendResult:
        """Wait for the result and return it. Raises what `send` would raise."""
        if not self.done:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.result is not None
        return self.result

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()

    def frame(self, opaque: int) -> bytes:
        """Return the request, for the connection."""
        return self._pipeline.frame(self, opaque)

    def settle(self, answer: RemotingCommand | None) -> None:
        """Take the answer, from the connection."""
        self._pipeline.answered(self, answer)


_NOBODY_WAITS = EndsOnFailure(None)


def _closed() -> UsageError:
    return UsageError("the producer was closed before the answer arrived")


class Pipeline:
    """The window of one producer."""

    def __init__(self, sender: Sender, nursery: trio.Nursery) -> None:
        self._sender, self._nursery = sender, nursery
        self._under_way = 0
        self._bytes = 0
        self._posted = 0  # bytes since the writer had a turn
        self._room: trio.Event | None = None
        self._empty: trio.Event | None = None
        self._deadlines: deque[Pending] = deque()
        self._more = trio.Event()
        self._closed = False

    def close(self) -> None:
        """Give up the sends in flight: their answers are ignored."""
        self._closed = True
        for pending in list(self._deadlines):
            if not pending.done:
                if pending.peer is not None:
                    pending.peer.forget(pending.opaque)
                self._finish(pending, None, _closed())

    @property
    def under_way(self) -> int:
        """How many sends have no result yet."""
        return self._under_way

    async def submit(self, out: EncodedRequest, timeout_s: float, queue: MessageQueue | None = None) -> Pending:
        """Start a send and return at once; waits only while the window is full. Raises NoRoute, NoNameServer.

        UsageError when the producer was closed meanwhile.
        """
        sender, options = self._sender, self._sender.options
        with EndsOnFailure(out.ended) if out.ended is not None else _NOBODY_WAITS:
            while self._under_way >= options.window or (self._bytes >= options.window_bytes and self._under_way):
                if self._room is None:
                    self._room = trio.Event()
                await self._room.wait()
                self._posted = 0
            route = sender.known_route(out.topic)
            if route is None:
                route = await sender.route(out.topic)
            else:
                await self._pace(FRAME_BYTES + len(out.body))
            if self._closed:
                raise _closed()
        now = trio.current_time()
        pending = Pending(self, out, (now, now + timeout_s), queue or sender.pick(route), fixed=queue is not None)
        self._under_way += 1
        self._bytes += len(out.body)
        if not self._deadlines:
            self._more.set()
        self._deadlines.append(pending)
        self._post(pending, route)
        return pending

    async def _pace(self, size: int) -> None:
        """Let the writer have its turn when there is enough for it."""
        self._posted += size
        if self._posted < PACE_BYTES:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._posted = 0
            await trio.lowlevel.checkpoint()

    def _post(self, pending: Pending, route: TopicRoute) -> None:
        """Put the request onto the connection, if there is one; else leave it to a task."""
        queue, sender = pending.queue, self._sender
        pending.address = address = route.brokers.get(queue.broker_name, {}).get(0, "")
        channel = sender.instance.connected(address)
        if channel is None or sender.options.avoid_slow_brokers:
            self._nursery.start_soon(self._slowly, pending, [], queue if pending.fixed else None)
            return
        pending.peer = channel.peer
        pending.opaque = channel.peer.post(pending)

    def frame(self, pending: Pending, opaque: int) -> bytes:
        """Return the request of a send."""
        out, queue, sender, instance = pending.out, pending.queue, self._sender, self._sender.instance
        now_ms = instance.now_ms()
        if not instance.signs:
            return out.frame(sender.group, queue, sender.options, now_ms, opaque)
        command = instance.request(out.code, out.header(sender.group, queue, sender.options, now_ms), out.body)
        command.opaque = opaque
        return encode_command(command)

    def answered(self, pending: Pending, answer: RemotingCommand | None) -> None:
        """The answer to a send has come, or its connection has ended."""
        queue, sender = pending.queue, self._sender
        pending.peer = None
        error: ClientError
        try:
            if answer is None:
                raise Unreachable(pending.address, "connection ended before the answer")
            result = send_result(answer, pending.out, queue, pending.address)
        except ClientError as failed:
            error = failed
        else:
            if sender.sent is not None:
                sender.sent(pending.out, result, queue, trio.current_time() - pending.began)
            self._finish(pending, result, None)
            return
        if sender.sent is not None:
            sender.sent(pending.out, None, queue, trio.current_time() - pending.began)
        if answer is None:
            sender.instance.suspect_routes()
        if self._closed or pending.fixed or not sender.options.retries or not worth_retrying(error):
            self._finish(pending, None, error)
        else:
            self._nursery.start_soon(self._slowly, pending, [(queue.broker_name, error)], None)

    async def _slowly(
        self, pending: Pending, failures: list[tuple[str, ClientError]], fixed: MessageQueue | None
    ) -> None:
        """Continue as a plain send would; cancelled with the producer, whoever waits for the result learns of it."""
        result, failure = None, None
        try:
            result = await self._sender.go_on(pending.out, failures, (pending.began, pending.until), fixed)
        except ClientError as error:
            failure = error
        finally:
            self._finish(pending, result, failure or (None if result else _closed()))

    def _finish(self, pending: Pending, result: SendResult | None, error: ClientError | None) -> None:
        if pending.done:
            return
        pending.result, pending.error = result, error
        if pending.out.ended is not None:
            pending.out.ended(result, error)
        self._under_way -= 1
        self._bytes -= len(pending.out.body)
        pending.out.body = b""
        deadlines = self._deadlines
        while deadlines and deadlines[0].done:
            deadlines.popleft()
        pending.wake()
        if self._room is not None:
            self._room.set()
            self._room = None
        if self._empty is not None and not self._under_way:
            self._empty.set()
            self._empty = None

    async def wait_empty(self) -> None:
        """Return once every send has its result."""
        while self._under_way:
            if self._empty is None:
                self._empty = trio.Event()
            await self._empty.wait()

    async def watch_deadlines(self) -> None:
        """Fail what got no answer in time."""
        while True:
            while self._deadlines and self._deadlines[0].done:
                self._deadlines.popleft()
            if not self._deadlines:
                self._more = trio.Event()
                await self._more.wait()
                continue
            until = self._deadlines[0].until
            await trio.sleep_until(until)
            while self._deadlines and self._deadlines[0].until <= until:
                self._give_up(self._deadlines.popleft())

    def _give_up(self, pending: Pending) -> None:
        peer = pending.peer
        if peer is None:
            return  # done, or a task is at it and keeps the time itself
        peer.forget(pending.opaque)
        self._sender.instance.suspect_routes()
        self._finish(
            pending, None, TimedOut(f"sending to {pending.out.topic} at {peer}", pending.until - pending.began)
        )
