"""Bodies of POP equal what the 5.5.0 client prints."""

from netstack.wire.bodies_pop import BatchAck, BatchAcks, RequestMode

ACKS = (
    b'{"acks":[{"b":"BQI=","c":"G","it":60000,"pt":1700000000000,"q":3,"r":"1","rq":0,"so":100,"t":"T"}],'
    b'"brokerName":"box"}'
)


def test_a_batch_of_acknowledgements_is_read_and_written_as_java_does() -> None:
    body = BatchAcks("box", (BatchAck("G", "T", "1", 100, 3, 0, 1_700_000_000_000, 60_000, "BQI="),))
    assert BatchAcks.from_bytes(ACKS) == body
    assert body.to_bytes() == ACKS


def test_a_request_mode_is_read_and_written_as_java_does() -> None:
    raw = b'{"consumerGroup":"G","mode":"POP","popShareQueueNum":3,"topic":"T"}'
    assert RequestMode.from_bytes(raw) == RequestMode("T", "G", "POP", 3)
    assert RequestMode("T", "G", "POP", 3).to_bytes() == raw
