"""Pop headers in the words of 5.x clients."""

from netstack.headers_pop import PopHeader, PopReply


def test_a_pop_of_any_queue_is_read() -> None:
    ext = {
        "consumerGroup": "CG",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "15000",
        "bornTime": "1700000000000",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
    }
    pop = PopHeader.from_ext(ext)
    assert (pop.queue_id, pop.invisible_ms, pop.expression, pop.order) == (-1, 60000, "*", False)


def test_a_pop_reply_always_has_its_four_numbers() -> None:
    assert PopReply(1, 2, 3, 4).to_ext() == {"popTime": "1", "invisibleTime": "2", "reviveQid": "3", "restNum": "4"}
