"""Requests written from a template of their queue are, byte for byte, what the general way writes."""

import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netstack.client.errors import BrokerRefused, ClientError, MessageRejected
from netstack.client.messages import Message, SendResult
from netstack.client.send_request import (
    LANGUAGE,
    EncodedRequest,
    ProducerOptions,
    _header_template,
    outgoing,
    outgoing_batch,
    send_result,
)
from netstack.wire.command import decode_command, encode_command, request
from netstack.wire.frame import FrameDecoder
from netstack.wire.json_body import MessageQueue
from netstack.wire.message_headers import SendMessageHeader

ID = "7F00000117CA18B4AAC2108BF0C70001"
OPTIONS = ProducerOptions()


def general(out: EncodedRequest, group: str, queue: MessageQueue, now_ms: int, opaque: int) -> bytes:
    command = request(out.code, out.header(group, queue, OPTIONS, now_ms), out.body, language=LANGUAGE)
    command.opaque = opaque
    return encode_command(command)


@settings(max_examples=25)
@given(
    topic=st.text('%ab\ue000\ue001"\\', min_size=1),
    broker=st.text(),
    text=st.text(),
    numbers=st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 45), st.integers(0, 9), st.integers(1, 1 << 31)),
)
def test_a_frame_is_what_the_general_way_writes(
    topic: str, broker: str, text: str, numbers: tuple[int, int, int, int]
) -> None:
    flag, now_ms, sys_flag, opaque = numbers
    out = EncodedRequest(topic, 310, b"body", text, (ID,), sys_flag, flag)
    queue = MessageQueue(topic, broker, 3)
    assert out.frame("%g", queue, OPTIONS, now_ms, opaque) == general(out, "%g", queue, now_ms, opaque)


def test_batches_retries_and_replies_are_written_so_too() -> None:
    queue = MessageQueue("T", "b", 3)
    batch = outgoing_batch([Message("T", b"1"), Message("T", b"2")], [ID, ID], OPTIONS)
    reply = outgoing(Message("T", b"r", properties={"MSG_TYPE": "reply"}), ID, OPTIONS)
    for out in (batch, reply):
        assert _header_template(int(out.code), "g", queue, OPTIONS.template, OPTIONS.new_topic_queues) is not None
        assert out.frame("g", queue, OPTIONS, 5, 7) == general(out, "g", queue, 5, 7)
    again = outgoing(Message("%RETRY%g", b"r", properties={"RECONSUME_TIME": "2"}), ID, OPTIONS)
    decoder = FrameDecoder()
    decoder.feed(again.frame("g", queue, OPTIONS, 5, 7))
    frame = decoder.next_frame()
    assert frame is not None
    assert SendMessageHeader.from_ext(decode_command(frame).ext).reconsume_times == 2


def test_a_bare_message_has_the_properties_that_any_message_has() -> None:
    bare = outgoing(Message("T", b"1"), ID, OPTIONS)
    assert bare.properties == f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02"
    assert bare.message_ids == (ID,)
    for other in (Message("T", b"1", wait_stored=False), Message("T", b"1", delay_ms=7), Message("T", b"1", keys="k")):
        assert not other.is_bare
        assert outgoing(other, ID, OPTIONS).properties != bare.properties


def test_properties_longer_than_a_broker_stores_never_leave() -> None:
    with pytest.raises(MessageRejected, match="32767"):
        outgoing(Message("T", b"x", properties={"k": "中" * 11_000}), "ID", OPTIONS)


def test_a_message_keeps_an_id_of_its_own_and_a_reply_has_its_code() -> None:
    out = outgoing(Message("T", b"x", properties={"UNIQ_KEY": "MINE"}), "MADE", OPTIONS)
    assert out.message_ids == ("MINE",)
    assert outgoing(Message("C_REPLY_TOPIC", b"x", properties={"MSG_TYPE": "reply"}), "I", OPTIONS).code == 325
    batch = outgoing_batch([Message("T", b"x"), Message("T", b"y", properties={"UNIQ_KEY": "Y"})], ["1", "2"], OPTIONS)
    assert (batch.code, batch.message_ids, batch.properties) == (320, ("1", "Y"), "WAIT\x01true\x02")


