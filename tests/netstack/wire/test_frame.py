"""Frames: cut from any split of the bytes, limits enforced on the first bytes."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.errors import ProtocolError
from netstack.wire.frame import MAX_FRAME, Frame, FrameDecoder, encode_frame

frames = st.builds(Frame, st.sampled_from([0, 1]), st.binary(max_size=300), st.binary(max_size=2000))


def decoded(decoder: FrameDecoder) -> list[Frame]:
    found = []
    while (frame := decoder.next_frame()) is not None:
        found.append(frame)
    return found


@pytest.mark.slow
@given(st.lists(frames, max_size=6), st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(*frame.astuple()) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder, received = FrameDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        if data.draw(st.booleans(), "asked before more comes"):
            received += decoded(decoder)
    received += decoded(decoder)
    assert received == sent
    assert decoder.buffered == 0


def test_single_bytes_build_a_frame() -> None:
    sent = Frame(1, b"header", b"body")
    decoder = FrameDecoder()
    for byte in encode_frame(*sent.astuple()):
        assert decoder.next_frame() is None
        decoder.feed(bytes([byte]))
    assert decoder.next_frame() == sent


def test_feeding_twice_before_asking_loses_nothing() -> None:
    decoder = FrameDecoder()
    for number in range(5):
        decoder.feed(encode_frame(0, b"h%d" % number, b""))
    assert [frame.header for frame in decoded(decoder)] == [b"h0", b"h1", b"h2", b"h3", b"h4"]


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("00000003", "frame length 3, allowed 4..16777212"),
        ("ffffffff", "frame length -1,"),
        ("7fffffff", "frame length 2147483647,"),
        ("16030100", "a TLS greeting"),
        (b"GET ".hex(), "an HTTP request"),
        (b"OPTIONS / HTTP/1.1".hex(), "an HTTP request"),
        (b"PRI * HTTP/2.0".hex(), "HTTP/2, .* gRPC"),
        ("00fffffd", "frame length 16777213,"),
        ("0000000402000000", "header type 2 in mark 0x02000000"),
        ("0000000800000005", "header of 5 bytes in a frame of length 8"),
        ("0010000000040001", "header of 262145 bytes, limit 262144"),
    ],
)
def test_a_wrong_start_is_refused_before_the_rest_arrives(start: str, says: str) -> None:
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex(start))
    with pytest.raises(ProtocolError, match=says):
        decoder.next_frame()


def test_the_largest_frame_is_waited_for_and_delivered() -> None:
    body = bytes(MAX_FRAME - 8 - 2)
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex("00fffffc00000002"))
    assert decoder.next_frame() is None
    decoder.feed(b"{}")
    for at in range(0, len(body), 65536):
        decoder.feed(body[at : at + 65536])
    frame = decoder.next_frame()
    assert frame is not None
    assert (frame.header, frame.body) == (b"{}", body)


def test_an_announced_length_reserves_no_memory() -> None:
    tracemalloc.start()
    decoders = [FrameDecoder() for _ in range(100)]
    for decoder in decoders:
        decoder.feed(bytes.fromhex("00fffffc00000002"))
        decoder.next_frame()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_bytes_give_frames_or_a_protocol_error(pieces: list[bytes]) -> None:
    decoder = FrameDecoder(max_frame=256, max_header=64)
    try:
        for piece in pieces:
            decoder.feed(piece)
            decoded(decoder)
            assert decoder.buffered <= 256 + 60
    except ProtocolError:
        pass
