"""Floods of HTTP/2 frames are seen at the heads of the frames."""

from typing import Any

import pytest

from netstack.errors import ProtocolError
from netstack.grpc.frame_gate import MAX_FRAME, PREFACE, Allowance, FrameGate
from netstack.grpc.limits import GrpcLimits

DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9


def head(kind: int, size: int = 0, flags: int = 0, stream: int = 1) -> bytes:
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + bytes(size)


def gate(**limits: Any) -> FrameGate:
    made = FrameGate(GrpcLimits()._replace(**limits), 0.0)
    made.check(PREFACE, 0.0)
    return made


def test_frames_may_begin_and_end_anywhere() -> None:
    data = PREFACE + head(SETTINGS, 6) + head(HEADERS, 300, 4) + head(DATA, 700, 1) + head(PING, 8)
    for size in (1, 2, 3, 7, 9, 10, 64, 5000):
        made = FrameGate(GrpcLimits(), 0.0)
        for at in range(0, len(data), size):
            made.check(data[at : at + size], 0.0)
        assert made.frames == 4


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n", "no HTTP/2: the connection begins with b'GET"),
        (b"\x16\x03\x01\x05\xa0\x01", "a TLS greeting, but this port has no certificate or TLS is off"),
        (b"\0\0\0\xf0\0\0\0\xe0{", "remoting, but this port speaks gRPC"),
    ],
)
def test_what_is_no_http2_ends_at_its_first_bytes_and_is_named(sent: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        FrameGate(GrpcLimits(), 0.0).check(sent, 0.0)


@pytest.mark.parametrize("kind", [PRIORITY, SETTINGS, PING, WINDOW, DATA, 0x55])
def test_frames_that_carry_nothing_are_counted(kind: int) -> None:
    made = gate(control_burst=20, control_per_s=10)
    made.check(head(kind) * 20, 0.0)
    with pytest.raises(ProtocolError, match="carry nothing"):
        made.check(head(kind), 0.0)


def test_time_and_answers_allow_more_of_them() -> None:
    made = gate(control_burst=20, control_per_s=10, control_per_frame=4)
    made.check(head(PING, 8) * 20, 0.0)
    made.check(head(PING, 8) * 10, 1.0)
    made.sent(3)
    made.check(head(PING, 8) * 12, 1.0)
    with pytest.raises(ProtocolError):
        made.check(head(PING, 8), 1.0)


def test_rapid_reset_ends_the_connection() -> None:
    made = gate(resets_burst=10, resets_per_s=1)
    made.check((head(HEADERS, 30, 5) + head(RST, 4)) * 10, 0.0)
    with pytest.raises(ProtocolError, match="rapid reset"):
        made.check(head(HEADERS, 30, 5) + head(RST, 4), 0.0)


def test_headers_without_end_are_stopped_before_they_are_kept() -> None:
    made = gate(header_bytes=16_384)
    made.check(head(HEADERS, 8000), 0.0)
    made.check(head(CONTINUATION, 8000), 0.0)
    with pytest.raises(ProtocolError, match="headers"):
        made.check(head(CONTINUATION, 8000), 0.0)


def test_empty_continuations_are_counted() -> None:
    made = gate(control_burst=20, control_per_s=0)
    with pytest.raises(ProtocolError, match="headers"):
        made.check(head(HEADERS, 10) + head(CONTINUATION) * 21, 0.0)


def test_a_frame_above_what_was_offered_is_refused_at_its_head() -> None:
    with pytest.raises(ProtocolError, match="at most 16384"):
        gate().check((MAX_FRAME + 1).to_bytes(3, "big") + b"\x00\x00\x00\x00\x00\x01", 0.0)


def test_data_in_tiny_pieces_is_counted_but_not_the_end_of_a_message() -> None:
    made = gate(control_burst=5, control_per_s=0)
    made.check(head(DATA, 3, 1) * 50, 0.0)
    with pytest.raises(ProtocolError, match="tiny"):
        made.check(head(DATA, 1) * 6, 0.0)


def test_an_allowance_never_saves_more_than_its_burst() -> None:
    allowance = Allowance(3, 100.0, 0.0)
    assert [allowance.take(60.0) for _ in range(4)] == [True, True, True, False]
