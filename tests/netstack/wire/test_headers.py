"""Ext headers: both spellings of a send, what clients leave out, and remarks that name the field at fault."""

from typing import Any

import pytest

from netstack.errors import Refused
from netstack.wire import headers, headers_admin, headers_namesrv
from netstack.wire.ext import ExtHeader, fields_of
from netstack.wire.headers import (
    EndTransactionHeader,
    PullMessageReply,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from netstack.wire.message_headers import SendMessageReply

GENERIC = [
    header
    for module in (headers, headers_admin, headers_namesrv)
    for header in vars(module).values()
    if isinstance(header, type) and header is not ExtHeader and ExtHeader in header.__mro__
]


def test_replies_hold_text_only() -> None:
    sent = SendMessageReply("ID", 3, 42)
    assert sent.to_ext() == {
        "msgId": "ID",
        "queueId": "3",
        "queueOffset": "42",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert SendMessageReply.from_ext(sent.to_ext()) == sent
    assert PullMessageReply(0, 1, 2, 3).to_ext() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "2",
        "maxOffset": "3",
    }


def test_empty_text_is_absent_where_the_field_is_optional_and_text_where_it_is_not() -> None:
    ext = {"clientID": "c@1", "producerGroup": "", "consumerGroup": "CG", "AccessKey": ""}
    assert UnregisterClientHeader.from_ext(ext) == UnregisterClientHeader("c@1", None, "CG")
    assert UnregisterClientHeader.from_ext({"clientID": ""}).client_id == ""


def test_an_end_of_transaction_uses_the_wires_odd_names() -> None:
    end = EndTransactionHeader("PG", 5, 1000, 8, from_check=True, message_id="ID")
    assert end.to_ext() == {
        "producerGroup": "PG",
        "tranStateTableOffset": "5",
        "commitLogOffset": "1000",
        "commitOrRollback": "8",
        "fromTransactionCheck": "true",
        "msgId": "ID",
    }


def test_a_number_wider_than_javas_is_refused() -> None:
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "2147483648", "commitOffset": "1"}
    with pytest.raises(Refused, match="field queueId is '2147483648', expected a 32 bit number"):
        UpdateConsumerOffsetHeader.from_ext(ext)
    with pytest.raises(Refused, match=r"field commitOffset is '9+', expected a 64 bit number"):
        UpdateConsumerOffsetHeader.from_ext({**ext, "queueId": "1", "commitOffset": "9" * 30})


@pytest.mark.parametrize("header", GENERIC)
def test_every_header_survives_the_wire_and_names_what_is_missing(header: Any) -> None:
    samples = {"str": "text", "int": "70000000000", "bool": "true"}
    ext = {item.wire: samples.get(getattr(item.kind, "__name__", ""), "7") for item in fields_of(header)}
    assert header.from_ext(ext).to_ext() == ext
    for item in fields_of(header):
        without = {name: text for name, text in ext.items() if name != item.wire}
        if item.required:
            with pytest.raises(Refused, match=f"required field {item.wire} is missing"):
                header.from_ext(without)
        else:
            header.from_ext(without)
