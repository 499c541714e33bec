import zlib

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioning.frame import SerialFrameDecoder, decode_piece, encode_frame
from tests.costs import peak

GOLDEN = [
    ([1, 1, "identify", {}], "c0840101686964656e74696679a096a062bdc0"),
    (
        [2, 1, {"proto": 1, "serial": "RBX-0007"}],
        "c0830201a26570726f746f016673657269616c685242582d303030370b0bbdf3c0",
    ),
    ([4, 3, 65536, bytes.fromhex("c0db0041")], "c08404031a0001000044dbdcdbdd0041525cfe9ac0"),
    ([5, 3, 65540, 8], "c08405031a0001000408d4fe5abac0"),
    (
        [3, 9, "E203", "not the owner of this box", {}],
        "c0850309644532303378196e6f7420746865206f776e6572206f66207468697320626f78a0a84b02c5c0",
    ),
]


@pytest.mark.parametrize(("message", "frame"), GOLDEN)
def test_the_golden_frames_are_made_and_read(message: list[object], frame: str) -> None:
    assert encode_frame(message).hex() == frame
    assert SerialFrameDecoder().feed(bytes.fromhex(frame)) == [message]


@given(st.lists(st.binary(max_size=600), max_size=5), st.integers(1, 400))
def test_any_split_of_the_bytes_gives_the_same_messages(blobs: list[bytes], step: int) -> None:
    messages = [[4, 1, at, blob] for at, blob in enumerate(blobs)]
    line = b"".join(map(encode_frame, messages))
    decoder, found = SerialFrameDecoder(), []
    for at in range(0, len(line), step):
        found += decoder.feed(line[at : at + step])
    assert (found, decoder.dropped) == (messages, 0)


@given(st.text(max_size=300), st.text(max_size=300))
def test_console_text_around_a_frame_does_no_harm(before: str, after: str) -> None:
    decoder = SerialFrameDecoder()
    message = [5, 1, 2, 3]
    assert decoder.feed(before.encode() + encode_frame(message) + after.encode() + b"\xc0") == [message]


@given(st.binary(max_size=3000))
def test_noise_never_raises_and_never_makes_a_message(noise: bytes) -> None:
    assert SerialFrameDecoder().feed(noise + b"\xc0") == []


@given(st.integers(0, 1000), st.integers(0, 7))
def test_a_flipped_bit_never_makes_another_message(at: int, bit: int) -> None:
    message = [2, 7, {"text": "x" * 20, "bytes": b"\xc0\xdb\x00"}]
    frame = bytearray(encode_frame(message))
    frame[at % len(frame)] ^= 1 << bit
    assert SerialFrameDecoder().feed(bytes(frame) + b"\xc0") in ([], [message])


def piece(item: bytes) -> bytes:
    payload = item + zlib.crc32(item).to_bytes(4, "big")
    return payload.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")


@pytest.mark.parametrize(
    "item",
    [
        cbor2.dumps([7, 1]),
        cbor2.dumps([1, 0, "op", {}]),
        cbor2.dumps([1, 1 << 32, "op", {}]),
        cbor2.dumps([1, True, "op", {}]),
        cbor2.dumps([1, 1, "op"]),
        cbor2.dumps([1, 1, "x" * 1025, {}]),
        cbor2.dumps([1, 1, "op", {"text": "x" * 1025}]),
        cbor2.dumps([1, 1, "op", {1: 2}]),
        cbor2.dumps([1, 1, "op", {"tag": cbor2.CBORTag(1, 0)}]),
        cbor2.dumps([1, 1, "op", {"a": [[[[[[1]]]]]]}]),
        bytes.fromhex("9f0101626f70a0ff"),  # indefinite length
        bytes.fromhex("84011801626f70a0"),  # 1 in two bytes: not canonical
        bytes.fromhex("840101626f70a2616101616102"),  # the same key twice
        cbor2.dumps({"a": 1}),
        cbor2.dumps([1, 1, "op", {}]) + b"\x00",
        b"",
    ],
)
def test_items_that_are_none_of_the_six_messages_are_dropped(item: bytes) -> None:
    assert decode_piece(piece(item)) is None


@pytest.mark.parametrize("wire", [b"\xdb", b"abc\xdbx", b"abcdef\xdb"])
def test_bad_escapes_are_dropped(wire: bytes) -> None:
    assert decode_piece(wire) is None


def test_a_piece_over_8_kib_is_dropped_once_and_the_next_frame_is_read() -> None:
    decoder, message = SerialFrameDecoder(), [5, 1, 2, 3]
    for _ in range(10):
        assert decoder.feed(b"x" * 3000) == []
    assert decoder.feed(encode_frame(message)) == [message]
    assert (decoder.received, decoder.dropped) == (1, 1)


def test_dropped_and_received_frames_are_counted() -> None:
    decoder = SerialFrameDecoder()
    good = encode_frame([5, 1, 2, 3])
    decoder.feed(good + good[:-3] + b"\xc0" + b"\xc0\xc0" + good)
    assert (decoder.received, decoder.dropped) == (2, 1)


def test_bytes_that_a_tag_repeats_are_dropped_before_they_are_written() -> None:
    repeated = b"\xd9\x01\x00\x99\x05\x15" + b"\x59\x0f\xa0" + b"x" * 4000 + b"\xd8\x19\x00" * 1300
    item = b"\x84\x01\x01\x61x\xa1\x61a" + repeated
    with peak() as most:
        assert decode_piece(item + zlib.crc32(item).to_bytes(4, "big")) is None
    assert most() < 1 << 20
