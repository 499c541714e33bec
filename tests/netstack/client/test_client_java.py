"""Java's client and ours read each other's messages and share groups; ours through the blocking facade."""

import threading
import time
from typing import Any

import pytest

from netstack.client import ConsumerOptions, Message, StartFrom, Verdict
from netstack.client.blocking import Producer, PushConsumer
from tests.interop.client import producer as java_producer
from tests.interop.client import push_consumer as java_consumer
from tests.interop.client import started, unique
from tests.netstack.client.conftest import BOX_AND_LATER_APACHE, PATIENT

pytestmark = pytest.mark.slow

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)
TEXT = "grüß 中文 😀"


def take_until(consumer: PushConsumer, number: int, seconds: float = 60) -> list[Any]:
    """Take and acknowledge until so many are there."""
    got: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(got) < number and time.monotonic() < deadline:
        messages = consumer.take(32, timeout_s=1)
        consumer.ack_all(messages)
        got += messages
    return got


def in_transactions(jvm: Any, namesrv: str, topic: str, verdicts: dict[bytes, str]) -> None:
    """Send half messages by Java's transaction producer, each ended by its verdict."""
    states = jvm.cls("client.producer.LocalTransactionState")

    def execute(message: Any, _: Any) -> Any:
        return getattr(states, verdicts[bytes(message.getBody())])

    client = jvm.new("client.producer.TransactionMQProducer", unique("java_tx"))
    listener = jvm.callback(
        "client.producer.TransactionListener", executeLocalTransaction=execute, checkLocalTransaction=lambda _: None
    )
    client.setTransactionListener(listener)
    with started(client, namesrv, {}):
        for body in verdicts:
            client.sendMessageInTransaction(jvm.message(topic, body), None)


def test_a_java_consumer_reads_what_python_sends(jvm4: Any, namesrv: str) -> None:
    topic = unique("py_to_java")
    large = (TEXT * 400).encode()
    with Producer(unique("py"), namesrv, options=PATIENT) as producer:
        producer.send(Message(topic, TEXT.encode(), tags="tag", keys="k1 k2", properties={"ö": TEXT}))
        producer.send(Message(topic, large))
        batch = producer.send_batch([Message(topic, b"b%d" % number) for number in range(3)])
        producer.send(Message(topic, b"delayed", delay_level=1))
        producer.send_in_transaction(Message(topic, b"committed"), lambda message, message_id: Verdict.COMMIT)
        producer.send_in_transaction(Message(topic, b"rolled back"), lambda message, message_id: Verdict.ROLLBACK)
        with java_consumer(jvm4, namesrv, topic) as collected:
            seen = {each.body: each for each in collected.wait_count(7, 60)}
    assert set(seen) == {TEXT.encode(), large, b"b0", b"b1", b"b2", b"delayed", b"committed"}
    first = seen[TEXT.encode()]
    assert (first.tags, first.keys, first.properties["ö"]) == ("tag", "k1 k2", TEXT)
    assert [seen[b"b%d" % number].message_id for number in range(3)] == list(batch.message_ids)


def test_python_reads_what_a_java_producer_sends(jvm4: Any, namesrv: str) -> None:
    topic = unique("java_to_py")
    large = (TEXT * 400).encode()
    with java_producer(jvm4, namesrv) as client:
        sent = client.send(jvm4.message(topic, TEXT.encode(), tags="tag", keys="k1 k2", colour=TEXT))
        client.send(jvm4.message(topic, large))
        client.send(jvm4.list_of(jvm4.message(topic, b"b%d" % number) for number in range(3)))
        late = jvm4.message(topic, b"delayed")
        late.setDelayTimeLevel(1)
        client.send(late)
        in_transactions(jvm4, namesrv, topic, {b"committed": "COMMIT_MESSAGE", b"rolled back": "ROLLBACK_MESSAGE"})
        with PushConsumer(unique("py"), namesrv, options=FIRST, topics={topic: "*"}) as consumer:
            seen = {each.body: each for each in take_until(consumer, 7)}
    assert set(seen) == {TEXT.encode(), large, b"b0", b"b1", b"b2", b"delayed", b"committed"}
    first = seen[TEXT.encode()]
    assert (first.tags, first.keys, first.properties["colour"]) == ("tag", "k1 k2", TEXT)
    assert first.message_id == sent.getMsgId()


def test_a_group_of_java_and_python_shares_the_queues_and_loses_nothing(jvm4: Any, namesrv: str) -> None:
    topic, group = unique("mixed"), unique("mixed_group")
    sent = 0
    stop = threading.Event()
    mine: list[Any] = []
    with Producer(unique("py"), namesrv, options=PATIENT) as producer:
        producer.send(Message(topic, b"first"))
        with (
            java_consumer(jvm4, namesrv, topic, group=group) as theirs,
            PushConsumer(group, namesrv, options=FIRST, topics={topic: "*"}) as consumer,
        ):

            def consume() -> None:
                while not stop.is_set():
                    mine.extend(take_until(consumer, 1, 0.5))

            thread = threading.Thread(target=consume)
            thread.start()
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline and not (sent >= 60 and mine and theirs.seen):
                producer.send(Message(topic, b"%d" % sent))
                sent += 1
                time.sleep(0.02)
            wanted = {b"first", *(b"%d" % number for number in range(sent))}
            theirs.wait(lambda seen: {each.body for each in [*seen, *mine]} >= wanted, 60)
            while {each.body for each in [*theirs.seen, *mine]} < wanted and time.monotonic() < deadline:
                time.sleep(0.05)
            tail = sent
            for number in range(tail, tail + 40):  # both are there now: every message to one of them
                producer.send(Message(topic, b"%d" % number))
            wanted |= {b"%d" % number for number in range(tail, tail + 40)}
            deadline = time.monotonic() + 60
            while {each.body for each in [*theirs.seen, *mine]} < wanted and time.monotonic() < deadline:
                time.sleep(0.05)
            stop.set()
            thread.join()
        late = {b"%d" % number for number in range(tail, tail + 40)}
        java, python = ({each.body for each in seen} & late for seen in (theirs.seen, mine))
        assert {each.body for each in [*theirs.seen, *mine]} == wanted
        assert java
        assert python
        assert not java & python


@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE, indirect=True)
def test_a_java_requester_gets_a_reply_from_python(jvm4: Any, namesrv: str) -> None:
    from netstack.client import make_reply

    topic = unique("ask")
    with (
        Producer(unique("py"), namesrv, options=PATIENT) as producer,
        PushConsumer(unique("py"), namesrv, options=FIRST, topics={topic: "*"}) as consumer,
        java_producer(jvm4, namesrv) as client,
    ):
        producer.send(Message(topic, b"makes the topic"))
        assert len(take_until(consumer, 1)) == 1
        answers: list[bytes] = []

        def respond() -> None:
            (message,) = take_until(consumer, 1)
            answers.append(message.body)
            producer.send(make_reply(message, b"re: " + message.body))

        thread = threading.Thread(target=respond)
        thread.start()
        reply = client.request(jvm4.message(topic, b"question"), 60_000)
        thread.join()
    assert answers == [b"question"]
    assert bytes(reply.getBody()) == b"re: question"
