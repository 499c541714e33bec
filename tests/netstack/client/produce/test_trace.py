"""Trace records, field by field, and what happens to too many of them."""

from netstack.client.instance import Instance
from netstack.client.messages import Message, MessageQueue, ReceivedMessage, SendResult
from netstack.client.produce.trace import WAITING, Tracer, record
from netstack.client.send_request import ProducerOptions, outgoing

QUEUE = MessageQueue("T", "b", 0)
RESULT = SendResult("SEND_OK", "ID", "OFFSETID", QUEUE, 5, region="Here")
PROPERTIES = {"UNIQ_KEY": "ID", "KEYS": "k1 k2", "MSG_REGION": "Here"}


def tracer(topic: str | None = "TRACE") -> Tracer:
    return Tracer(Instance("n:1", now_ms=lambda: 1000), "group", topic)


def received(**properties: str) -> ReceivedMessage:
    message = ReceivedMessage.__new__(ReceivedMessage)
    message.topic, message.reconsume_times = "T", 2
    message._properties = {**PROPERTIES, **properties}
    return message


def texts(traced: Tracer) -> list[list[str]]:
    return [text.removesuffix("\x02").split("\x01") for _, text in traced._records]


def test_a_record_has_its_separators_and_writes_nothing_as_null() -> None:
    assert record("Pub", 5, None, "") == "Pub\x015\x01null\x01\x02"


def test_a_send_is_a_pub_record_of_fourteen_fields_found_by_id_and_keys() -> None:
    traced = tracer()
    out = outgoing(Message("T", b"body", tags="tag", keys="k1 k2", delay_level=3), "ID", ProducerOptions())
    traced.sent(out, RESULT, QUEUE, 0.25)
    expected = ["Pub", "750", "Here", "group", "T", "ID", "tag", "k1 k2", "b", "4", "250", "3", "OFFSETID", "true"]
    assert texts(traced) == [expected]
    assert traced._records[0][0] == ("ID", "k1", "k2")
    traced.sent(out, None, QUEUE, 0.0)
    assert texts(traced)[1][-2:] == ["null", "false"]


def test_a_consumption_is_a_record_before_and_one_after() -> None:
    traced = tracer()
    traced.consuming([received()], "R")
    traced.consumed([received()], "R", 30, failed=True)
    before, after = texts(traced)
    assert before == ["SubBefore", "1000", "Here", "group", "R", "ID", "2", "k1 k2"]
    assert after == ["SubAfter", "R", "ID", "30", "false", "k1 k2", "4", "1000", "group"]


def test_a_verdict_is_a_record_of_its_own() -> None:
    traced = tracer()
    traced.ended(RESULT, "UNKNOWN", from_check=False)
    assert texts(traced)[0][0] == "EndTransaction"
    assert texts(traced)[0][-3:] == ["ID", "UNKNOW", "false"]


def test_what_must_not_be_traced_is_not() -> None:
    off, traced = tracer(None), tracer("T")
    out = outgoing(Message("T", b"x"), "ID", ProducerOptions())
    for each in (off, traced):  # off; the trace topic itself
        each.sent(out, RESULT, QUEUE, 0)
        each.consuming([received()], "R")
    other = tracer()
    other.sent(out, RESULT._replace(trace_on=False), QUEUE, 0)
    other.consuming([received(TRACE_ON="false")], "R")
    assert not off._records
    assert not traced._records
    assert not other._records


def test_too_many_records_are_dropped_and_counted() -> None:
    traced = tracer()
    for _ in range(WAITING + 5):
        traced.note(("id",), "text")
    assert (len(traced._records), traced.dropped) == (WAITING, 5)
