"""Deterministic CBOR: one byte string for one value, and whatever else comes in is damage, never another error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.costs import peak
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.cbor import Fields, decode_map, encode_map

Leaf = st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=4), st.binary(max_size=4))

Map = st.dictionaries(st.text(max_size=4), Leaf, max_size=4)


@settings(max_examples=25)
@given(Map)
def test_what_is_encoded_is_decoded_and_in_any_order_of_keys_the_same_bytes(value: dict[str, object]) -> None:
    data = encode_map(value)
    assert decode_map(data) == value
    assert encode_map(dict(reversed(value.items()))) == data


@settings(max_examples=100)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_map_with_one_encoding_or_damage(data: bytes) -> None:
    try:
        value = decode_map(data)
    except PieceDamaged:
        return
    assert encode_map(value) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("a0 00", "trailing"),
        ("a1 6161 1800", "an integer that is longer than it must be"),
        ("a2 6162 00 6161 00", "keys out of order"),
        ("a2 6161 00 6161 01", "a key twice"),
        ("bf 6161 00 ff", "a map without end mark in front"),
        ("a1 6161 7f 6161 ff", "a text in parts"),
        ("a1 6161 f93c00", "a float"),
        ("a1 6161 c000", "a tag"),
        ("a1 6161 f5", "true"),
        ("a1 6161 f6", "null"),
        ("a1 01 00", "a key that is not a string"),
        ("80", "an array"),
        ("", "nothing"),
        ("a1 6161", "cut"),
        ("a1 6161 61ff", "no UTF-8"),
        ("a1 6161 c2410a", "a long integer"),
        ("9f" * 2000, "nested without end"),
        ("81" * 2000, "nested deep"),
        ("a1 6161 d9010082 6178 d81900", "a text and the tag that repeats it"),
        ("a1 6161 82 d81c 6178 d81d00", "a text and the tag that shares it"),
        ("bb ffffffffffffffff", "a length nobody has"),
        ("a1 6161 5b 7fffffffffffffff", "bytes nobody has"),
    ],
)
def test_what_is_not_the_one_encoding_is_damage(data: str, why: str) -> None:
    with pytest.raises(PieceDamaged):
        decode_map(bytes.fromhex(data))


def test_a_key_without_a_value_is_left_out() -> None:
    assert encode_map({"b": None, "a": 1}) == bytes.fromhex("a1616101")


@pytest.mark.parametrize("value", [True, -1, 1 << 63, "1", None, b"", 1.0])
def test_an_unsigned_integer_is_nothing_else(value: object) -> None:
    with pytest.raises(PieceDamaged, match="HELLO: x is not an integer in 0"):
        Fields({"x": value}, "HELLO").uint("x")


def test_each_getter_names_the_field_and_what_it_should_be() -> None:
    fields = Fields({"t": "t", "b": b"abc", "r": [[1, "a"]], "p": [[1, 2]], "l": ["x"]}, "W")
    assert (fields.text("t"), fields.octets("b", 3), fields.texts("l")) == ("t", b"abc", ("x",))
    assert (fields.rows("r", int, str), fields.pairs("p")) == ([[1, "a"]], [(1, 2)])
    assert (fields.uint("no", 7), fields.text("no", "d"), fields.rows("no", int), fields.texts("no")) == (
        7,
        "d",
        [],
        (),
    )
    for get, text in (
        (lambda: fields.uint("t"), "t is not an integer"),
        (lambda: fields.uint("no"), "no is not an integer"),
        (lambda: fields.text("b"), "b is not a text"),
        (lambda: fields.octets("b", 4), "b is not a byte string of 4 bytes"),
        (lambda: fields.texts("r"), "r is not an array of texts"),
        (lambda: fields.rows("t", int), "t is not an array"),
        (lambda: fields.rows("r", int), "r is not an array of 1-item arrays"),
        (lambda: fields.pairs("r"), "r is not an array of"),
        (lambda: Fields({"p": [[1, -2]]}, "W").pairs("p"), "p is not an array of"),
        (lambda: Fields({"p": [[1, True]]}, "W").pairs("p"), "p is not an array of"),
    ):
        with pytest.raises(PieceDamaged, match=f"W: {text}"):
            get()


@pytest.mark.parametrize(
    ("first", "again"), [(b"", b"\xd8\x19\x00"), (b"\xd8\x1c", b"\xd8\x1d\x00")], ids=["repeated", "shared"]
)
def test_a_text_that_tags_repeat_is_refused_before_it_is_written(first: bytes, again: bytes) -> None:
    text = first + b"\x79\x75\x30" + b"x" * 30_000
    with peak() as most, pytest.raises(PieceDamaged):
        decode_map(b"\xa1\x61a\xd9\x01\x00\x99\x27\x11" + text + again * 10_000)
    assert most() < 1 << 20
