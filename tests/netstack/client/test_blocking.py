"""The facade for programs without trio."""

from typing import Any

import pytest

from netstack.client import ConsumerOptions, Message, MessageRejected, NoNameServer, StartFrom, UsageError
from netstack.client.blocking import Producer, PullConsumer, PushConsumer
from tests.netstack.client.conftest import PATIENT

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


def test_messages_go_and_come_without_trio(own_cluster: Any, topic: str) -> None:
    with Producer("blocking", own_cluster.namesrv, options=PATIENT) as producer:
        assert producer.send(Message(topic, b"0")).status == "SEND_OK"
        results = producer.send_many(Message(topic, b"%d" % number) for number in range(1, 50))
        assert len(results) == 49
        producer.send_oneway(Message(topic, b"50"))
        assert producer.send_ordered(Message(topic, b"51"), "k").queue in producer.queues(topic)
        assert len(producer.send_batch([Message(topic, b"52"), Message(topic, b"53")]).message_ids) == 2
    with PushConsumer(topic, own_cluster.namesrv, options=FIRST, topics={topic: "*"}) as consumer:
        bodies = set()
        for message in consumer:
            bodies.add(message.body)
            consumer.ack(message)
            if len(bodies) == 54:
                break
        assert consumer.take(timeout_s=0.05) == []
        consumer.commit()


def test_queues_are_pulled_without_trio(own_cluster: Any, topic: str) -> None:
    with Producer("blocking", own_cluster.namesrv, options=PATIENT) as producer:
        queue = producer.send(Message(topic, b"x")).queue
    with PullConsumer(topic, own_cluster.namesrv) as consumer:
        assert [each.body for each in consumer.pull(queue, 0).messages] == [b"x"]
        consumer.assign([queue])
        consumer.seek_to_begin(queue)
        assert [each.body for each in consumer.poll()] == [b"x"]
        consumer.commit()
        assert consumer.committed(queue) == 1
        assert consumer.ends(queue) == (0, 1)
        assert list(consumer.assigned) == [queue]


def test_errors_come_out_in_the_callers_thread(own_cluster: Any) -> None:
    with Producer("blocking", own_cluster.namesrv, options=PATIENT) as producer, pytest.raises(MessageRejected):
        producer.send(Message("T", b""))
    with pytest.raises(UsageError, match="with"):
        producer.send(Message("T", b"x"))
    with pytest.raises(UsageError, match="group"), Producer("no group", own_cluster.namesrv):
        pass
    with Producer("blocking", "127.0.0.1:1") as lonely, pytest.raises(NoNameServer):
        lonely.send(Message("T", b"x"))