def test_a_retry_message_moves_its_counts_into_the_header() -> None:
    properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"}
    out = outgoing(Message("%RETRY%g", b"x", properties=properties), "I", OPTIONS)
    assert (out.reconsume_times, out.max_reconsume_times) == (3, 16)


@pytest.mark.parametrize("name", ["RECONSUME_TIME", "MAX_RECONSUME_TIMES"])
@pytest.mark.parametrize("text", ["", "x", "1.5", "\u00b2"])
def test_a_count_of_retries_that_is_none_is_rejected_before_it_leaves(name: str, text: str) -> None:
    with pytest.raises(MessageRejected, match=name):
        outgoing(Message("%RETRY%g", b"x", properties={name: text}), ID, OPTIONS)
    assert outgoing(Message("T", b"x", properties={name: text}), ID, OPTIONS).reconsume_times == 0


@pytest.mark.parametrize(
    ("size", "random", "flag"), [(4095, False, 0), (4096, False, 1), (4096, True, 1), (100_000, False, 1)]
)
def test_a_body_is_compressed_from_a_size_on_as_java_does(size: int, random: bool, flag: int) -> None:
    body = Random(1).randbytes(size) if random else b"a" * size
    out = outgoing(Message("T", body), ID, OPTIONS)
    assert (out.sys_flag & 1, out.body == body) == (flag, not flag)
    if flag:
        assert zlib.decompress(out.body) == body


def test_a_half_is_marked_as_one() -> None:
    assert outgoing(Message("T", b"x", properties={"TRAN_MSG": "true"}), ID, OPTIONS).sys_flag == 4
    assert outgoing(Message("T", b"x", properties={"TRAN_MSG": "false"}), ID, OPTIONS).sys_flag == 0


STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "1", "queueOffset": "5"}
QUEUE = MessageQueue("T", "b", 0)


def answered(code: int = 0, /, **changes: str | None) -> SendResult:
    ext = {name: value for name, value in {**STORED, **changes}.items() if value is not None}
    return send_result(request(310).reply(code, "why", ext), outgoing(Message("T", b"x"), ID, OPTIONS), QUEUE, "h:1")


@pytest.mark.parametrize(
    ("code", "status"),
    [(0, "SEND_OK"), (10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
def test_an_answer_says_where_the_message_lies_also_in_another_queue_than_asked(code: int, status: str) -> None:
    found = answered(code)
    assert (found.status, found.queue, found.queue_offset) == (status, QUEUE._replace(queue_id=1), 5)
    assert (found.message_id, found.offset_message_id) == (ID, STORED["msgId"])


@pytest.mark.parametrize("code", [1, 2, 13, 14, 17, 205])
def test_any_other_code_is_a_refusal_with_broker_code_and_remark(code: int) -> None:
    with pytest.raises(BrokerRefused, match="why") as refused:
        answered(code)
    assert (refused.value.code, "b (h:1)" in str(refused.value)) == (code, True)


@pytest.mark.parametrize("name", ["msgId", "queueId", "queueOffset"])
def test_an_acknowledgement_that_does_not_say_where_is_an_error_that_names_the_broker(name: str) -> None:
    changes: dict[str, str | None] = {name: None}
    with pytest.raises(
        ClientError, match=r"b \(h:1\) answered the message for T with an undecodable reply: queue or offset missing"
    ):
        answered(0, **changes)
    if name != "msgId":
        with pytest.raises(ClientError, match="queue or offset missing"):
            answered(0, **{name: "x"})


@pytest.mark.parametrize(("said", "traced"), [(None, True), ("true", True), ("false", False), ("", True)])
def test_traces_are_left_unless_the_broker_says_no(said: str | None, traced: bool) -> None:
    assert answered(TRACE_ON=said).trace_on == traced
