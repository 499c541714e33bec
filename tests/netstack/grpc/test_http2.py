"""gRPC over HTTP/2 without a socket: calls out of bytes, windows, grants of large messages."""

from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, StreamReset, TrailersReceived, WindowUpdated
from h2.settings import SettingCodes

from netstack.errors import ProtocolError
from netstack.grpc.call_events import CallEvent, CallOpened, Cancelled, HalfClosed, Received, Rejected
from netstack.grpc.frame_gate import DATA, RST_STREAM, frame_bytes
from netstack.grpc.http2 import Http2Server
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.open_calls import OpenCalls, OwnCalls
from netstack.grpc.testing import enveloped
from netstack.grpc.uploads import Uploads

HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/M"),
    (":authority", "box"),
    ("content-type", "application/grpc"),
]
KIB, MIB = 1 << 10, 1 << 20


class Both:
    """A client of h2 and a server of ours, joined by hand."""

    def __init__(self, uploads: Uploads | None = None, **limits: Any) -> None:
        self.now = 0.0
        self.uploads = uploads or Uploads(32 * MIB)
        self.server = Http2Server(GrpcLimits()._replace(**limits), self.uploads, lambda: self.now)
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.events: list[Any] = []
        self.exchange()

    def exchange(self) -> list[CallEvent]:
        """Carry bytes both ways until there are none; return what the server made of them."""
        found: list[CallEvent] = []
        while True:
            data = self.client.data_to_send()
            found += self.server.feed(data) if data else []
            back = self.server.outgoing()
            self.events += self.client.receive_data(back)
            if not data and not back:
                return found

    def begin(self, *more: tuple[str, str], end: bool = False) -> int:
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, [*HEAD, *more], end_stream=end)
        return number

    def trailers(self) -> dict[str, str]:
        (found,) = [
            event.headers for event in self.events if isinstance(event, TrailersReceived) or _only_trailers(event)
        ]
        return dict(found)


def _only_trailers(event: Any) -> bool:
    return any(name == "grpc-status" for name, _ in getattr(event, "headers", None) or ())


def test_a_call_is_opened_received_and_answered_with_trailers() -> None:
    both = Both()
    number = both.begin(("x-mq-client-id", "c@1"))
    both.client.send_data(number, enveloped(b"hello"), end_stream=True)
    opened, received = both.exchange()
    assert isinstance(opened, CallOpened)
    assert (opened.stream, opened.path, opened.metadata[b"x-mq-client-id"]) == (number, b"/s/M", b"c@1")
    assert received == Received(number, b"hello", True)
    both.server.answer(number, b"world")
    both.exchange()
    body = b"".join(event.data or b"" for event in both.events if isinstance(event, DataReceived))
    assert (body, both.trailers()["grpc-status"]) == (enveloped(b"world"), "0")
    assert (both.server.calls, both.server.partial_bytes, both.server.blocked_bytes) == (0, 0, 0)


def test_a_failure_before_any_message_is_one_block_of_headers() -> None:
    both = Both()
    number = both.begin(end=True)
    both.exchange()
    from netstack.grpc.status import GrpcStatus

    both.server.finish(number, GrpcStatus.UNIMPLEMENTED, "no method ü")
    both.exchange()
    found = both.trailers()
    assert (found[":status"], found["grpc-status"], found["grpc-message"]) == ("200", "12", "no method %C3%BC")


@pytest.mark.parametrize(("more", "status"), [(("grpc-encoding", "gzip"), "12"), (("content-type", "text/plain"), "3")])
def test_what_is_no_plain_grpc_call_is_answered_and_not_opened(more: tuple[str, str], status: str) -> None:
    both = Both()
    head = [row for row in HEAD if row[0] != more[0]]
    both.client.send_headers(1, [*head, more], end_stream=True)
    assert not any(isinstance(event, CallOpened) for event in both.exchange())
    assert both.trailers()["grpc-status"] == status


