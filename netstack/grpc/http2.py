"""One server connection of gRPC over HTTP/2 without its socket: bytes in, calls out; answers in, bytes out.

A call is kept here from its first frame to its last. What concerns the connection alone is in `link_state`, where h2
keeps it; the heads of all frames pass `frame_gate` first. Bounds: calls at once, how much one may send before it is
granted more, how much waits for the client's windows. Source: RFC 9113; gRPC over HTTP2.
"""

from collections.abc import Callable

from h2.errors import ErrorCodes

from netstack.errors import ProtocolError, WindowExceeded
from netstack.grpc import frame_gate as wire
from netstack.grpc.call_events import CallEvent, CallOpened, Cancelled, HalfClosed, Received, Rejected
from netstack.grpc.frame_gate import MAX_FRAME, Frame, FrameGate, frame_bytes, unpadded
from netstack.grpc.header_block import HeaderFrames, is_head, plain_field
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.link_state import LinkState, first_window_change, opens_window, reports_error
from netstack.grpc.open_calls import FIELD_BYTES, OpenCalls, OwnCalls
from netstack.grpc.status import CallFailed, GrpcStatus, percent_encoded
from netstack.grpc.uploads import Grant, OwnUploads, Uploads

PREFIX = 5  # u8 compressed, u32 length: before each message
CONNECTION_WINDOW = 1 << 20
MOST_WINDOW = (1 << 31) - 1
CLOSED_EARLY = 512  # calls that ended before the client had sent all of them: its late frames are no fault
CONTENT = b"application/grpc"
HEAD = b"\x88" + b"\x0f\x10\x10" + CONTENT  # :status 200 and content-type, by their places in the static table
OK = plain_field(b"grpc-status", b"0")
HEAD_FRAME = len(HEAD).to_bytes(3, "big") + bytes((wire.HEADERS, wire.END_HEADERS))
OK_FRAME = len(OK).to_bytes(3, "big") + bytes((wire.HEADERS, wire.END_HEADERS | wire.END_STREAM))
DATA_FRAME = bytes((wire.DATA, 0))
NOT_WRONG = bytes(4)  # the code of a reset by a client that has all it wants


class _Stream:
    """A call: what came of its next message, what it may still send, what waits to be sent and how much may be."""

    __slots__ = (
        *("buffer", "granted", "half_closed", "head_sent", "header_bytes", "held", "pending", "room", "since"),
        *("trailers", "window"),
    )

    def __init__(self, window: int, room: int, now: float, header_bytes: int) -> None:
        self.buffer, self.header_bytes = bytearray(), header_bytes
        self.window, self.granted, self.room, self.held = window, 0, room, 0
        self.since: float | None = now  # when the message that is on its way began
        self.half_closed = self.head_sent = False
        self.pending = bytearray()
        self.trailers: bytes | None = None


