"""Frames of the link: golden bytes, every cut, and what no member sends."""

import pytest

from appliance.group.links.frames import (
    HEAD,
    HELLO,
    MOST_BYTES,
    MOST_PARTS,
    PING,
    WELCOME,
    LinkFrame,
    LinkFrameDecoder,
    LinkPing,
    LinkRefused,
    MemberHello,
    decode_hello,
    decode_ping,
    decode_refused,
    encode_frame,
)
from uplink_spark.errors import ProtocolError

WITH_BYTES = 0x18
GREETING = MemberHello("press", "a", b"session8", 1 << 28, ((5, 0),), ((7, 0), (8, 96)), ((1, 96),), 0, 200)


def decoder(most_record_bytes: int = 1000) -> LinkFrameDecoder:
    return LinkFrameDecoder(most_record_bytes=most_record_bytes, with_bytes=frozenset({WITH_BYTES}))


def test_a_frame_has_these_bytes() -> None:
    frame = encode_frame(WITH_BYTES, {"t": 7}, b"bytes")
    assert frame.hex(" ") == "00 00 00 0c 18 00 04 a1 61 74 07 62 79 74 65 73"
    assert decoder().feed(frame) == [LinkFrame(WITH_BYTES, b"\xa1at\x07", b"bytes")]


def test_frames_come_whole_however_they_are_cut() -> None:
    frames = [GREETING.encode(HELLO), encode_frame(WITH_BYTES, {}, b"x" * 3000), LinkPing(1, 2).encode(PING)]
    data = b"".join(frames)
    for size in (1, 2, 7, 100, len(data)):
        reading, found = decoder(), list[LinkFrame]()
        for at in range(0, len(data), size):
            found += reading.feed(data[at : at + size])
        assert [frame.kind for frame in found] == [HELLO, WITH_BYTES, PING]
        assert found[1].data == b"x" * 3000


def test_a_frame_in_thousands_of_parts_takes_little_more_memory_than_its_bytes() -> None:
    reading, frame = decoder(), encode_frame(WITH_BYTES, {}, bytes(100_000))
    for at in range(len(frame) - 1):
        assert reading.feed(frame[at : at + 1]) == []
        assert len(reading._parts) <= MOST_PARTS + 1
    assert reading.feed(frame[-1:] + LinkPing(1, 2).encode(PING)) == [
        LinkFrame(WITH_BYTES, b"\xa0", bytes(100_000)),
        LinkFrame(PING, LinkPing(1, 2).encode(PING)[HEAD.size :]),
    ]


@pytest.mark.parametrize("kind", [HELLO, WELCOME])
def test_a_greeting_comes_back_as_it_was(kind: int) -> None:
    [frame] = decoder().feed(GREETING.encode(kind))
    assert decode_hello(frame) == GREETING


def test_refusals_and_pings_come_back_as_they_were() -> None:
    refused, ping = LinkRefused("differs", "another log", 30_000), LinkPing(123, 456)
    [first, second] = decoder().feed(refused.encode() + ping.encode(PING))
    assert (decode_refused(first), decode_ping(second)) == (refused, ping)


@pytest.mark.parametrize(
    "head",
    [
        HEAD.pack(2, WITH_BYTES, 0),  # shorter than type and head length
        HEAD.pack(10, WITH_BYTES, 8),  # the head is longer than the frame
        HEAD.pack(3 + MOST_BYTES + 1001, WITH_BYTES, 0),
        HEAD.pack(4, HELLO, 0),  # bytes behind a head that has none
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_lengths_that_no_member_sends_are_refused_before_the_body_comes(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not a member's"):
        decoder().feed(head)


def test_a_head_is_the_one_encoding_of_its_values() -> None:
    for head in (b"\xa1at\x18\x07", b"\xa2at\x07at\x07", b"\x80", b"\xa1at\xfb" + bytes(8), b"\xff"):
        with pytest.raises(ProtocolError):
            decode_ping(LinkFrame(PING, head))


@pytest.mark.parametrize(
    "changed",
    [
        GREETING._replace(first=201),
        GREETING._replace(terms=((1, 96), (2, 50))),
        GREETING._replace(session=b"short"),
    ],
)
def test_a_greeting_that_contradicts_itself_is_refused(changed: MemberHello) -> None:
    [frame] = decoder().feed(changed.encode(HELLO))
    with pytest.raises(ProtocolError, match="HELLO"):
        decode_hello(frame)


def test_the_largest_greeting_fits_a_head() -> None:
    rows = tuple((1 << 62, (1 << 62) + at) for at in range(5000))
    terms = tuple((at, (1 << 40) + at) for at in range(5000))
    [frame] = decoder().feed(GREETING._replace(epochs=rows[:16], runs=rows, terms=terms).encode(HELLO))
    assert decode_hello(frame).terms == terms[-1024:]


def test_a_member_that_takes_clients_of_others_says_so_and_one_of_an_older_version_does_not() -> None:
    [plain] = decoder().feed(GREETING.encode(HELLO))
    assert b"relays" not in plain.head
    assert not decode_hello(plain).relays
    [frame] = decoder().feed(GREETING._replace(relays=True).encode(WELCOME))
    assert decode_hello(frame) == GREETING._replace(relays=True)