def test_a_message_above_the_limit_ends_its_call_at_its_prefix() -> None:
    both = Both(message_bytes=1000)
    number = both.begin()
    both.client.send_data(number, b"\x00" + (1001).to_bytes(4, "big"))
    assert both.exchange()[-1] == Rejected(number)
    assert both.trailers()["grpc-status"] == "8"
    assert any(isinstance(event, StreamReset) for event in both.events), "the rest of the message is not wanted"


def test_a_packed_message_and_one_that_is_cut_off_end_their_calls() -> None:
    for data, status in ((b"\x01" + (1).to_bytes(4, "big") + b"x", "12"), (enveloped(b"hello")[:-1], "13")):
        both = Both()
        both.client.send_data(number := both.begin(), data, end_stream=True)
        assert both.exchange()[-1] == Rejected(number)
        assert both.trailers()["grpc-status"] == status


def test_a_large_message_is_granted_room_in_one_piece() -> None:
    both = Both()
    number, message = both.begin(), bytes(3 * MIB)
    both.exchange()
    data, found = enveloped(message), list[CallEvent]()
    while data:
        size = min(both.client.local_flow_control_window(number), 16_384, len(data))
        both.client.send_data(number, data[:size])
        data = data[size:]
        found += both.exchange()
    assert found == [Received(number, message)]
    grants = [event.delta or 0 for event in both.events if isinstance(event, WindowUpdated) and event.stream_id]
    assert max(grants) > 2.9 * MIB
    assert both.server.partial_bytes == 0


def test_padding_takes_nothing_of_what_is_granted_to_a_large_message() -> None:
    both = Both()
    number, data = both.begin(), enveloped(bytes(MIB))
    both.exchange()
    found = list[CallEvent]()
    while data:
        window = both.client.local_flow_control_window(number)
        size = min(window, 16_000, len(data))
        assert size > 0, f"{len(data)} bytes have no window"
        both.client.send_data(number, data[:size], pad_length=255 if window - size > 255 else None)
        data = data[size:]
        found += both.exchange()
    assert found == [Received(number, bytes(MIB))]


def test_a_large_message_waits_while_others_have_all_the_room() -> None:
    uploads = Uploads(100)
    both = Both(uploads)
    number = both.begin()
    both.client.send_data(number, b"\x00" + (200_000).to_bytes(4, "big") + bytes(10_000))
    both.exchange()
    assert both.client.local_flow_control_window(number) < 60_000
    assert both.server.oldest_partial() is None, "who waits for us is not late"
    both.now = 40.0
    uploads.give(200_000)
    both.exchange()
    assert both.client.local_flow_control_window(number) > 180_000
    assert both.server.oldest_partial() == 40.0
    both.client.reset_stream(number)
    assert both.exchange() == [Cancelled(number)]
    granted: list[int] = []
    uploads.want(200_100, lambda: granted.append(1))
    assert granted == [1], "what was granted is given back"


def test_a_call_that_is_reset_while_it_waits_wants_nothing_any_more() -> None:
    uploads = Uploads(100)
    both = Both(uploads)
    number = both.begin()
    both.client.send_data(number, b"\x00" + (200_000).to_bytes(4, "big"))
    both.exchange()
    both.client.reset_stream(number)
    both.exchange()
    granted: list[int] = []
    uploads.want(100, lambda: granted.append(1))
    assert granted == [1]


def test_an_answer_waits_for_the_windows_of_the_client_and_then_leaves_by_itself() -> None:
    both = Both()
    number = both.begin(end=True)
    both.exchange()
    both.server.send(number, bytes(100_000))
    both.server.finish(number)
    both.exchange()
    assert both.server.is_blocked(number)
    assert both.server.blocked_bytes == 100_005 - 65_535
    both.client.increment_flow_control_window(50_000)
    both.client.increment_flow_control_window(50_000, number)
    both.exchange()
    assert (both.server.blocked_bytes, both.trailers()["grpc-status"]) == (0, "0")


def test_new_calls_are_refused_while_too_many_answers_wait() -> None:
    both = Both(blocked_bytes=1000)
    first = both.begin(end=True)
    both.exchange()
    both.server.send(first, bytes(100_000))
    second = both.begin(end=True)
    assert both.exchange() == []
    assert [event.error_code for event in both.events if isinstance(event, StreamReset)] == [7], second


