"""One server connection of gRPC over HTTP/2 without its socket: bytes in, calls out; answers in, bytes out.

h2 keeps the states of HTTP/2. What it would pay for without asking is decided here: the heads of frames
(`frame_gate`), how much a call may send before it is granted more, and how much waits for the client's windows.
Source: RFC 9113; gRPC over HTTP2.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError as BrokenHttp2
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes, Settings

from netstack.errors import ProtocolError
from netstack.grpc.frame_gate import MAX_FRAME, FrameGate
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.status import CallFailed, GrpcStatus, percent_encoded

PREFIX = 5  # u8 compressed, u32 length: before each message
PORTION = 4096  # bytes that h2 gets at once, so that a refusal of the gate comes before their cost
CONNECTION_WINDOW = 1 << 20
CLOSED_STREAMS = 512  # remembered to tell a late frame from a wrong one; of h2's own 65,536 each has 130 bytes
CONTENT = (b"content-type", b"application/grpc")
HEADER_TABLE = 4096  # bytes of headers that this side remembers for its own, as every end does at first
HEAD = [(b":status", b"200"), CONTENT]
Grant = Callable[[], None]


class CallOpened(NamedTuple):
    """A client began a call; names of headers are in lower case, the last of a name counts."""

    stream: int
    path: bytes
    metadata: dict[bytes, bytes]


class Received(NamedTuple):
    """One whole message of a call."""

    stream: int
    message: bytes


class HalfClosed(NamedTuple):
    """The client has sent all it wants to send in a call."""

    stream: int


class Cancelled(NamedTuple):
    """The client takes a call back."""

    stream: int


class Rejected(NamedTuple):
    """A call broke the rules of messages: it is answered already."""

    stream: int


CallEvent = CallOpened | Received | HalfClosed | Cancelled | Rejected


class _Connection(H2Connection):
    MAX_CLOSED_STREAMS = CLOSED_STREAMS


class _Stream:
    """A call: what came of its next message, what it may still send, what waits to be sent."""

    __slots__ = ("buffer", "granted", "half_closed", "head_sent", "pending", "since", "trailers", "window")

    def __init__(self, window: int, now: float) -> None:
        self.buffer = bytearray()
        self.window, self.granted = window, 0
        self.since: float | None = now  # when the message that is on its way began
        self.half_closed = self.head_sent = False
        self.pending = bytearray()
        self.trailers: list[tuple[bytes, bytes]] | None = None


class Uploads:
    """The bytes granted to messages larger than a window, of all connections together; grants go in order."""

    def __init__(self, most: int) -> None:
        self._left, self._waiting = most, deque[tuple[int, Grant]]()

    def want(self, size: int, grant: Grant) -> None:
        """Call `grant` once, perhaps now; whoever got it gives it back."""
        self._waiting.append((size, grant))
        self._serve()

    def forget(self, grant: Grant) -> None:
        """Take back what was wanted and not granted yet."""
        self._waiting = deque(row for row in self._waiting if row[1] is not grant)

    def give(self, size: int) -> None:
        self._left += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            size, grant = self._waiting.popleft()
            self._left -= size
            grant()


class Http2Server:
    """`feed` gives events, `outgoing` gives bytes. After a ProtocolError only `outgoing` is of use."""

    def __init__(self, limits: GrpcLimits, uploads: Uploads, now: Callable[[], float]) -> None:
        self._limits, self._uploads, self._now = limits, uploads, now
        self._gate = FrameGate(limits, now())
        self._h2 = _started(limits)
        self._streams: dict[int, _Stream] = {}
        self._waiting: dict[int, Grant] = {}  # calls whose large message is not granted yet
        self._unacknowledged = self._sent = 0
        self.partial_bytes = self.blocked_bytes = 0  # of unfinished messages within windows; of answers that wait
        self.ended = False  # one side said that it ends the connection
        self.woken: Callable[[], None] = lambda: None  # a grant came: there is something to send

    @property
    def calls(self) -> int:
        """How many calls are open."""
        return len(self._streams)

    def oldest_partial(self) -> float | None:
        """Return since when the oldest unfinished message is on its way; one that waits for a grant is not late."""
        late = [one.since for number, one in self._streams.items() if number not in self._waiting]
        return min((since for since in late if since is not None), default=None)

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        self._gate.sent(self._sent)
        self._sent = 0
        return self._h2.data_to_send()

    def feed(self, data: bytes) -> list[CallEvent]:
        """Return what the next bytes mean. Raises ProtocolError; what is outgoing then says why."""
        found, now = list[CallEvent](), self._now()
        try:
            for at in range(0, len(data), PORTION):
                portion = data[at : at + PORTION]
                self._gate.check(portion, now)
                for event in self._h2.receive_data(portion):
                    self._take(event, found, now)
        except BrokenHttp2 as exc:
            self.ended = True
            if not self._gate.goodbye:
                raise ProtocolError(f"HTTP/2: {exc}") from None
        except ProtocolError as exc:
            self.go_away(ErrorCodes.ENHANCE_YOUR_CALM, str(exc))
            raise
        if self._unacknowledged and not self.ended:
            self._h2.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0
        return found

    def go_away(self, code: ErrorCodes = ErrorCodes.NO_ERROR, text: str = "") -> None:
        """Say that no more calls are taken, unless one side has said so already."""
        if not self.ended:
            self.ended = True
            self._h2.close_connection(code, text.encode()[:256])

    def _take(self, event: Event, found: list[CallEvent], now: float) -> None:
        if isinstance(event, DataReceived):
            self._data(event, found, now)
        elif isinstance(event, RequestReceived):
            self._open(event, found, now)
        elif isinstance(event, StreamEnded):
            self._ended(event.stream_id, found)
        elif isinstance(event, StreamReset):
            if self._forget(event.stream_id):
                found.append(Cancelled(event.stream_id))
        elif isinstance(event, WindowUpdated):
            self._send_waiting()
        elif isinstance(event, RemoteSettingsChanged):
            # What the client lets us remember of headers is memory of ours.
            self._h2.encoder.header_table_size = min(self._h2.encoder.header_table_size, HEADER_TABLE)
            self._send_waiting()
        elif isinstance(event, ConnectionTerminated):
            self.ended = True

    def _open(self, event: RequestReceived, found: list[CallEvent], now: float) -> None:
        number, metadata = event.stream_id, dict(event.headers)
        if self.blocked_bytes > self._limits.blocked_bytes:
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        self._streams[number] = _Stream(self._limits.window_bytes, now)
        if metadata.get(b":method") != b"POST" or not metadata.get(b"content-type", b"").startswith(CONTENT[1]):
            self._reject(number, GrpcStatus.INVALID_ARGUMENT, "this is a gRPC service of RocketMQ clients", found)
        elif metadata.get(b"grpc-encoding", b"identity") != b"identity":
            self._reject(number, GrpcStatus.UNIMPLEMENTED, "grpc-encoding: messages are not compressed here", found)
        else:
            found.append(CallOpened(number, metadata.get(b":path", b""), metadata))

    def _data(self, event: DataReceived, found: list[CallEvent], now: float) -> None:
        number, size = event.stream_id, event.flow_controlled_length
        self._unacknowledged += size
        one = self._streams.get(number)
        if one is None:
            return
        one.window -= size
        self._count(one, len(event.data))
        one.buffer += event.data
        try:
            while (message := self._next_message(one)) is not None:
                found.append(Received(number, message))
                one.since = None
        except CallFailed as exc:
            self._reject(number, exc.status, exc.text, found)
            return
        if one.buffer and one.since is None:
            one.since = now
        if event.stream_ended is None:
            self._widen(number, one)

    def _count(self, one: _Stream, change: int) -> None:
        """Count bytes of an unfinished message, unless they are granted ones, which the uploads count."""
        if not one.granted:
            self.partial_bytes += change

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
        try:
            self._h2.increment_flow_control_window(size, number)
            self._sent += 1
        except (StreamClosedError, BrokenHttp2):
            return  # the call has ended meanwhile

    def _give_back(self, one: _Stream) -> None:
        size, one.granted = one.granted, 0
        self._uploads.give(size)

    def _ended(self, number: int, found: list[CallEvent]) -> None:
        one = self._streams.get(number)
        if one is None:
            return
        one.half_closed = True
        if one.buffer:
            self._reject(number, GrpcStatus.INTERNAL, "the call ends inside a message", found)
            return
        one.since = None
        found.append(HalfClosed(number))

    def _reject(self, number: int, status: GrpcStatus, text: str, found: list[CallEvent]) -> None:
        self.finish(number, status, text)
        found.append(Rejected(number))

    def send(self, number: int, message: bytes) -> None:
        """Send a message of a call, as far as the client's windows let it; the rest follows by itself."""
        one = self._streams.get(number)
        if one is None or self.ended:
            return
        if not one.head_sent:
            one.head_sent = True
            self._h2.send_headers(number, HEAD)
            self._sent += 1
        one.pending += b"\x00" + len(message).to_bytes(4, "big") + message
        self.blocked_bytes += PREFIX + len(message)
        self._send_pending(number, one)

    def finish(self, number: int, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End a call, behind what it still has to send. A failure drops what waits."""
        one = self._streams.get(number)
        if one is None or one.trailers is not None or self.ended:
            return
        one.trailers = [(b"grpc-status", b"%d" % status)]
        if text:
            one.trailers.append((b"grpc-message", percent_encoded(text)))
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
        try:
            while one.pending:
                size = min(len(one.pending), self._h2.local_flow_control_window(number), MAX_FRAME)
                if size <= 0:
                    return
                self._h2.send_data(number, bytes(one.pending[:size]))
                del one.pending[:size]
                self.blocked_bytes -= size
                self._sent += 1
            if one.trailers is not None:
                self._end(number, one)
        except (StreamClosedError, BrokenHttp2):  # reset by the client, which the next events say
            self._forget(number)

    def _end(self, number: int, one: _Stream) -> None:
        head = [] if one.head_sent else HEAD
        self._h2.send_headers(number, [*head, *(one.trailers or [])], end_stream=True)
        self._sent += 1
        if not one.half_closed:
            self._h2.reset_stream(number, ErrorCodes.NO_ERROR)  # RFC 9113, 8.1: the rest of the request is not read
        self._forget(number)

    def _forget(self, number: int) -> bool:
        one = self._streams.pop(number, None)
        if one is None:
            return False
        if (grant := self._waiting.pop(number, None)) is not None:
            self._uploads.forget(grant)
        self.blocked_bytes -= len(one.pending)
        self._count(one, -len(one.buffer))
        if one.granted:
            self._give_back(one)
        return True

    def close(self) -> None:
        """Give back what the calls of a connection that has ended hold."""
        for number in list(self._streams):
            self._forget(number)


def _started(limits: GrpcLimits) -> H2Connection:
    made = _Connection(
        H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_inbound_headers=False,  # names and values go nowhere from here; what is read is checked in `_open`
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    first = {
        SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
        SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
    }
    made.local_settings = Settings(client=False, initial_values=first)
    made.initiate_connection()
    made.increment_flow_control_window(CONNECTION_WINDOW - 65_535)
    made.decoder.max_header_list_size = limits.header_bytes  # at once, not when the client has agreed
    return made
