"""Attributes of topics, change by change."""

import pytest

from appliance.broker.admin.topic_attributes import changed, changes_in
from netstack.errors import Refused


def test_a_header_says_sign_name_and_value() -> None:
    assert changes_in("") == {}
    assert changes_in("+message.type=FIFO,-queue.type") == {"+message.type": "FIFO", "-queue.type": ""}


def test_what_a_change_does_not_name_stays() -> None:
    now = {"message.type": "FIFO", "reserve.time": "7"}
    assert changed(now, {"+message.type": "DELAY"}) == {"message.type": "DELAY", "reserve.time": "7"}
    assert changed(now, {"+message.type": "PRIORITY"})["message.type"] == "PRIORITY"
    assert changed(now, {"-reserve.time": ""}) == {"message.type": "FIFO"}
    assert changed({}, {"+queue.type": "SimpleCQ", "+cleanup.policy": "DELETE"}).keys() == {
        "queue.type",
        "cleanup.policy",
    }
    assert now == {"message.type": "FIFO", "reserve.time": "7"}


def test_what_an_apache_store_brought_along_can_be_taken_off() -> None:
    assert changed({"cleanup.policy": "COMPACTION"}, {"-cleanup.policy": ""}) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"+queue.type": "BatchCQ"}, "each message of a batch has its own entry here"),
        ({"+cleanup.policy": "COMPACTION"}, "messages are deleted by age and space here"),
        ({"+message.type": "ODD"}, "expected"),
        ({"+no.such": "1"}, "expected"),
        ({"+reserve.time": ""}, "expected"),
        ({"message.type": "FIFO"}, "expected"),
        ({"-message.type": ""}, "expected"),
        ({"": ""}, "expected"),
    ],
)
def test_what_is_not_known_or_would_promise_too_much_is_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(Refused) as refused:
        changed({}, changes)
    assert refused.value.code == 1
    assert words in refused.value.remark