def test_a_client_cannot_make_us_remember_more_headers_than_we_want() -> None:
    both = Both()
    both.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 1 << 24})
    both.exchange()
    from netstack.grpc.status import GrpcStatus

    for count in range(200):
        both.server.finish(both.begin(end=True), GrpcStatus.INTERNAL)
        both.exchange()
        both.server.finish(both.client.highest_outbound_stream_id or 0, GrpcStatus.INTERNAL, f"{count}" * 300)
        both.exchange()
    assert both.client.decoder.header_table.maxsize == 0, "it is told that nothing is remembered"


def test_a_flood_ends_with_a_goodbye_that_says_why() -> None:
    both = Both(control_burst=50, control_per_s=0)
    for _ in range(51):
        both.client.ping(b"12345678")
    with pytest.raises(ProtocolError, match="carry nothing"):
        both.server.feed(both.client.data_to_send())
    assert b"carry nothing" in both.server.outgoing()


def test_a_header_bomb_is_not_unpacked() -> None:
    both = Both()
    both.client.send_headers(1, [*HEAD, *[("cookie", "x" * 3000)] * 40])
    with pytest.raises(ProtocolError):
        both.server.feed(both.client.data_to_send())


def test_a_connection_remembers_few_of_the_calls_it_answered_early() -> None:
    both = Both()
    for _ in range(900):
        number = both.begin()
        both.exchange()
        both.server.finish(number)
        both.exchange()
    assert both.server.calls == 0
    assert len(both.server._early) < 600  # of 900


def test_data_behind_the_reset_of_its_call_is_no_fault() -> None:
    """A Java client whose deadline passes between the two sends it: its whole connection was closed for that."""
    both = Both()
    number, other = both.begin(), both.begin()
    both.exchange()
    both.client.send_data(number, enveloped(b"late"), end_stream=True)
    data = both.client.data_to_send()
    reset = frame_bytes(RST_STREAM, 0, number, (8).to_bytes(4, "big"))
    assert both.server.feed(reset + data) == [Cancelled(number)]
    both.client.send_data(other, enveloped(b"hello"), end_stream=True)
    assert both.exchange() == [Received(other, b"hello", True)]
    with pytest.raises(ProtocolError, match="which takes none"):
        both.server.feed(frame_bytes(DATA, 0, other, enveloped(b"more")))


def test_what_comes_late_for_a_call_answered_early_is_no_fault() -> None:
    both = Both()
    number = both.begin()
    both.exchange()
    both.client.send_data(number, bytes(1000))
    late = both.client.data_to_send()
    both.server.finish(number)
    assert both.server.feed(late) == []
    assert not both.server.ended


def waiting_for_900_bytes() -> tuple[Both, int]:
    """A call whose answer of 1000 bytes has a window of 100."""
    both = Both()
    both.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
    number = both.begin(end=True)
    both.exchange()
    both.server.answer(number, bytes(995))
    both.exchange()
    return both, number


def test_calls_use_the_windows_that_the_settings_of_the_client_change() -> None:
    both, _ = waiting_for_900_bytes()
    assert both.server.blocked_bytes == 900
    both.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    both.exchange()
    assert (both.server.blocked_bytes, both.trailers()["grpc-status"]) == (0, "0")


def test_what_leaves_before_settings_are_confirmed_obeys_the_former_ones() -> None:
    both, number = waiting_for_900_bytes()
    both.client.increment_flow_control_window(900, number)
    both.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    both.exchange()
    assert (both.server.blocked_bytes, both.trailers()["grpc-status"]) == (0, "0")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


BLOCK = b"\x83\x86\x04\x04/s/M\x0f\x10\x10application/grpc"  # POST, http, a path, a content type


