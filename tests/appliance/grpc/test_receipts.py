"""Receipt handles have Apache's eight fields; a ninth is ignored, anything else is refused."""

import pytest

from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import PopSlice
from appliance.grpc.outcome import Rejection
from appliance.grpc.receipts import is_over, receipt_from, receipt_of
from netstack.grpc.v2.definition_pb2 import Code
from storage_driver.record import MessageQueue

POP_MS = 1_700_000_000_000
RECEIPT = receipt_of(
    PopSlice(TopicKind.RETRY, MessageQueue("T", 3), [], [17], [0], 0), 17, POP_MS, 60_000, ordered=True
)
TEXT = "17 1700000000000 60000 999 1 box 3 17"
NONE = ["", "a b", TEXT.replace("1 box", "7 box"), "-1 " * 8, TEXT.replace("3 17", f"3 {1 << 62}"), "x " * 5000]


def test_a_handle_is_written_and_read() -> None:
    assert RECEIPT.text("box") == TEXT
    assert receipt_from(TEXT) == receipt_from(TEXT + " 4096") == RECEIPT


@pytest.mark.parametrize("text", NONE)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Rejection) as refused:
        receipt_from(text)
    assert refused.value.code == Code.INVALID_RECEIPT_HANDLE


def test_the_time_of_a_handle_ends() -> None:
    assert [is_over(RECEIPT, now_ms) for now_ms in (POP_MS + 60_000, POP_MS + 60_001)] == [False, True]
