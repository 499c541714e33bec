"""Java's hashes and orders, property text, legal names."""

import pytest

from netstack.client.errors import MessageRejected, UsageError
from netstack.client.text import (
    check_group,
    check_topic,
    code_units,
    decode_properties,
    encode_properties,
    hashed_position,
    java_hash,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_smallest_number_counts_as_zero_when_a_queue_is_picked() -> None:
    assert hashed_position("polygenelubricants", 7) == 0
    assert hashed_position("hello", 7) == 99162322 % 7


def test_text_is_ordered_by_code_unit() -> None:
    assert sorted(["\uffee", "😀", "a"], key=code_units) == ["a", "😀", "\uffee"]


def test_properties_go_and_come_back() -> None:
    properties = {"TAGS": "a", "empty": "", "ü": "中"}
    text = encode_properties(properties)
    assert text == "TAGS\x01a\x02empty\x01\x02ü\x01中\x02"
    assert decode_properties(text) == properties
    assert decode_properties("K\x01V\x02broken\x02L\x01W") == {"K": "V", "L": "W"}


def test_a_separator_inside_a_property_is_refused_with_its_name() -> None:
    with pytest.raises(MessageRejected, match="'mine'"):
        encode_properties({"fine": "x", "mine": "a\x02b"})


@pytest.mark.parametrize("topic", ["", " ", "a b", "ä", "x" * 128, "SCHEDULE_TOPIC_XXXX"])
def test_an_illegal_topic_is_rejected(topic: str) -> None:
    with pytest.raises(MessageRejected):
        check_topic(topic)


def test_an_illegal_group_is_refused() -> None:
    check_group("my-group_1")
    for group in ("", "a b", "DEFAULT_CONSUMER", "x" * 256):
        with pytest.raises(UsageError):
            check_group(group)
