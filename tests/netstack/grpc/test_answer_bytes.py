"""Answers written at once are what protobuf writes."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.grpc.outcome import fill_ok
from netstack.grpc.answer_bytes import acknowledged, stored
from netstack.grpc.v2.service_pb2 import AckMessageResponse, SendMessageResponse

TEXTS = st.one_of(st.text(max_size=40), st.text(min_size=120, max_size=260))


@given(TEXTS, st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1)))
def test_the_answer_to_a_send_is_that_of_protobuf(message_id: str, queue_offset: int) -> None:
    response = SendMessageResponse()
    fill_ok(response.status)
    entry = response.entries.add()
    fill_ok(entry.status)
    entry.message_id, entry.offset = message_id, queue_offset
    assert stored(message_id, queue_offset) == response.SerializeToString()


@given(TEXTS, TEXTS)
def test_the_answer_to_an_acknowledgement_is_that_of_protobuf(message_id: str, handle: str) -> None:
    response = AckMessageResponse()
    fill_ok(response.status)
    entry = response.entries.add()
    entry.message_id, entry.receipt_handle = message_id, handle
    fill_ok(entry.status)
    assert acknowledged(message_id, handle) == response.SerializeToString()
