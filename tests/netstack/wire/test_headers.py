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
from netstack.wire.message_headers import PullMessageHeader, SendMessageHeader, SendMessageReply
from tests.netstack.samples import SEND_EXT

V1 = {
    "producerGroup": "PG",
    "topic": "TopicTest",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "unitMode": "false",
    "properties": "TAGS\x01TagA\x02",
    "reconsumeTimes": "0",
    "batch": "false",
    "bname": "broker-a",
}
PULL = {
    "consumerGroup": "CG",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "9000000000",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "-1",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
}
GENERIC = [
    header
    for module in (headers, headers_admin, headers_namesrv)
    for header in vars(module).values()
    if isinstance(header, type) and header is not ExtHeader and ExtHeader in header.__mro__
]


def test_a_send_reads_the_same_from_either_spelling() -> None:
    send = SendMessageHeader.from_ext(SEND_EXT)
    assert send == SendMessageHeader.from_ext(V1)
    assert (send.topic, send.queue_id, send.born_ms, send.properties) == ("TopicTest", 1, 1700000000000, SEND_EXT["i"])
    assert send.to_ext() == SEND_EXT


def test_a_send_without_the_optional_fields_gets_their_defaults() -> None:
    required = {name: SEND_EXT[name] for name in "abcdefgh"}
    send = SendMessageHeader.from_ext({**required, "i": "", "j": "", "l": ""})
    assert (send.properties, send.reconsume_times, send.max_reconsume_times, send.batch) == ("", 0, None, False)
    assert SendMessageHeader.from_ext({**required, "l": "3", "m": "true"}).max_reconsume_times == 3


@pytest.mark.parametrize("name", list("abcdefgh"))
def test_a_send_that_lacks_a_required_field_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(Refused, match=f"required field {name} is missing") as refused:
        SendMessageHeader.from_ext({key: value for key, value in SEND_EXT.items() if key != name})
    assert refused.value.code == 1


@pytest.mark.parametrize(("name", "text"), [("e", "x"), ("f", "2147483648"), ("g", "9" * 19), ("j", "1.5"), ("l", "-")])
def test_a_send_with_a_wrong_number_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(Refused, match=f"field {name} is '{text}'"):
        SendMessageHeader.from_ext({**SEND_EXT, name: text})


@pytest.mark.parametrize("name", list("defgh"))
def test_an_empty_number_of_a_send_is_a_missing_one(name: str) -> None:
    at = list("abcdefgh").index(name)
    with pytest.raises(Refused, match=f"required field {name} is missing"):
        SendMessageHeader.from_ext({**SEND_EXT, name: ""})
    with pytest.raises(Refused, match=f"required field {list(V1)[at]} is missing"):
        SendMessageHeader.from_ext({**V1, list(V1)[at]: ""})


def test_a_pull_reads_and_writes_all_its_fields() -> None:
    pull = PullMessageHeader.from_ext({**PULL, "subscription": "TagA", "expressionType": "", "maxMsgBytes": "4096"})
    assert (pull.queue_offset, pull.commit_offset, pull.expression_type, pull.max_bytes) == (9000000000, -1, None, 4096)
    assert pull.to_ext() == {**PULL, "subscription": "TagA", "maxMsgBytes": "4096"}


@pytest.mark.parametrize("name", list(PULL))
def test_a_pull_that_lacks_a_required_field_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(Refused, match=f"required field {name} is missing"):
        PullMessageHeader.from_ext({key: value for key, value in PULL.items() if key != name})


@pytest.mark.parametrize("name", ["queueId", "maxMsgNums", "queueOffset", "subVersion"])
def test_an_empty_number_of_a_pull_is_a_missing_one(name: str) -> None:
    with pytest.raises(Refused, match=f"required field {name} is missing"):
        PullMessageHeader.from_ext({**PULL, name: "", "maxMsgBytes": ""})


@pytest.mark.parametrize("name", ["queueId", "subVersion"])
def test_a_pull_with_a_wrong_number_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(Refused, match=f"field {name} is '9x'"):
        PullMessageHeader.from_ext({**PULL, name: "9x"})


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
