"""One connection: a reader that serves every whole frame of a receive in one pass, and a writer.

Only an `AsyncReply` gets a task of its own. A reader stops while its peer has too much in flight or unread, or all
peers together have and it more than a little of that; there is no other back-pressure. Source for the rules on flags:
RocketMQ 4.9.8 NettyRemotingAbstract.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from netstack.errors import HttpSpoken, ProtocolError, Refused
from netstack.serving.governor import Governor
from netstack.serving.in_flight import OwnPending
from netstack.serving.limits import PARTIAL_FREE, PARTIAL_MODEST, PRESSED_S
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.serving.receiver import receive_of
from netstack.wire.command import ONEWAY, RESPONSE, RemotingCommand, encode_command, encode_head
from netstack.wire.conversation import Answer, AsyncReply, DeferredBatch, DeferredReply, Reply
from netstack.wire.frame import KIB, FrameDecoder

Handle = Callable[[RemotingCommand, Peer], Answer]
RECEIVE: Final = 64 * KIB  # 50 messages of 1 KiB: what one pass does before others have their turn
LARGE_FRAME: Final = 8 * KIB  # those of batches; four times as much is received while they come
PASS_BYTES, PASS_S = 256 * KIB, 0.005  # of answers that are ready, and spent on them: then others have their turn
HTTP_S: Final = 1.0  # for the answer to a browser
ANSWER_BYTES: Final = 256 * KIB  # reserved for an answer that takes a while: the largest of a pull
GIVEN_UP: Final = (
    "unsent: unread replies of all peers exceed the limit, and this peer is of those that have most, or the newest"
)
_log = logging.getLogger("netstack")


class Connection:
    """Serves one stream until it ends, breaks its rules or is cancelled."""

    def __init__(self, stream: trio.abc.Stream, peer: Peer, outbox: Outbox, handle: Handle, governor: Governor) -> None:
        self.peer = peer
        self._stream, self._outbox, self._handle, self._governor = stream, outbox, handle, governor
        self._bytes, self._pending = governor.in_flight, OwnPending(governor.in_flight)
        self._receive = receive_of(stream)
        self._pace = PeerActivity(trio.current_time())
        self._in_flight = self._unmade = 0  # requests; bytes of those that wait for room for their answers
        self._held: DeferredBatch | None = None  # of this pass
        self._replies: list[bytes] = []  # of this pass
        self._made = 0  # bytes of them, and one for each that takes a while
        self._room: trio.Event | None = None  # set when the reader waits for answers to leave
        self._nursery: trio.Nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> str:
        """Return why the connection ended. The stream is closed, all tasks are over."""
        try:
            async with trio.open_nursery() as self._nursery:
                self.peer.finish, self._outbox.end = self.finish, self._give_up
                task_status.started()
                self._nursery.start_soon(self._write)
                self.finish(await self._read())
        except Exception:
            self.peer.close_reason = "failed"
            _log.exception("event=connection_failed peer=%s next_step=report_this", self.peer)
        finally:
            self.peer.finish = self._outbox.end = None
            self._outbox.close()
            self.peer.end(self.peer.close_reason or "cancelled")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
        return self.peer.close_reason

    def finish(self, reason: str) -> None:
        """End the connection; the first reason counts."""
        self.peer.close_reason = self.peer.close_reason or reason
        self._nursery.cancel_scope.cancel()

    def _give_up(self) -> None:
        """All peers together leave too much unread, and this one has taken nothing for longest."""
        self._governor.note("connection_closed", self.peer.remote[0], port=self.peer.remote[1], reason=GIVEN_UP)
        self.finish(GIVEN_UP)

    @property
    def heard_at(self) -> float | None:
        """When the peer's last bytes came, by trio's clock; None before its first frame."""
        return self._pace.read_at if self._pace.frames else None

    def silent_since(self) -> float:
        """When the peer's last bytes came, or when it connected, by trio's clock."""
        return self._pace.read_at

    def is_busy(self) -> bool:
        """Whether a request of the peer is under way."""
        return self._in_flight > 0

    def overdue(self, now: float) -> str | None:
        """Return why this connection is to be closed now, or None."""
        limits, outbox = self._governor.limits, self._outbox
        if outbox.unsent_bytes and now - outbox.progress_at > limits.unsent_s:
            return f"unsent: {outbox.unsent_bytes} bytes, nothing read for {limits.unsent_s:g} s"
        if self._unmade > PARTIAL_FREE and self._bytes.paused_s(now) > PRESSED_S:
            return f"unsent: {self._unmade} bytes of requests wait for answers to be read, and all others for them"
        if self._pace.stopped:
            return None  # by us; what is unread is not the peer's fault
        pressed = self._pace.partial > PARTIAL_MODEST or self._bytes.has_turn(self)
        frame_s = PRESSED_S if pressed and self._bytes.partial_full else limits.frame_s
        begun_at = self._pace.frame_since
        if begun_at is not None and now - begun_at > frame_s:
            return f"frame incomplete after {frame_s:g} s"
        if begun_at is not None and not self._pace.frames and now - begun_at > limits.first_frame_s:
            return f"first frame incomplete after {limits.first_frame_s:g} s"
        if now - max(self._pace.read_at, outbox.progress_at) > limits.idle_s:
            return f"idle for {limits.idle_s:g} s"
        return None

    async def _write(self) -> None:
        try:
            await self._outbox.run(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.finish("reset")

    async def _read(self) -> str:
        limits, governor, pace = self._governor.limits, self._governor, self._pace
        decoder, headers = FrameDecoder(limits.frame_bytes, limits.header_bytes), governor.headers
        try:
            wanted = PARTIAL_FREE if self._bytes.paused else RECEIVE
            while received := await self._receive(wanted):
                size = len(received)
                decoder.feed(received)
                received = b""  # an idle connection keeps no receive buffer alive
                frames, began = 0, time.perf_counter()
                while (frame := decoder.next_frame()) is not None:
                    frames += 1
                    self._serve(headers.decode(frame), len(frame.header) + len(frame.body))
                    if self._in_flight >= limits.requests_in_flight:
                        await self._wait_room()
                    if self._made and (self._made > PASS_BYTES or time.perf_counter() - began > PASS_S):
                        await self._give_turn()
                        began = time.perf_counter()
                self._flush_replies()
                wanted = 4 * RECEIVE if size >= RECEIVE and size > LARGE_FRAME * frames > 0 else RECEIVE
                pace.received(frames, trio.current_time(), incomplete=decoder.buffered > 0)
                governor.received(frames, size)
                if decoder.buffered or pace.partial:
                    wanted = await self._hold_partial(decoder.buffered, wanted, ended=frames > 0)
                if paused := self._bytes.paused:
                    wanted = min(wanted, PARTIAL_FREE)
                if self._outbox.full or (paused and self._pending.is_stopped(pace.partial)):
                    await self._wait_room()
        except ProtocolError as broken:
            governor.note("protocol_error", self.peer.remote[0], port=self.peer.remote[1], reason=broken)
            if isinstance(broken, HttpSpoken) and not pace.frames and not self._made and not self._in_flight:
                await self._tell_http()
            return "protocol"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "reset"
        finally:
            self._flush_replies()
            self._bytes.hold_partial(-pace.partial)
            self._bytes.end_turn(self)
        return "eof"

    async def _tell_http(self) -> None:
        """Tell a browser what this port is. Nothing has been sent yet, so that the writer waits."""
        from netstack.serving.http_answer import http_answer  # few browsers come here

        hint = self._governor.http_hint
        with trio.move_on_after(HTTP_S):
            await self._stream.send_all(http_answer(hint(self.peer.local[0]) if hint is not None else ""))

    async def _give_turn(self) -> None:
        """Let the answers so far leave, and others continue before the rest of what was received is served."""
        self._flush_replies()
        if self._outbox.full or self._pending.is_stopped(self._pace.partial):
            await self._wait_room()
        else:
            await trio.lowlevel.checkpoint()

    async def _hold_partial(self, size: int, wanted: int, *, ended: bool) -> int:
        """Count the bytes of the incomplete frame, the one before has `ended`; return how many more may come.

        While all connections together hold too many of them, one has no more than PARTIAL_FREE, or waits for its turn.
        """
        held, pace = self._bytes, self._pace
        change, pace.partial = size - pace.partial, size
        held.hold_partial(change)
        if ended:
            held.end_turn(self)
        while size >= PARTIAL_FREE and held.partial_full and not held.take_turn(self):
            await held.wait_turn()
            pace.goes_on(trio.current_time())
        return min(wanted, PARTIAL_FREE - size) if size < PARTIAL_FREE and held.partial_full else wanted

    async def _wait_room(self) -> None:
        limits = self._governor.limits
        self._pace.stopped = True
        self._bytes.end_turn(self)  # perhaps its peer reads no answers
        self._flush_replies()
        while True:
            if self._pending.is_stopped(self._pace.partial):
                await self._pending.wait(self._pace.partial)
            elif self._in_flight >= limits.requests_in_flight or self._outbox.full:
                self._room = self._outbox.drained = trio.Event()
                await self._room.wait()
            else:
                break
        self._pace.resumed(trio.current_time())

    def _serve(self, command: RemotingCommand, size: int) -> None:
        flag = command.flag
        if flag & RESPONSE:
            self.peer.settle(command)
            return
        try:
            answer = self._handle(command, self.peer)
        except Refused as refused:
            answer = Reply(command.reply(refused.code, refused.remark))
        if isinstance(answer, DeferredReply):
            self._in_flight += 1
            held = self._held
            if held is None or held.when != answer.when:
                self._flush_replies()
                held = self._held = DeferredBatch(answer.when)
            if answer.mark > held.mark:
                held.mark = answer.mark
            held.size += size if answer.size < size else answer.size
            # The frame is made now, while the disk is busy anyway.
            held.answers.append((b"" if flag & ONEWAY else _frame(answer.response), answer.failed))
        elif isinstance(answer, Reply):
            self._made += 1
            if not flag & ONEWAY:
                head, body = encode_head(answer.response), answer.response.body
                self._made += len(head) + len(body)
                self._replies.append(head)
                if body:
                    self._replies.append(body)
        elif answer is not None:
            self._start_later(answer, command, size)

    def _flush_replies(self) -> None:
        """Let the answers so far go, those that are held with what they wait for."""
        if self._made:
            replies, self._replies, self._made = self._replies, [], 0
            self._outbox.send(replies)
        held, self._held = self._held, None
        if held is not None:
            self._pending.take(held.size)
            held.when(held.mark, partial(self._on_durable, held))

    def _on_durable(self, held: DeferredBatch, reason: str | None) -> None:
        """What held answers waited for has happened, or has failed for a reason."""
        self._outbox.send(held.frames(reason))
        self._done(len(held.answers), held.size)

    def _done(self, count: int, size: int) -> None:
        self._in_flight -= count
        self._pending.give(size)
        if self._room is not None:
            self._room.set()
            self._room = None

    def _start_later(self, later: AsyncReply, command: RemotingCommand, size: int) -> None:
        self._made += 1
        if later.pull:
            self._governor.parked_pulls += 1
        else:
            self._in_flight += 1
            self._pending.take(size)
        self._nursery.start_soon(self._run_later, later, command, size)

    async def _run_later(self, later: AsyncReply, command: RemotingCommand, size: int) -> None:
        reserved = 0
        response: RemotingCommand | bytes | None
        try:
            if not later.reads:
                self._unmade += size
                try:
                    await self._outbox.reserve(ANSWER_BYTES)
                finally:
                    self._unmade -= size
                reserved = ANSWER_BYTES
            response = await later.run()
        except Refused as refused:
            response = command.reply(refused.code, refused.remark)
        finally:
            if reserved:
                self._outbox.give_back(reserved)
            if later.pull:
                self._governor.parked_pulls -= 1
            else:
                self._done(1, size)
        if response is not None and not command.is_oneway:
            self._outbox.put(_frame(response))


def _frame(response: RemotingCommand | bytes) -> bytes:
    return response if isinstance(response, bytes) else encode_command(response)


class PeerActivity:
    """When a peer last did what, for the one loop that looks after all connections."""

    __slots__ = ("frame_since", "frames", "partial", "read_at", "stopped")

    def __init__(self, now: float) -> None:
        self.read_at = now
        self.frames = self.partial = 0
        self.stopped = False  # the reader waits for room
        self.frame_since: float | None = None  # since when a frame is incomplete

    def received(self, frames: int, now: float, *, incomplete: bool) -> None:
        self.read_at = now
        self.frames += frames
        if not incomplete:
            self.frame_since = None
        elif frames or self.frame_since is None:
            self.frame_since = now

    def goes_on(self, now: float) -> None:
        """There is room for the rest of a frame: it has its time from now on."""
        self.frame_since = now

    def resumed(self, now: float) -> None:
        """The reader was stopped by us: that time is not the peer's."""
        self.read_at, self.stopped = now, False
        if self.frame_since is not None:
            self.frame_since = now