class Http2Server:
    """`feed` gives events, `outgoing` gives bytes. After a ProtocolError only `outgoing` is of use."""

    def __init__(
        self,
        limits: GrpcLimits,
        uploads: Uploads | OwnUploads,
        now: Callable[[], float],
        calls: OwnCalls | None = None,
    ) -> None:
        self._limits, self._uploads, self._now, self._calls = limits, uploads, now, calls or OwnCalls(OpenCalls())
        self._gate, self._link = FrameGate(limits, now()), LinkState(limits, CONNECTION_WINDOW)
        self._headers = HeaderFrames(limits.header_bytes)
        self._streams: dict[int, _Stream] = {}
        self._waiting: dict[int, Grant] = {}  # calls whose large message is not granted yet
        self._early: dict[int, None] = {}  # CLOSED_EARLY
        self.partial_bytes = self.blocked_bytes = 0  # of unfinished messages within windows; of answers that wait
        self.ended = False  # one side said that it ends the connection
        self.woken: Callable[[], None] = _nothing  # a grant came: there is something to send

    @property
    def calls(self) -> int:
        """How many calls are open."""
        return len(self._streams)

    def oldest_partial(self, *, granted: bool = False) -> float | None:
        """Return since when the oldest unfinished message is on its way; one that waits for a grant is not late.

        granted: of those that are larger than a window.
        """
        late = [one.since for number, one in self._streams.items() if number not in self._waiting]
        if granted:
            late = [one.since for one in self._streams.values() if one.granted]
        return min((since for since in late if since is not None), default=None)

    def may_go_on(self) -> bool:
        """Whether the client can send more of an unfinished message: not all of them wait for a grant."""
        return self.partial_bytes > sum(len(self._streams[number].buffer) for number in self._waiting)

    @property
    def pong_at(self) -> float | None:
        """When `outgoing` has the answers to pings, None where there are none."""
        return self._link.pong_at

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        data, sent = self._link.outgoing(self._now())
        self._gate.sent(sent)
        return data

    def feed(self, data: bytes) -> list[CallEvent]:
        """Return what the next bytes mean. Raises ProtocolError; what is outgoing then says why."""
        found: list[CallEvent] = []
        now, code = self._now(), ErrorCodes.ENHANCE_YOUR_CALM
        try:
            frames, code = self._gate.check(data, now), ErrorCodes.PROTOCOL_ERROR
            for frame in frames:
                if self.ended:
                    return found
                self._take(frame, found, now)
        except ProtocolError as exc:
            self.go_away(ErrorCodes.FLOW_CONTROL_ERROR if isinstance(exc, WindowExceeded) else code, str(exc))
            raise
        if not self.ended:
            self._link.widen()
        return found

    def go_away(self, code: ErrorCodes = ErrorCodes.NO_ERROR, text: str = "") -> None:
        """Say that no more calls are taken, unless one side has said so already."""
        if not self.ended:
            self.ended = True
            self._link.say_goodbye(code, text)

    def _take(self, frame: Frame, found: list[CallEvent], now: float) -> None:
        kind, flags, number, payload = frame
        if self._headers.open and kind != wire.CONTINUATION:
            raise ProtocolError(f"a frame of type {kind} inside the headers of a call")
        if kind == wire.DATA and number:
            self._data(flags, number, payload, found, now)
        elif kind in (wire.HEADERS, wire.CONTINUATION) and number:
            metadata = self._headers.take(frame)
            if metadata is not None:
                self._block(number, metadata, found, now)
        elif kind not in (wire.RST_STREAM, wire.WINDOW_UPDATE) or not number:
            self._take_of_link(frame)
        elif number > self._link.latest or len(payload) != 4:
            raise ProtocolError(f"a frame of type {kind} with {len(payload)} bytes, for call {number}")
        elif kind == wire.WINDOW_UPDATE:
            self._more_room(number, int.from_bytes(payload, "big") & MOST_WINDOW, found, now)
        elif self._taken_back(number) or payload != NOT_WRONG:
            found.append(Cancelled(number))

    def _take_of_link(self, frame: Frame) -> None:
        if frame[0] == wire.GOAWAY:
            if reports_error(frame):  # else it leaves, and takes the answers under way
                self.ended = True
                self._link.drop()
            return
        try:
            events = self._link.take(frame)
        except ProtocolError:
            self.ended = True  # h2 has said so
            raise
        for event in events:
            if change := first_window_change(event):
                self._change_rooms(change)
            if opens_window(event):
                self._send_waiting()

    def _change_rooms(self, change: int) -> None:
        for one in self._streams.values():
            one.room += change
            if one.room > MOST_WINDOW:
                raise WindowExceeded("the window of a call is larger than 2^31 - 1")

    def _more_room(self, number: int, size: int, found: list[CallEvent], now: float) -> None:
        """Let an answer go on; a window that is no window ends its call, and no other. Source: RFC 9113, 6.9."""
        one = self._streams.get(number)
        if one is None:
            return
        one.room += size
        if not size or one.room > MOST_WINDOW:
            self._gate.provoked(now)
            self._reset(number, ErrorCodes.FLOW_CONTROL_ERROR if size else ErrorCodes.PROTOCOL_ERROR)
            self._forget(number)
            found.append(Cancelled(number))
            return
        if one.pending:
            self._send_pending(number, one)

    def _block(self, number: int, metadata: dict[bytes, bytes], found: list[CallEvent], now: float) -> None:
        last, link = bool(self._headers.flags & wire.END_STREAM), self._link
        if number <= link.latest:
            self._trailers(number, last and not is_head(metadata), found)
            return
        if not number & 1:
            raise ProtocolError(f"call {number}: a client's are odd")
        link.called(number)
        limits, size = self._limits, self._headers.size + FIELD_BYTES * len(metadata)
        full = self.blocked_bytes > limits.blocked_bytes or len(self._streams) >= limits.streams
        if full or not self._calls.open(size):
            self._reset(number, ErrorCodes.REFUSED_STREAM)
            return
        self._streams[number] = _Stream(limits.window_bytes, link.first_window, now, size)
        if metadata.get(b":method") != b"POST" or not metadata.get(b"content-type", b"").startswith(CONTENT):
            self._reject(number, GrpcStatus.INVALID_ARGUMENT, "this is a gRPC service of RocketMQ clients", found)
        elif metadata.get(b"grpc-encoding", b"identity") != b"identity":
            self._reject(number, GrpcStatus.UNIMPLEMENTED, "grpc-encoding: messages are not compressed here", found)
        else:
            found.append(CallOpened(number, metadata.get(b":path", b""), metadata))
        if last:
            self._ended(number, found)

    def _trailers(self, number: int, last: bool, found: list[CallEvent]) -> None:
        one = self._streams.get(number)
        if number in self._early:
            return
        if one is None or one.half_closed or not last:
            raise ProtocolError(f"headers inside call {number}, not the trailers at its end")
        self._ended(number, found)

    def _data(self, flags: int, number: int, payload: bytes, found: list[CallEvent], now: float) -> None:
        size, last = len(payload), bool(flags & wire.END_STREAM)
        self._link.received(size)
        one = self._streams.get(number)
        if one is None or one.half_closed:
            if one is None and number in self._early:
                return
            raise ProtocolError(f"data for call {number}, which takes none")
        one.window -= size
        if one.window < 0:
            raise WindowExceeded(f"data beyond the window of call {number}")
        if flags & wire.PADDED:
            payload = unpadded(payload)
        if last and not one.buffer and self._is_message(payload):
            one.half_closed, one.since = True, None
            found.append(Received(number, payload[PREFIX:], True))
            return
        if len(payload) < size and not last:  # what is granted to a message counts no padding
            self._increment(number, one, size - len(payload))
        self._count(one, len(payload))
        one.buffer += payload
        self._messages(number, one, last, found, now)

    def _is_message(self, payload: bytes) -> bool:
        """Return whether a frame is one whole message."""
        size = len(payload) - PREFIX
        return 0 <= size <= self._limits.message_bytes and payload[:PREFIX] == b"\0" + size.to_bytes(4, "big")

    def _messages(self, number: int, one: _Stream, last: bool, found: list[CallEvent], now: float) -> None:
        """Give the messages that are whole; with the client's last bytes the call is half closed."""
        try:
            while (message := self._next_message(one)) is not None:
                one.since = None
                found.append(Received(number, message))
        except CallFailed as exc:
            one.half_closed = last
            self._reject(number, exc.status, exc.text, found)
            return
        if one.buffer and one.since is None:
            one.since = now
        if last:
            self._ended(number, found)
        else:
            self._widen(number, one)

    def _count(self, one: _Stream, change: int) -> None:
        """Count bytes of an unfinished message, unless they are granted ones, which the uploads count."""
        if not one.granted:
            self.partial_bytes += change

    def hold(self, number: int, size: int) -> None:
        """Count a message that waits for the end of its call like an unfinished one: its bytes and its age."""
        one = self._streams.get(number)
        if one is not None and not one.half_closed:
            one.held, one.since = size, self._now()
            self.partial_bytes += size

    def _next_message(self, one: _Stream) -> bytes | None:
        buffer = one.buffer
        if len(buffer) < PREFIX:
            return None
        size = int.from_bytes(buffer[1:PREFIX], "big")
        if buffer[0]:
            raise CallFailed(GrpcStatus.UNIMPLEMENTED, "messages are not compressed here")
        if size > self._limits.message_bytes:
            text = f"a message of {size} bytes, at most {self._limits.message_bytes} are allowed"
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if len(buffer) < PREFIX + size:
            return None
        message = bytes(buffer[PREFIX : PREFIX + size])
        self._count(one, -PREFIX - size)
        del buffer[: PREFIX + size]
        if one.granted:
            self._give_back(one)
            self._count(one, len(buffer))
        return message

    def _widen(self, number: int, one: _Stream) -> None:
        """Let a call send the rest of its message, or its next one."""
        missing = PREFIX + int.from_bytes(one.buffer[1:PREFIX], "big") - len(one.buffer) if one.buffer else 0
        if missing > one.window and len(one.buffer) >= PREFIX:
            if number not in self._waiting and not one.granted:
                self._want(number, one, missing - one.window)
        elif one.window <= self._limits.window_bytes // 2 and not one.granted:
            self._increment(number, one, self._limits.window_bytes - one.window)

    def _want(self, number: int, one: _Stream, size: int) -> None:
        def grant() -> None:
            del self._waiting[number]
            self.partial_bytes -= len(one.buffer)
            one.granted, one.since = size, self._now()
            self._increment(number, one, size)
            self.woken()

        self._waiting[number] = grant
        self._uploads.want(size, grant)

    def _increment(self, number: int, one: _Stream, size: int) -> None:
        one.window += size
        if not self.ended:
            self._link.put(frame_bytes(wire.WINDOW_UPDATE, 0, number, size.to_bytes(4, "big")))

    def _give_back(self, one: _Stream) -> None:
        size, one.granted = one.granted, 0
        self._uploads.give(size)

    def _ended(self, number: int, found: list[CallEvent]) -> None:
        one = self._streams.get(number)
        if one is None:
            return
        one.half_closed = True
        self.partial_bytes, one.held = self.partial_bytes - one.held, 0
        if one.buffer:
            self._reject(number, GrpcStatus.INTERNAL, "the call ends inside a message", found)
            return
        one.since = None
        found.append(HalfClosed(number))

    def _reject(self, number: int, status: GrpcStatus, text: str, found: list[CallEvent]) -> None:
        self.finish(number, status, text)
        found.append(Rejected(number))

    def answer(self, number: int, message: bytes) -> None:
        """End a call with its only message: its three frames in one piece where the windows let them."""
        one, size, link = self._streams.get(number), PREFIX + len(message), self._link
        if one is None or self.ended:
            return
        if one.head_sent or not one.half_closed or link.resized or size > min(one.room, link.window, MAX_FRAME):
            self.send(number, message)
            self.finish(number)
            return
        link.spend(size)
        stream, length = number.to_bytes(4, "big"), size.to_bytes(3, "big")
        prefix = b"\0" + len(message).to_bytes(4, "big")
        parts = (HEAD_FRAME, stream, HEAD, length, DATA_FRAME, stream, prefix, message, OK_FRAME, stream, OK)
        link.put(b"".join(parts), 3)
        self._forget(number)

    def send(self, number: int, *messages: bytes) -> None:
        """Send messages of a call, as far as the client's windows let it; the rest follows by itself."""
        one = self._streams.get(number)
        if one is None or self.ended:
            return
        if not one.head_sent:
            one.head_sent = True
            self._link.put_block(number, HEAD, wire.END_HEADERS)
        for message in messages:
            one.pending += b"\x00" + len(message).to_bytes(4, "big")
            one.pending += message
            self.blocked_bytes += PREFIX + len(message)
        self._send_pending(number, one)

    def finish(self, number: int, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End a call, behind what it still has to send. A failure drops what waits."""
        one = self._streams.get(number)
        if one is None or one.trailers is not None or self.ended:
            return
        one.trailers = plain_field(b"grpc-status", b"%d" % int(status)) if status else OK
        if text:
            one.trailers += plain_field(b"grpc-message", percent_encoded(text))
        if status:
            self.blocked_bytes -= len(one.pending)
            one.pending.clear()
        self._send_pending(number, one)

    def is_blocked(self, number: int) -> bool:
        """Whether something of a call waits for the client's windows."""
        one = self._streams.get(number)
        return one is not None and bool(one.pending)

    def _send_waiting(self) -> None:
        if self.blocked_bytes:
            for number, one in list(self._streams.items()):
                if one.pending:
                    self._send_pending(number, one)

    def _send_pending(self, number: int, one: _Stream) -> None:
        while one.pending:
            size = min(len(one.pending), one.room, self._link.window, MAX_FRAME)
            if size <= 0:
                return
            self._link.spend(size)
            one.room -= size
            self._link.put(frame_bytes(wire.DATA, 0, number, bytes(one.pending[:size])))
            del one.pending[:size]
            self.blocked_bytes -= size
        if one.trailers is not None:
            self._end(number, one, one.trailers)

    def _end(self, number: int, one: _Stream, trailers: bytes) -> None:
        block = trailers if one.head_sent else HEAD + trailers
        self._link.put_block(number, block, wire.END_HEADERS | wire.END_STREAM)
        if not one.half_closed:
            self._reset(number, ErrorCodes.NO_ERROR)  # RFC 9113, 8.1
        self._forget(number)

    def _reset(self, number: int, code: ErrorCodes) -> None:
        """Say that the rest of a request is not read."""
        self._link.put(frame_bytes(wire.RST_STREAM, 0, number, int(code).to_bytes(4, "big")), 0)
        self._closed_early(number)

    def _closed_early(self, number: int) -> None:
        self._early[number] = None
        if len(self._early) > CLOSED_EARLY:
            del self._early[next(iter(self._early))]

    def _taken_back(self, number: int) -> bool:
        """Forget a call that the client reset; Java's may send data behind that, which was queued (Netty 4.1)."""
        one = self._streams.get(number)
        if one is not None and not one.half_closed:
            self._closed_early(number)
        return self._forget(number)

    def _forget(self, number: int) -> bool:
        one = self._streams.pop(number, None)
        if one is None:
            return False
        self._calls.closed(one.header_bytes)
        if self._waiting and (grant := self._waiting.pop(number, None)) is not None:
            self._uploads.forget(grant)
        self.blocked_bytes -= len(one.pending)
        self._count(one, -len(one.buffer))
        self.partial_bytes -= one.held
        if one.granted:
            self._give_back(one)
        return True

    def close(self) -> None:
        """Give back what the calls of a connection that has ended hold."""
        for number in list(self._streams):
            self._forget(number)


def _nothing() -> None: ...
