"""Bodies of batches: what Java and others encode is taken apart again, anything else is refused whole."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.publish.send_batch import parse_batch, shared_properties, with_shared
from netstack.errors import Refused
from storage_driver.record import Part, decode_properties

MOST = 1 << 20


def encoded(parts: list[Part], *, honest: bool = True) -> bytes:
    """Return the body as clients make it; Java fills neither magic nor CRC."""
    out = b""
    for flag, body, properties in parts:
        size = 22 + len(body) + len(properties)
        magic, crc = (0xDAA320A7 - (1 << 32), zlib.crc32(body) & 0x7FFFFFFF) if honest else (0, 0)
        out += struct.pack(">iiiii", size, magic, crc, flag, len(body)) + body
        out += struct.pack(">H", len(properties)) + properties
    return out


def rows(raw: bytes) -> list[Part]:
    return list(zip(*parse_batch(raw, MOST), strict=True))


parts_of = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), st.binary(max_size=40)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(parts_of, st.booleans())
def test_what_was_put_together_is_taken_apart(parts: list[Part], honest: bool) -> None:
    assert rows(encoded(parts, honest=honest)) == parts


def test_messages_of_one_length_are_read_as_any_others_are() -> None:
    parts: list[Part] = [(number, b"body%d" % number, b"k\x01%d" % number) for number in range(3)]
    raw = encoded(parts, honest=False)
    size = len(raw) // 3
    for at in range(size, size + 20):  # the head of the second
        changed = bytearray(raw)
        changed[at] ^= 1
        if size + 4 <= at < size + 12:  # magic and CRC
            assert rows(bytes(changed)) == parts
        elif size + 12 <= at < size + 16:
            flag = 1 ^ 1 << 8 * (size + 15 - at)
            assert rows(bytes(changed)) == [parts[0], (flag, *parts[1][1:]), parts[2]]
        else:
            with pytest.raises(Refused, match="message 1"):
                parse_batch(bytes(changed), MOST)
    longer = [*parts, (9, b"b" * (2 * size - 22), b"")]  # as long as two of the others
    assert rows(encoded(longer)) == longer


@settings(max_examples=60)
@given(parts_of, st.data())
def test_a_changed_body_is_refused_or_is_another_batch_that_encodes_to_it(
    parts: list[Part], pick: st.DataObject
) -> None:
    raw = bytearray(encoded(parts, honest=False))
    raw[pick.draw(st.integers(0, len(raw) - 1))] ^= 1 << pick.draw(st.integers(0, 7))
    cut = bytes(raw[: pick.draw(st.integers(0, len(raw)))])
    for body in (bytes(raw), cut, cut + b"\0"):
        try:
            found = rows(body)
        except Refused as exc:
            code = exc.code
        else:
            code = 13
            again = encoded(found, honest=False)
            assert len(again) == len(body)
            assert rows(again) == found
        assert code == 13


def one(size: int, body_length: int, rest: bytes) -> bytes:
    return struct.pack(">iiiii", size, 0, 0, 0, body_length) + rest


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "the batch is empty"),
        (bytes(21), "21 bytes after message 0"),
        (one(22, 0, b"\0\0") + b"\0", "1 bytes after message 1"),
        (one(22, -1, b"\0\0\0"), "message 0 has body length -1"),
        (one(22, -(1 << 31), b"\0\0"), "body length -2147483648"),
        (one(22, (1 << 31) - 1, b"\0\0"), "body length 2147483647"),
        (one(23, 1, b"\0\0"), "body length 1"),
        (one(21, 0, b"\0\0"), "says 21 bytes, its parts have 22"),
        (one(23, 0, b"\0\0\0"), "says 23 bytes, its parts have 22"),
        (one(22, 0, b"\0\1"), "says 22 bytes, its parts have 23"),
        (one(22 + 65535, 0, b"\xff\xff"), "its parts have 65557"),
    ],
)
def test_a_body_that_is_not_whole_messages_is_refused_and_the_reason_says_where(raw: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        parse_batch(raw, MOST)
    assert refused.value.code == 13


def test_the_size_of_the_whole_batch_is_limited_to_the_byte() -> None:
    raw = encoded([(0, b"x" * 100, b""), (0, b"y", b"")])
    assert len(parse_batch(raw, len(raw)).flags) == 2
    with pytest.raises(Refused, match=f"the batch has {len(raw)} bytes, allowed {len(raw) - 1}"):
        parse_batch(raw, len(raw) - 1)


def test_a_message_keeps_its_own_properties_and_gets_those_of_the_batch_but_its_key() -> None:
    shared = shared_properties("A\x01batch\x02B\x01batch\x02WAIT\x01true\x02UNIQ_KEY\x01U\x02")
    assert shared == {"A": "batch", "B": "batch"}
    both = decode_properties(with_shared(b"UNIQ_KEY\x01mine\x02A\x01own\x02", shared))
    assert both == {"UNIQ_KEY": "mine", "A": "own", "B": "batch"}
    assert decode_properties(with_shared(b"", shared)) == shared
