"""Frames: golden HELLO and RECEIPT, lengths judged from five bytes, every type read back, malformed bodies refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink_spark.errors import ProtocolError
from uplink_spark.wire import frames
from uplink_spark.wire.frames import FrameType, Hello, Receipt, ReceiptRow, Welcome

HELLO = bytes.fromhex(
    "0000006501a961768201016273776f726f636b6574626f7820312e302e3063626f7866626f782d313763636c6b01636e6f771b0000018bcfe56a586472756e73818207006566697273740067"
    "64757261626c651861676c696e6561676581821b0123456789abcdef00"
)
RECEIPT = bytes.fromhex(
    "0000004204a3617281860000186158209639ee636d06c3699b557a798594a54a0afc740e283fca336305afc1edfaef530000636e6f771b0000018bcfe56abc65736861726400"
)
SHA = bytes.fromhex("9639ee636d06c3699b557a798594a54a0afc740e283fca336305afc1edfaef53")


def test_the_golden_hello_comes_out_and_reads_back() -> None:
    hello = Hello("box-17", ((0x0123456789ABCDEF, 0),), ((7, 0),), 0, 97, 0x18BCFE56A58, 1, "rocketbox 1.0.0")
    assert hello.encode() == HELLO
    assert frames.decode_hello(HELLO[5:]) == hello


def test_a_box_tells_which_zone_it_knows_and_its_newest_receipt_there() -> None:
    hello = Hello("box-17", ((5, 0),), ((7, 0),), 0, 97, 9, 1, "t", landing=bytes(range(16)), receipt=(3, 88_213))
    assert frames.decode_hello(hello.encode()[5:]) == hello
    for wrong in (replace(hello, landing=bytes(15)), replace(hello, receipt=(-1, 0))):
        with pytest.raises(ProtocolError, match="HELLO"):
            frames.decode_hello(wrong.encode()[5:])


def test_the_golden_receipt_comes_out_and_reads_back() -> None:
    receipt = Receipt(0, (ReceiptRow(0, 0, 97, SHA, 0, 0),), 0x18BCFE56ABC)
    assert receipt.encode() == RECEIPT
    assert frames.decode_receipt(RECEIPT[5:]) == receipt


def test_the_frame_of_the_golden_piece_begins_as_written() -> None:
    assert frames.encode_frame(FrameType.PIECE, bytes(313))[:5].hex() == "0000013a03"


def test_the_other_frames_read_back_as_written() -> None:
    welcome = Welcome(bytes(16), ((5, 0, 10), (5, 20, 30)), (), (5, 0, 10, SHA), 1 << 25, 64, ("zstd",), 0, 99)
    assert frames.decode_welcome(welcome.encode()[5:]) == welcome
    fault = frames.ErrorFrame("diverged", "fork", fork=80)
    assert frames.decode_fault(fault.encode()[5:]) == fault
    refusal = frames.Refusal(3, "damaged", "crc", 0)
    assert frames.decode_refused(refusal.encode()[5:]) == refusal
    window = frames.Window(0, 100, 5000)
    assert frames.decode_window(window.encode()[5:]) == window
    status = frames.Status(1, 2, 3, 4, 5, 6, "clean", "rocketbox", 7, 1, "degraded", ("disk_filling: 87%", "x"))
    assert frames.decode_status(status.encode()[5:]) == status
    assert frames.decode_ping(frames.encode_ping(FrameType.PING, 9)[5:]) == 9


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("8000000003", "length 2147483648"),
        ("0000000001", "length 0"),
        ("0001000101", "length 65537"),
        ("0001000105", "length 65537"),
        ("474554200a", "allowed"),  # "GET "
        ("0000000510", "type 0x10 is not known"),
        ("0000000580", "type 0x80 is not known"),
        ("0000000500", "type 0x00 is not known"),
    ],
)
def test_a_bad_head_is_refused_before_anything_is_read(head: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        frames.read_frame_head(bytes.fromhex(head), pieces=True)


def test_a_piece_before_welcome_has_the_small_limit() -> None:
    head = frames.FRAME_HEAD.pack(1 << 20, FrameType.PIECE)
    assert frames.read_frame_head(head, pieces=True) == (3, (1 << 20) - 1)
    with pytest.raises(ProtocolError):
        frames.read_frame_head(head, pieces=False)


def test_unknown_types_from_40_to_7f_pass() -> None:
    assert frames.read_frame_head(bytes.fromhex("0000000540"), pieces=True) == (0x40, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"lineage": ()},
        {"runs": ()},
        {"lineage": ((1, 5), (2, 3))},
        {"runs": ((1, 0), (1, 5))},
        {"first": 98},
        {"runs": ((0, 0),)},
    ],
)
def test_a_hello_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    values: dict[str, object] = {"lineage": ((5, 0),), "runs": ((7, 0),), "first": 0} | change
    hello = Hello("b", values["lineage"], values["runs"], values["first"], 97, 1, 1, "x")  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        frames.decode_hello(hello.encode()[5:])


def test_have_out_of_order_is_refused() -> None:
    for have in (((5, 20, 30), (5, 0, 10)), ((5, 0, 10), (5, 10, 20)), ((5, 3, 3),)):
        welcome = Welcome(bytes(16), have, (), None, 1, 1, (), 0, 1)
        with pytest.raises(ProtocolError, match="out of order"):
            frames.decode_welcome(welcome.encode()[5:])


DECODERS = (
    frames.decode_hello,
    frames.decode_welcome,
    frames.decode_receipt,
    frames.decode_refused,
    frames.decode_window,
    frames.decode_status,
    frames.decode_ping,
    frames.decode_fault,
)


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_any_bytes_are_a_frame_or_a_protocol_error(body: bytes, decode: object) -> None:
    try:
        decode(body)  # type: ignore[operator]
    except ProtocolError:
        pass


@given(st.integers(0, len(HELLO) - 6), st.integers(1, 255))
def test_a_mutated_hello_is_a_hello_or_a_protocol_error(at: int, flip: int) -> None:
    body = bytearray(HELLO[5:])
    body[at] ^= flip
    try:
        frames.decode_hello(bytes(body))
    except ProtocolError:
        pass
