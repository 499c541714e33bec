"""Messages and batches that an application sends."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netstack.client.errors import MessageRejected
from netstack.client.messages import (
    Message,
    check_batch,
    check_message,
    encode_batch,
    properties_text,
    split_batch,
)


def test_a_batch_has_the_layout_of_java() -> None:
    first = Message("T", b"A", properties={"K": "V"})
    head = encode_batch([(first, "ID")])
    assert head[4:21] == bytes(12) + bytes.fromhex("0000000141")  # magic, CRC, flag, length of the body, body
    size, properties = int.from_bytes(head[:4], "big"), head[23:]
    assert size == len(head) == 22 + 1 + len(properties)
    assert int.from_bytes(head[21:23], "big") == len(properties)
    assert properties == b"UNIQ_KEY\x01ID\x02WAIT\x01true\x02K\x01V\x02"


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b""),
        Message("", b"x"),
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("T", b"x", delay_level=1, delay_ms=5),
        Message("T", b"x", delay_ms=-5),
    ],
)
def test_what_brokers_would_refuse_never_leaves(message: Message) -> None:
    with pytest.raises(MessageRejected):
        check_message(message)


@pytest.mark.parametrize(
    "second", [Message("U", b"x"), Message("T", b"x", delay_level=1), Message("T", b"x", wait_stored=False)]
)
def test_a_batch_of_unequal_messages_is_refused(second: Message) -> None:
    with pytest.raises(MessageRejected):
        check_batch([Message("T", b"x"), second])
    with pytest.raises(MessageRejected):
        check_batch([])
    with pytest.raises(MessageRejected):
        check_batch([Message("%RETRY%g", b"x")])


def test_a_batch_is_split_below_the_limit_and_an_oversized_message_goes_alone() -> None:
    messages = [Message("T", bytes([65 + at]) * size) for at, size in enumerate((300, 300, 2000, 300))]
    lots = list(split_batch(messages, 1000))
    assert [len(lot) for lot in lots] == [2, 1, 1]
    assert [message for lot in lots for message in lot] == messages


plain = st.characters(exclude_characters="\x01\x02")
messages_of = st.lists(
    st.builds(
        Message,
        st.just("T"),
        st.binary(min_size=1, max_size=300),
        st.text(plain, max_size=5),
        st.text(plain, max_size=9),
        st.dictionaries(st.text(plain, min_size=1, max_size=4), st.text(plain, max_size=30), max_size=6),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25)
@given(messages_of, st.integers(1, 2000))
def test_lots_hold_all_messages_in_order_and_none_of_more_than_one_is_above_the_limit(
    messages: list[Message], limit: int
) -> None:
    lots = list(split_batch(messages, limit))
    assert [message for lot in lots for message in lot] == messages
    for lot in lots:
        assert lot
        assert len(lot) == 1 or len(encode_batch([(message, "0" * 32) for message in lot])) <= limit


@settings(max_examples=25)
@given(messages_of)
def test_a_broker_takes_a_batch_apart_into_what_was_put_in(messages: list[Message]) -> None:
    raw, at = encode_batch([(message, f"ID{n}") for n, message in enumerate(messages)]), 0
    for number, message in enumerate(messages):
        size, _, _, flag, length = struct.unpack_from(">iiiii", raw, at)
        assert (flag, raw[at + 20 : at + 20 + length]) == (message.flag, message.body)
        (named,) = struct.unpack_from(">H", raw, at + 20 + length)
        assert size == 22 + length + named
        text = raw[at + size - named : at + size].decode("utf-8", "replace")
        assert text == properties_text(message.property_map(f"ID{number}")).encode("utf-8", "replace").decode()
        at += size
    assert at == len(raw)


def test_all_that_a_message_says_travels_and_its_own_properties_win() -> None:
    full = Message("T", b"x", "tag", "k1 k2", {"A": "b", "TAGS": "mine"}, wait_stored=False, delay_level=3)
    assert full.property_map("ID") == {
        "UNIQ_KEY": "ID",
        "WAIT": "false",
        "TAGS": "mine",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "A": "b",
    }
    assert Message("T", b"x", delay_ms=5).property_map("I")["TIMER_DELAY_MS"] == "5"
    assert Message("T", b"x", deliver_at_ms=5).property_map("I")["TIMER_DELIVER_MS"] == "5"


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"delay_ms": 1}, {"deliver_at_ms": 1}])
def test_one_delay_is_allowed_and_two_are_not(delay: dict[str, int]) -> None:
    check_message(Message("T", b"x", **delay))  # type: ignore[arg-type]
    assert Message("T", b"x", **delay).is_delayed  # type: ignore[arg-type]
    other = "delay_ms" if "delay_ms" not in delay else "delay_level"
    with pytest.raises(MessageRejected, match="exclude one another"):
        check_message(Message("T", b"x", **delay, **{other: 1}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_delay_hidden_in_the_properties_is_one_and_keeps_a_message_out_of_batches(name: str) -> None:
    hidden = Message("T", b"x", properties={name: "1"})
    assert hidden.is_delayed
    with pytest.raises(MessageRejected, match="delayed"):
        check_batch([Message("T", b"x"), hidden])


def test_the_largest_body_leaves_and_one_byte_more_does_not() -> None:
    check_message(Message("T", b"x" * 100), 100)
    with pytest.raises(MessageRejected, match="body of 101 bytes, at most 100 are allowed"):
        check_message(Message("T", b"x" * 101), 100)


@pytest.mark.parametrize(("length", "legal"), [(32767 - 3, True), (32768 - 3, False)])
def test_properties_are_measured_in_bytes(length: int, legal: bool) -> None:
    text = {"k": "x" * length}
    if legal:
        assert len(properties_text(text)) == 32767
    else:
        with pytest.raises(MessageRejected, match="brokers store 32767 bytes"):
            properties_text(text)
    with pytest.raises(MessageRejected):
        properties_text({"k": "\u4e2d" * (length // 3 + 2)})
