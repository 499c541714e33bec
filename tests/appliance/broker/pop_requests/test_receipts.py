"""Handles and info strings, as RocketMQ's ExtraInfoUtil makes and reads them."""

import pytest

from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import PopSlice
from appliance.broker.pop_requests.receipts import (
    MOST_BITS,
    PopReceipt,
    message_offset_info,
    offsets_of,
    order_count_info,
    read_receipt,
    start_offset_info,
)
from storage_driver.record import MessageQueue

RECEIPT = PopReceipt(100, 1_700_000_000_000, 60_000, 0, TopicKind.RETRY, 3, 104)
TEXT = "100 1700000000000 60000 0 1 box 3 104"
SLICES = [
    PopSlice(TopicKind.NORMAL, MessageQueue("T", 3), [], [100, 101, 104], [2, 2, 1], 0),
    PopSlice(TopicKind.RETRY, MessageQueue("%RETRY%G_T", 0), [], [7], [0], 0),
]


def test_a_handle_is_read_as_it_was_written_also_with_the_field_of_a_proxy() -> None:
    assert RECEIPT.text("box") == TEXT
    assert read_receipt(TEXT) == read_receipt(TEXT + " 99887") == RECEIPT


@pytest.mark.parametrize("text", ["", "1 2 3", TEXT.replace("104", "x"), TEXT.replace(" 1 box", " 7 box")])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_receipt(text)


def test_the_strings_from_which_a_client_makes_handles() -> None:
    assert start_offset_info(SLICES) == "0 3 100;1 0 7"
    assert message_offset_info(SLICES) == "0 3 100,101,104;1 0 7"
    assert order_count_info(SLICES[:1]) == "0 qo3%100 2;0 qo3%101 2;0 qo3%104 1;0 3 1"


@pytest.mark.parametrize(
    ("bits", "expected"),
    [("BQI=", [100, 102, 109]), ("", []), ("////////////////Dw==", list(range(100, 200)))],
)
def test_a_bit_set_of_java_names_offsets(bits: str, expected: list[int]) -> None:
    assert list(offsets_of(100, bits)) == expected


def test_a_bit_set_that_is_too_long_or_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        list(offsets_of(0, "A" * MOST_BITS))
    with pytest.raises(ValueError, match="bits"):
        list(offsets_of(0, "%%%%"))
