"""What HTTP/2 says of a connection rather than of a call: h2 keeps its settings, goodbyes and its own window.

h2 sees no frame of a call. Calls are in `http2`, which costs a tenth for each of them.
"""

from math import inf

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, RemoteSettingsChanged, WindowUpdated
from h2.exceptions import ProtocolError as BrokenHttp2
from h2.settings import SettingCodes, Settings

from netstack.errors import ProtocolError, WindowExceeded
from netstack.grpc.frame_gate import ACK, HEADERS, PING, PREFACE, SETTINGS, WINDOW_UPDATE, Frame, frame_bytes
from netstack.grpc.header_block import NO_TABLE
from netstack.grpc.limits import GrpcLimits

FIRST_WINDOW = 65_535  # of HTTP/2
GIVE_BACK = 128 << 10  # bytes of the connection's window: given back together, not after each message
SETTING = 6  # bytes: u16 name, u32 value
PING_BYTES = 8
# grpc-java sends a ping with each answer it reads, unless the last one is still open: at most as often as this says.
# With one call at a time four of ten reads brought a ping alone.
PONG_PAUSE_S = 0.05
LAST_AND_CODE = 8  # bytes of a goodbye: u32 latest call, u32 error
KNOWN_SETTINGS = frozenset(int(each) for each in SettingCodes)


class LinkState:
    """The connection's own frames in, all frames out, in their order; the windows and settings that its calls need."""

    def __init__(self, limits: GrpcLimits, window: int) -> None:
        self._h2 = _started(limits, window)
        self.window = self.first_window = FIRST_WINDOW  # what may be sent on the connection, and in a new call
        self._full = self._receivable = window
        self._out: list[bytes] = []
        self._pongs, self._sent = b"", 0
        self._pong_at = -inf  # not before: the next one
        self.latest = 0  # call
        self.resized = False  # the next block of headers is to say that this side remembers none
        self._put_own()

    def called(self, stream: int) -> None:
        """Note the latest call: a goodbye names it."""
        if not self.latest:
            self._h2.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        self.latest = self._h2.highest_inbound_stream_id = stream

    def take(self, frame: Frame) -> list[Event]:
        """Return what a frame of the connection changes. Raises ProtocolError."""
        kind, flags, stream, payload = frame
        if kind == PING and not stream and len(payload) == PING_BYTES:
            if not flags & ACK:
                self._pongs += frame_bytes(PING, ACK, 0, payload)
            return []
        if kind == SETTINGS:
            payload = _known_settings(payload)
        self._h2.outbound_flow_control_window = self.window  # of which calls have used some meanwhile
        try:
            events: list[Event] = self._h2.receive_data(frame_bytes(kind, flags, stream, payload))
        except BrokenHttp2 as exc:
            raise ProtocolError(f"HTTP/2: {exc}") from None
        finally:
            self._put_own()
        self.window = self._h2.outbound_flow_control_window
        self.first_window = self._h2.remote_settings.initial_window_size
        for event in events:
            if isinstance(event, RemoteSettingsChanged) and SettingCodes.HEADER_TABLE_SIZE in event.changed_settings:
                self.resized = True
        return events

    def received(self, size: int) -> None:
        """Note bytes of calls. Raises ProtocolError when they are more than the connection's window."""
        self._receivable -= size
        if self._receivable < 0:
            raise WindowExceeded("data beyond the window of the connection")

    def widen(self) -> None:
        """Give the window back, many messages at a time."""
        size = self._full - self._receivable
        if size >= GIVE_BACK:
            self._receivable = self._full
            self.put(frame_bytes(WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big")), 0)

    def spend(self, size: int) -> None:
        """Note that so many bytes of calls are sent."""
        self.window -= size

    def put(self, data: bytes, frames: int = 1) -> None:
        """Send frames of a call."""
        self._out.append(data)
        self._sent += frames

    def put_block(self, number: int, block: bytes, flags: int) -> None:
        """Send headers of a call."""
        if self.resized:
            block, self.resized = NO_TABLE + block, False
        self.put(frame_bytes(HEADERS, flags, number, block))

    def drop(self) -> None:
        """Forget what is not sent yet."""
        self._out.clear()

    def say_goodbye(self, code: ErrorCodes, text: str) -> None:
        """Say that no more calls are taken."""
        self._h2.close_connection(code, text.encode()[:256])
        self._put_own()

    def _put_own(self) -> None:
        """Send what h2 says behind all that was said before: what follows its answer to settings obeys them."""
        self._out.append(bytes(self._h2.data_to_send()))

    @property
    def pong_at(self) -> float | None:
        """When what answers the pings leaves, None where nothing does: other bytes do not take it along before."""
        return self._pong_at if self._pongs else None

    def outgoing(self, now: float) -> tuple[bytes, int]:
        """Return the bytes to send, and how many frames of calls are among them."""
        out, sent = self._out, self._sent
        self._out, self._sent = [], 0
        if self._pongs and now >= self._pong_at:
            out.insert(0, self._pongs)
            self._pongs, self._pong_at = b"", now + PONG_PAUSE_S
        return b"".join(out), sent


def _known_settings(payload: bytes) -> bytes:
    """Return the settings that mean something: h2 remembers each of the 65,536 that a client may name."""
    if len(payload) % SETTING:
        return payload  # h2 says what is wrong with it
    rows = (payload[at : at + SETTING] for at in range(0, len(payload), SETTING))
    return b"".join(row for row in rows if int.from_bytes(row[:2], "big") in KNOWN_SETTINGS)


def _started(limits: GrpcLimits, window: int) -> H2Connection:
    made = H2Connection(H2Configuration(client_side=False))
    first = {
        SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
        SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
    }
    made.local_settings = Settings(client=False, initial_values=first)
    made.initiate_connection()
    made.increment_flow_control_window(window - FIRST_WINDOW)
    made.receive_data(PREFACE)  # the gate has seen it
    return made


def first_window_change(event: Event) -> int:
    """Return by how much the windows of calls change, 0 where they do not."""
    if not isinstance(event, RemoteSettingsChanged):
        return 0
    changed = event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)
    return changed.new_value - (changed.original_value or 0) if changed else 0


def opens_window(event: Event) -> bool:
    """Return whether more may be sent now."""
    return isinstance(event, WindowUpdated | RemoteSettingsChanged)


def reports_error(goodbye: Frame) -> bool:
    """Return whether a client ends the connection for a fault. Raises ProtocolError."""
    _, _, stream, payload = goodbye
    if stream or len(payload) < LAST_AND_CODE:
        raise ProtocolError(f"a goodbye of {len(payload)} bytes for call {stream}")
    return any(payload[4:LAST_AND_CODE])
