"""Retries, dead letters, delays, transactions, request and reply, with the official Java client."""

import threading
import time
from typing import Any

import psutil
import pytest

from tests.interop.box import Box, Foreign, until
from tests.interop.client import Seen, producer, push_consumer, started, unique
from tests.interop.conftest import ONE_VERSION
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.slow

IN_TIME_S = 40


@pytest.mark.feature("retry: a failed message is delivered again")
def test_a_message_that_failed_comes_again_with_its_count_and_its_id(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("retry")

    def fail_once(batch: list[Seen], context: Any) -> str:
        context.setDelayLevelWhenNextConsume(1)
        return "CONSUME_SUCCESS" if batch[0].reconsume_times else "RECONSUME_LATER"

    with producer(jvm, cluster.namesrv) as client:
        sent = client.send(jvm.message(topic, b"again", tags="t", keys="k", own="yes"))
        with push_consumer(jvm, cluster.namesrv, topic, answer=fail_once) as collected:
            first, second = collected.wait_count(2, IN_TIME_S)
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert (second.topic, second.body, second.tags, second.keys) == (topic, b"again", "t", "k")
    assert second.properties["own"] == "yes"
    assert second.properties["UNIQ_KEY"] == sent.getMsgId()


@ONE_VERSION
@pytest.mark.feature("dead letters after the last retry")
def test_a_message_that_always_fails_ends_among_the_dead_letters(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic, group = unique("dead"), unique("dead_group")

    def fail(_batch: list[Seen], context: Any) -> str:
        context.setDelayLevelWhenNextConsume(1)
        return "RECONSUME_LATER"

    with producer(jvm, cluster.namesrv) as client:
        sent = client.send(jvm.message(topic, b"hopeless"))
        with push_consumer(jvm, cluster.namesrv, topic, group=group, answer=fail, MaxReconsumeTimes=1) as collected:
            collected.wait_count(2, IN_TIME_S)
            dead = dead_letters(jvm, cluster, group)
    assert [(each.body, each.properties["UNIQ_KEY"]) for each in dead] == [(b"hopeless", sent.getMsgId())]
    assert len(collected.seen) == 2


def dead_letters(jvm: Jvm, cluster: Box | Foreign, group: str) -> list[Seen]:
    """Return what lies in the group's dead letter queue, once there is something."""
    puller = jvm.new("client.consumer.DefaultMQPullConsumer", unique("undertaker"))
    with started(puller, cluster.namesrv, {}):

        def look() -> list[Seen]:
            try:
                queue = next(iter(puller.fetchSubscribeMessageQueues(f"%DLQ%{group}")))
                result = puller.pull(queue, "*", 0, 32)
            except Exception:  # no route before the first dead letter
                return []
            return Seen.read_all(jvm, result.getMsgFoundList()) if result.getMsgFoundList() else []

        return list(until(look, seconds=IN_TIME_S, what="no dead letter"))


@pytest.mark.feature("delay levels")
def test_a_delayed_message_comes_after_its_level_and_never_early(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("delay")
    with producer(jvm, cluster.namesrv) as client:
        for level in (1, 2):
            message = jvm.message(topic, str(level).encode())
            message.setDelayTimeLevel(level)
            client.send(message)
        client.send(jvm.message(topic, b"makes the topic"))
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            seen = collected.wait_count(3, IN_TIME_S)
    waited = {each.body: each.store_ms - each.born_ms for each in seen}
    assert waited[b"1"] >= 1000
    assert waited[b"2"] >= 5000
    print("late by ms:", waited[b"1"] - 1000, waited[b"2"] - 5000)


@pytest.mark.feature("timer properties of 5.x: any delay")
def test_a_timer_property_delivers_at_its_millisecond_and_never_early(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("timer")
    due_ms = int(time.time() * 1000) + 2500
    message = jvm.message(topic, b"on time")
    jvm.cls("common.message.MessageAccessor").putProperty(message, "TIMER_DELIVER_MS", str(due_ms))
    with producer(jvm, cluster.namesrv) as client:
        client.send(message)
        client.send(jvm.message(topic, b"makes the topic"))
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            _, seen = sorted(collected.wait_count(2, IN_TIME_S), key=lambda each: each.store_ms)
    assert seen.body == b"on time"
    assert seen.store_ms >= due_ms
    print("late by ms:", seen.store_ms - due_ms)


@pytest.mark.feature("timer properties of 5.x: a message is recalled before its delivery time", client="Java 5.5.0")
def test_a_timed_message_that_is_recalled_never_comes(jvm5: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("recall")
    with producer(jvm5, cluster.namesrv) as client:
        client.send(jvm5.message(topic, b"makes the topic"))
        due_ms, results = int(time.time() * 1000) + 8000, []
        for body in (b"taken back", b"kept"):
            message = jvm5.message(topic, body)
            message.setDeliverTimeMs(due_ms)
            results.append(client.send(message))
        assert client.recallMessage(topic, results[0].getRecallHandle()) == results[0].getMsgId()
        with push_consumer(jvm5, cluster.namesrv, topic) as collected:
            collected.wait_count(2, IN_TIME_S)
            time.sleep(1)
    assert sorted(each.body for each in collected.seen) == [b"kept", b"makes the topic"]


def connections(jvm: Jvm, box: Box) -> set[int]:
    """Return the ports at which a JVM has connections to the broker; clients of other tests may be among them."""
    found = psutil.Process(jvm.process.pid).net_connections("tcp")
    there = [each for each in found if each.raddr and each.status == "ESTABLISHED"]
    return {each.laddr[1] for each in there if each.raddr[1] == box.broker_port}


@pytest.mark.feature("a send is repeated after a lost reply: stored once", client="Java 4.9.7")
def test_a_send_that_is_repeated_after_its_connection_died_gets_the_first_result(jvm4: Jvm, box: Box) -> None:
    topic, others = unique("repeated"), connections(jvm4, box)
    with producer(jvm4, box.namesrv, RetryTimesWhenSendFailed=0, PollNameServerInterval=3_600_000) as client:
        queue = client.send(jvm4.message(topic, b"makes the topic")).getMessageQueue()
        message = jvm4.message(topic, b"once")
        process, own = psutil.Process(box.pid), connections(jvm4, box) - others
        process.suspend()  # the request is received by its kernel, the answer comes too late
        try:
            with pytest.raises(Exception, match="imeout"):
                client.send(message, queue, 1500)
            until(lambda: own - connections(jvm4, box), seconds=IN_TIME_S, what="the client closes its connection")
        finally:
            process.resume()
        repeated = client.send(message, queue)
        after = client.send(jvm4.message(topic, b"after"), queue)
    assert (repeated.getSendStatus().toString(), repeated.getQueueOffset(), after.getQueueOffset()) == ("SEND_OK", 1, 2)


@pytest.mark.feature("transactions: commit, rollback, check-back")
def test_only_committed_transactions_are_seen(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("transaction")
    states = jvm.cls("client.producer.LocalTransactionState")
    decided, checked = threading.Event(), threading.Event()

    def execute(message: Any, _argument: Any) -> Any:
        return {b"c": states.COMMIT_MESSAGE, b"r": states.ROLLBACK_MESSAGE}.get(bytes(message.getBody()), states.UNKNOW)

    def check(_message: Any) -> Any:
        checked.set()
        return states.COMMIT_MESSAGE if decided.is_set() else states.UNKNOW

    listener = "client.producer.TransactionListener"
    made = jvm.new("client.producer.TransactionMQProducer", unique("transaction_producer"))
    made.setTransactionListener(jvm.callback(listener, executeLocalTransaction=execute, checkLocalTransaction=check))
    with started(made, cluster.namesrv, {"SendMsgTimeout": 10_000}):
        with producer(jvm, cluster.namesrv) as plain:
            plain.send(jvm.message(topic, b"plain"))
        for body in (b"c", b"r", b"u"):
            assert made.sendMessageInTransaction(jvm.message(topic, body), None).getSendStatus().toString() == "SEND_OK"
        with push_consumer(jvm, cluster.namesrv, topic) as collected:
            early = collected.wait_count(2)
            assert {each.body for each in early} == {b"plain", b"c"}
            decided.set()
            late = collected.wait_count(3, 100)
    assert checked.is_set()
    assert {each.body for each in late} == {b"plain", b"c", b"u"}


@pytest.mark.feature("request and reply")
def test_a_request_gets_its_reply(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic = unique("request")
    utility = jvm.cls("client.utils.MessageUtil")
    with producer(jvm, cluster.namesrv) as client, producer(jvm, cluster.namesrv) as replier:

        def reply(messages: Any, _context: Any) -> Any:
            for message in messages:
                replier.send(utility.createReplyMessage(message, b"answer to " + bytes(message.getBody())), 5000)
            return jvm.cls("client.consumer.listener.ConsumeConcurrentlyStatus").CONSUME_SUCCESS

        client.send(jvm.message(topic, b"makes the topic"))
        consumer = jvm.new("client.consumer.DefaultMQPushConsumer", unique("replier"))
        consumer.subscribe(topic, "*")
        listener = "client.consumer.listener.MessageListenerConcurrently"
        consumer.registerMessageListener(jvm.callback(listener, consumeMessage=reply))
        with started(consumer, cluster.namesrv, {}):
            answer = client.request(jvm.message(topic, b"question"), 20_000)
    assert bytes(answer.getBody()) == b"answer to question"
