"""Headers of POP, as the 5.5.0 client sends them."""

import pytest

from netstack.errors import Refused
from netstack.wire.headers_pop import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageHeader,
)

QUEUE = {"consumerGroup": "G", "topic": "T", "queueId": "-1"}
ACK = {**QUEUE, "extraInfo": "0 1 2 0 0 b 0 7", "offset": "7"}


def test_a_pop_is_read_with_and_without_what_may_be_missing() -> None:
    asked = {**QUEUE, "maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "15000"}
    header = PopMessageHeader.from_ext(asked)
    assert (header.queue_id, header.max_count, header.invisible_ms, header.poll_ms) == (-1, 32, 60_000, 15_000)
    assert (header.born_ms, header.init_mode, header.expression, header.order) == (0, 0, None, False)
    more = {"bornTime": "5", "initMode": "1", "expType": "TAG", "exp": "a", "order": "true", "attemptId": "x"}
    header = PopMessageHeader.from_ext({**asked, **more})
    assert (header.born_ms, header.init_mode, header.expression, header.order) == (5, 1, "a", True)
    assert (header.expression_type, header.attempt_id) == ("TAG", "x")
    with pytest.raises(Refused, match="maxMsgNums"):
        PopMessageHeader.from_ext(QUEUE)


def test_an_acknowledgement_and_a_renewal_name_a_handle() -> None:
    assert AckMessageHeader.from_ext(ACK) == AckMessageHeader("G", "T", -1, "0 1 2 0 0 b 0 7", 7)
    assert ChangeInvisibleTimeHeader.from_ext({**ACK, "invisibleTime": "9"}).invisible_ms == 9


def test_those_who_look_name_a_queue() -> None:
    assert PeekMessageHeader.from_ext({**QUEUE, "maxMsgNums": "3"}).max_count == 3
    assert NotificationHeader.from_ext({**QUEUE, "pollTime": "4"}).poll_ms == 4
    assert PollingInfoHeader.from_ext(QUEUE) == PollingInfoHeader("G", "T", -1)