@pytest.mark.parametrize(
    "frames",
    [
        frame(0, 1, 1, b"x"),  # data before any call
        frame(1, 4, 2, BLOCK),  # an even number
        frame(1, 4, 3, BLOCK) + frame(1, 5, 1, BLOCK),  # a number that is lower than the last
        frame(1, 5, 1, BLOCK) + frame(0, 1, 1, b"x"),  # data behind the end
        frame(1, 5, 1, BLOCK) + frame(1, 5, 1, BLOCK),  # headers behind the end
        frame(1, 4, 1, BLOCK) + frame(1, 4, 1, BLOCK),  # trailers without an end
        frame(1, 0, 1, BLOCK) + frame(6, 0, 0, bytes(8)),  # something inside headers
        frame(1, 0, 1, BLOCK) + frame(9, 4, 3, b""),  # headers of another call
        frame(9, 4, 1, BLOCK),  # the rest of nothing
        frame(1, 4 | 8, 1, b"\xff" + BLOCK),  # more padding than frame
        frame(1, 4 | 32, 1, (1).to_bytes(4, "big") + b"\x00" + BLOCK),  # a call that depends on itself
        frame(1, 4, 1, BLOCK[:-1]),  # a block that ends inside a field
        frame(3, 0, 1, bytes(4)),  # a call that was never there
        frame(1, 4, 1, BLOCK) + frame(3, 0, 1, bytes(3)),  # a frame of the wrong size
        frame(4, 0, 0, bytes(5)),  # settings that are none
        frame(5, 4, 1, BLOCK),  # a push from a client
        frame(1, 4, 1, BLOCK + b"\x83"),  # a pseudo-header behind others
        frame(1, 4, 1, b"\x83" + BLOCK),  # one twice
        frame(1, 4, 1, b"\x88" + BLOCK),  # one of an answer
        frame(1, 4, 1, BLOCK) + frame(1, 5, 1, b"\x83"),  # one in trailers
        frame(7, 0, 0, bytes(7)),  # a goodbye that is too short
    ],
)
def test_what_breaks_the_rules_of_http2_ends_the_connection(frames: bytes) -> None:
    both = Both()
    with pytest.raises(ProtocolError):
        both.server.feed(frames)
    assert b"\x07\x00" in both.server.outgoing(), "the client is told"


WIDE = b"\x7f\xff\xff\xff"
WIDER = frame(4, 0, 0, b"\x00\x04" + WIDE)  # settings: the first window of calls


@pytest.mark.parametrize(
    "frames",
    [
        frame(8, 0, 0, WIDE),
        frame(1, 4, 1, BLOCK) + frame(8, 0, 1, (1).to_bytes(4, "big")) + WIDER,
        frame(4, 0, 0, b"\x00\x04\x80\x00\x00\x00"),
        frame(1, 4, 1, BLOCK) + frame(0, 0, 1, b"\x00" + (70_000).to_bytes(4, "big") + bytes(16_000)) * 5,
    ],
    ids=["connection", "settings", "setting", "data"],
)
def test_a_window_of_the_connection_that_is_too_large_or_overrun_ends_it_with_that_reason(frames: bytes) -> None:
    both = Both()
    with pytest.raises(ProtocolError):
        both.server.feed(frames)
    sent = both.server.outgoing()
    at = sent.index(b"\x07\x00\x00\x00\x00\x00")
    assert int.from_bytes(sent[at + 10 : at + 14], "big") == ErrorCodes.FLOW_CONTROL_ERROR


@pytest.mark.parametrize(
    ("growth", "code"), [(WIDE, ErrorCodes.FLOW_CONTROL_ERROR), (bytes(4), ErrorCodes.PROTOCOL_ERROR)]
)
def test_a_window_of_a_call_that_is_none_ends_the_call_alone(growth: bytes, code: int) -> None:
    both = Both()
    found = both.server.feed(frame(1, 4, 1, BLOCK) + frame(1, 4, 3, BLOCK) + frame(8, 0, 1, growth))
    assert found[2:] == [Cancelled(1)]
    assert frame(3, 0, 1, int(code).to_bytes(4, "big")) in both.server.outgoing()
    assert both.server.feed(frame(0, 1, 1, enveloped(b"late")) + frame(8, 0, 1, growth)) == []
    assert both.server.feed(frame(0, 1, 3, enveloped(b"on"))) == [Received(3, b"on", True)]
    assert (both.server.calls, both.server.partial_bytes) == (1, 0)


