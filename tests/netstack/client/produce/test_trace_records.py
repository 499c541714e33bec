"""Traces read back: what our own clients write, what other versions write, and whatever else lies on the topic."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netstack.client.instance import Instance
from netstack.client.messages import Message, MessageQueue, ReceivedMessage, SendResult
from netstack.client.produce.trace import Tracer
from netstack.client.produce.trace_records import TraceEvent, read_steps, story
from netstack.client.send_request import ProducerOptions, outgoing

QUEUE = MessageQueue("T", "b", 0)
RESULT = SendResult("SEND_OK", "ID", "OFFSETID", QUEUE, 5, region="Here")


def steps(*records: str, traced_ms: int = 5000) -> list[TraceEvent]:
    return list(read_steps("".join(records).encode("utf-8", "surrogatepass"), "client", traced_ms))


def record(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def test_what_our_clients_write_is_read_with_all_it_says() -> None:
    traced = Tracer(Instance("n:1", now_ms=lambda: 1000), "group", "TRACE")
    traced.sent(outgoing(Message("T", b"body", delay_level=3), "ID", ProducerOptions()), RESULT, QUEUE, 0.25)
    message = ReceivedMessage.__new__(ReceivedMessage)
    message.topic, message.reconsume_times, message._properties = "T", 2, {"UNIQ_KEY": "ID"}
    traced.consuming([message], "R")
    traced.consumed([message], "R", 30, failed=True)
    traced.ended(RESULT, "COMMIT", from_check=True)
    sent, began, finished, ended = steps(*(text for _, text in traced._records))
    assert sent == TraceEvent("sent", "ID", "T", "group", "client", 750, 250, "stored", "delay, 4 bytes to b")
    assert began == TraceEvent("consumed", "ID", "", "group", "client", 1000, -1, "no end known", "attempt 3", "R")
    assert (finished.result, finished.took_ms, finished.began_ms, finished.request) == ("failed", 30, 970, "R")
    assert (ended.what, ended.result, ended.detail) == ("ended", "commit", "asked by the broker")
    (first, joined, last) = story([finished, ended, sent, began], "ID")
    assert [each.what for each in (first, joined, last)] == ["sent", "consumed", "ended"]
    assert (joined.began_ms, joined.took_ms, joined.result, joined.detail) == (970, 30, "failed", "attempt 3")


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "null", ""]), st.text(max_size=5)
            ),
            max_size=15,
        ),
        max_size=4,
    ),
    st.binary(max_size=30),
)
def test_whatever_lies_on_the_topic_is_read_or_passed_over(records: list[list[str]], tail: bytes) -> None:
    body = "".join(record(*fields) for fields in records).encode("utf-8", "surrogatepass") + tail
    found = list(read_steps(body, "client", 7))
    assert {step.what for step in found} <= {"sent", "ended", "consumed"}
    for step in found:
        assert step in story(found, step.message_id) or len(story(found, step.message_id)) <= len(found)


def test_records_of_versions_before_and_after_are_read_as_far_as_they_go() -> None:
    before = record("Pub", 10, "R", "g", "T", "ID", "tag", "key", "h:1", 4, 25, 0, "true")  # no offset id yet
    after = record("Pub", 10, "R", "g", "T", "ID", "tag", "key", "h:1", 4, 25, 0, "OFF", "true", "more", "more")
    assert [step.result for step in steps(before, after)] == ["stored", "stored"]
    (bare,) = steps(record("SubAfter", "R", "ID", 5, "true"))
    assert (bare.result, bare.took_ms, bare.began_ms) == ("success", 5, 4995)
    assert steps(record("Pub"))[0].message_id == ""


def test_a_batch_is_a_step_for_each_of_its_messages() -> None:
    found = steps(record("Pub", 10, "R", "g", "T", "A,B,C", "", "", "h:1", 4, 25, 0, "OFF", "true"))
    assert [step.message_id for step in found] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("code", "result"), [("0", "success"), ("1", "timed out"), ("4", "failed"), ("9", "failed"), ("null", "failed")]
)
def test_a_consumption_that_failed_says_how(code: str, result: str) -> None:
    (step,) = steps(record("SubAfter", "R", "ID", 5, "false", "", code, 100, "g"))
    assert step.result == result


def test_a_story_is_of_one_message_in_the_order_of_time_and_without_doubles() -> None:
    one = TraceEvent("sent", "A", "T", "g", "c", 5)
    late, other = (
        TraceEvent("consumed", "A", "", "h", "d", 9, 1, "success", "", "R1"),
        TraceEvent("sent", "B", began_ms=1),
    )
    again = TraceEvent("consumed", "A", "", "h", "d", 20, 1, "success", "", "R2")
    assert story([again, late, one, one, other, late], "A") == [one, late, again]
    assert story([], "A") == []
