"""The headers of sends and pulls: both spellings, what clients leave out, and remarks that name the field at fault."""

import pytest

from netstack.errors import Refused
from netstack.wire.message_headers import PullMessageHeader, SendMessageHeader
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