def test_calls_that_a_client_has_ended_by_faults_count_as_taken_back() -> None:
    both = Both(resets_burst=2)
    rounds = (frame(1, 4, number, BLOCK) + frame(8, 0, number, WIDE) for number in range(1, 9, 2))
    with pytest.raises(ProtocolError, match="faults"):
        both.server.feed(b"".join(rounds))


def test_padding_priorities_continued_headers_and_trailers_are_understood() -> None:
    both = Both()
    padded = frame(1, 8 | 32, 1, b"\x02" + bytes(5) + BLOCK[:10] + bytes(2))
    frames = padded + frame(9, 0, 1, BLOCK[10:20]) + frame(9, 4, 1, BLOCK[20:])
    message = enveloped(b"hello")
    frames += frame(0, 8, 1, b"\x03" + message + bytes(3)) + frame(1, 5, 1, b"\x00\x01a\x01b")
    opened, received, closed = both.server.feed(frames)
    assert isinstance(opened, CallOpened)
    assert (opened.path, received, closed) == (b"/s/M", Received(1, b"hello"), HalfClosed(1))


def test_the_call_beyond_the_most_is_refused_and_the_others_go_on() -> None:
    both = Both(streams=2)
    found = both.server.feed(b"".join(frame(1, 4, number, BLOCK) for number in (1, 3, 5)))
    assert [event.stream for event in found] == [1, 3]
    assert frame(3, 0, 5, (7).to_bytes(4, "big")) in both.server.outgoing(), "REFUSED_STREAM: it may be tried again"
    assert both.server.feed(frame(0, 1, 5, enveloped(b"late"))) == []
    both.server.finish(1)
    assert [type(event) for event in both.server.feed(frame(1, 4, 7, BLOCK))] == [CallOpened]


def test_calls_count_for_all_connections_until_they_end() -> None:
    calls = OpenCalls(shared=(1, MIB))
    server = Http2Server(GrpcLimits(), Uploads(MIB), lambda: 0.0, OwnCalls(calls))
    server.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    server.feed(b"".join(frame(1, 4, number, BLOCK) for number in (1, 3, 5)))
    assert (calls.count, calls.header_bytes > 3 * 500) == (3, True), "few calls of one connection are always there"
    server.feed(frame(3, 0, 1, bytes(4)))
    server.finish(3)
    server.close()
    assert (calls.count, calls.header_bytes) == (0, 0)


def test_a_client_that_leaves_gets_the_answers_under_way() -> None:
    both = Both()
    number = both.begin()
    both.client.send_data(number, enveloped(b"last"), end_stream=True)
    ping = frame(6, 0, 0, b"12345678")  # as Java sends behind it
    found = both.server.feed(both.client.data_to_send() + frame(7, 0, 0, bytes(8)) + ping)
    assert [type(event) for event in found] == [CallOpened, Received]
    both.server.answer(number, b"answer")
    assert not both.server.ended
    assert b"answer" in both.server.outgoing()


def test_a_client_that_leaves_with_an_error_gets_nothing_more() -> None:
    both = Both()
    number = both.begin(end=True)
    both.server.feed(both.client.data_to_send() + frame(7, 0, 0, bytes(7) + b"\x01"))
    assert both.server.ended
    assert both.server.feed(frame(6, 0, 0, bytes(8))) == []
    for _ in range(2):  # what is still under way has nowhere to go
        both.server.send(number, b"late")
        both.server.finish(number)
    assert both.server.outgoing() == b""


@pytest.mark.parametrize("over", ["end", "reset", "answer"])
def test_a_message_that_waits_for_the_end_of_its_call_is_counted_until_then(over: str) -> None:
    both = Both()
    number = both.begin()
    both.client.send_data(number, enveloped(b"hello"))
    both.exchange()
    both.now = 7.0
    both.server.hold(number, 5)
    assert (both.server.partial_bytes, both.server.oldest_partial()) == (5, 7.0)
    if over == "end":
        both.client.end_stream(number)
    elif over == "reset":
        both.client.reset_stream(number)
    else:
        both.server.answer(number, b"early")
    both.exchange()
    both.server.hold(number, 5)  # too late
    assert (both.server.partial_bytes, both.server.oldest_partial()) == (0, None)
