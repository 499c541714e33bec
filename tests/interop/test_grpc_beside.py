"""What a user of the Java client of RocketMQ 5 sees, on a box and on Apache's proxy: the same assertions for both.

Where the two are not alike a test says so by `served.apache`, and docs/limits.md or docs/pop.md by a row.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.interop.box import until
from tests.interop.client import push_consumer
from tests.interop.grpc_java import JavaClient, View, code_of
from tests.interop.jvm import Jvm
from tests.interop.served import Served
from tests.interop.test_grpc import JAVA, until_member
from tests.interop.test_java_admin import admin
from tests.interop.test_java_pop import until_acknowledged

pytestmark = [pytest.mark.slow, pytest.mark.soak]

OK, EXPIRED_HANDLE = 0, 40013
AGAIN_S = 10  # the least invisible time of either
KILLED_S = 60  # longer than a start of either
EARLY_MS = 50  # a take is answered after its time began
# properties of RocketMQ's own that Apache's proxy hands out
LEAKED = ("__SHARDINGKEY", "__transactionId__", "TRANSACTION_CHECK_TIMES")
SENT = {"number": "0", "läge": "über ✓ 漢字 😀"}


def ready(client: JavaClient, topic: str, group: str, **more: str) -> Any:
    """Return a simple consumer of a group that has begun: at the end of its topic."""
    consumer = client.simple_consumer(topic, group, **more)
    assert consumer.receive() == []
    return consumer


def made_group(jvm: Jvm, served: Served, what: str, *, orderly: bool = False, retries: int = 16) -> str:
    group = served.group(what)
    with admin(jvm, served) as tool:
        config = jvm.new("remoting.protocol.subscription.SubscriptionGroupConfig")
        config.setGroupName(group)
        config.setConsumeMessageOrderly(orderly)
        config.setRetryMaxTimes(retries)
        tool.createAndUpdateSubscriptionGroupConfig(served.broker, config)
    return group


def by_key(seen: list[View]) -> dict[str, View]:
    found = {each.keys[0]: each for each in seen}
    assert len(found) == len(seen), f"twice: {[each.keys for each in seen]}"
    return found


@pytest.mark.feature("gRPC: every kind of message as a simple consumer sees it", client=JAVA)
def test_a_message_of_each_kind_comes_with_what_was_sent(java5: Jvm, served: Served) -> None:
    topic, group, client = served.topic("kinds"), served.group("kinds"), JavaClient(java5, served, tls=False)
    consumer, producer = ready(client, topic, group), client.producer(topic)
    began_ms = int(time.time() * 1000)
    due_ms = began_ms + 3000
    try:
        ids = {
            f"key-{n}": str(producer.send(made.build()).getMessageId())
            for n, made in (
                (0, client.message(topic, 0)),
                (1, client.message(topic, 1).setMessageGroup("one")),
                (2, client.message(topic, 2).setDeliveryTimestamp(due_ms)),
            )
        }
        for number, how in ((3, "commit"), (4, "rollback"), (5, "")):
            transaction = producer.beginTransaction()
            ids[f"key-{number}"] = str(producer.send(client.message(topic, number).build(), transaction).getMessageId())
            if how:
                getattr(transaction, how)()
        seen = by_key(consumer.receive_all(5))
        consumer.ack(*seen.values())
        assert consumer.receive() == []
    finally:
        producer.close()
        consumer.close()
    assert {each.keys[0]: each.id for each in seen.values()} == {key: ids[key] for key in seen}
    assert sorted(seen) == ["key-0", "key-1", "key-2", "key-3", "key-5"], "the one that was rolled back stays away"
    for key, each in seen.items():
        number = int(key[4:])
        assert (each.topic, each.body, each.tag) == (topic, f"java {number} ✓", f"tag{number % 3}")
        own = {name: value for name, value in each.properties.items() if not served.apache or name not in LEAKED}
        assert own == {**SENT, "number": str(number)}
        assert (each.attempt, each.message_group) == (1, "one" if number == 1 else "")
        assert began_ms <= each.born_ms <= each.came_ms
        assert each.due_ms == (due_ms if number == 2 else 0)
    assert seen["key-2"].came_ms >= due_ms
    assert client.checked.is_set(), "what was left undecided was asked for"


@pytest.mark.feature(
    "gRPC: simple consumer: what is not acknowledged comes again, counted, not before its time", client=JAVA
)
def test_what_is_not_acknowledged_comes_again_when_its_time_is_over(java5: Jvm, served: Served) -> None:
    topic, group, client = served.topic("again", 1), served.group("again"), JavaClient(java5, served, tls=False)
    consumer, producer = ready(client, topic, group), client.producer(topic)
    try:
        for number in range(4):
            producer.send(client.message(topic, number).build())
        asked_ms = int(time.time() * 1000)
        first = by_key(consumer.receive_all(4, AGAIN_S))
        consumer.ack(first["key-0"])
        changed_ms = int(time.time() * 1000)
        consumer.change(first["key-1"], 2)
        consumer.change(first["key-2"], 20)
        second = by_key(consumer.receive_all(3, 30))
        late = code_of(lambda: consumer.ack(first["key-3"]))
        consumer.ack(*second.values())
        assert code_of(lambda: consumer.ack(second["key-1"])) == OK, "twice is fine"
        assert consumer.receive() == []
    finally:
        producer.close()
        consumer.close()
    assert [each.attempt for each in first.values()] == [1] * 4
    assert {key: each.attempt for key, each in second.items()} == {"key-1": 2, "key-2": 2, "key-3": 2}
    assert list(second) == ["key-1", "key-3", "key-2"], "in the order of their times"
    assert second["key-1"].came_ms >= changed_ms + 2000 - EARLY_MS
    assert second["key-3"].came_ms >= asked_ms + AGAIN_S * 1000 - EARLY_MS
    assert second["key-2"].came_ms >= changed_ms + 20_000 - EARLY_MS
    assert late == EXPIRED_HANDLE
    assert second["key-1"].id == first["key-1"].id


@pytest.mark.feature("gRPC: dead letters of a simple consumer after the last retry", client=JAVA)
def test_a_message_becomes_a_dead_letter_after_its_last_retry(java5: Jvm, served: Served, jvm4: Jvm, jvm5: Jvm) -> None:
    topic, group = served.topic("dead"), made_group(jvm5, served, "dead", retries=1)
    client = JavaClient(java5, served, tls=False)
    consumer, producer = ready(client, topic, group), client.producer(topic)
    try:
        sent = str(producer.send(client.message(topic, 0).build()).getMessageId())
        attempts = [each.attempt for each in consumer.receive_all(2, AGAIN_S)]
        consumer.receive_all(1, AGAIN_S, seconds=AGAIN_S + 8)
        with push_consumer(jvm4, served.namesrv, f"%DLQ%{group}") as collected:
            (dead,) = collected.wait_count(1, 60)
        assert consumer.receive() == []
    finally:
        producer.close()
        consumer.close()
    assert attempts == [1, 2]
    assert (dead.body.decode(), dead.tags, dead.keys) == ("java 0 ✓", "tag0", "key-0")
    assert dead.properties["UNIQ_KEY"] == sent
    assert {name: dead.properties[name] for name in SENT} == SENT


@pytest.mark.feature("gRPC: push consumer: pauses between retries", client=JAVA)
def test_a_push_consumer_gets_a_failed_message_after_one_second_and_after_five(
    java5: Jvm, served: Served, jvm4: Jvm
) -> None:
    topic, group, client = served.topic("nack"), served.group("nack"), JavaClient(java5, served, tls=False)
    client.hopeless = "key-7"
    consumer, producer = client.push_consumer(topic, group), client.producer(topic)
    try:
        until_member(served, jvm4, group)
        producer.send(client.message(topic, 7).build())
        until(lambda: len(client.seen) >= 3, seconds=60, what=lambda: f"{client.seen}")
    finally:
        producer.close()
        consumer.close()
    assert client.seen[:3] == [("key-7", 1), ("key-7", 2), ("key-7", 3)]
    first_s, second_s = (later - earlier for earlier, later in pairwise(client.came_s[:3]))
    assert first_s >= 1.0
    assert second_s >= 5.0


@pytest.mark.feature("gRPC: FIFO consumer; a message that always fails ends among the dead letters", client=JAVA)
def test_a_fifo_consumer_keeps_the_order_and_puts_what_fails_aside(
    java5: Jvm, served: Served, jvm4: Jvm, jvm5: Jvm
) -> None:
    topic, group = served.topic("fifo"), made_group(jvm5, served, "fifo", orderly=True, retries=1)
    client = JavaClient(java5, served, tls=False)
    client.hopeless = "key-1"
    consumer, producer = client.push_consumer(topic, group), client.producer(topic)
    try:
        until_member(served, jvm4, group)
        for number in range(4):
            producer.send(client.message(topic, number).setMessageGroup("one").build())
        until(lambda: ("key-3", 1) in client.seen, seconds=90, what=lambda: f"{client.seen}")
        with push_consumer(jvm4, served.namesrv, f"%DLQ%{group}") as collected:
            (dead,) = collected.wait_count(1, 60)
    finally:
        producer.close()
        consumer.close()
    assert client.seen == [("key-0", 1), ("key-1", 1), ("key-1", 2), ("key-2", 1), ("key-3", 1)]
    assert dead.keys == "key-1"


@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [("TAG", "tag1 || tag2", {1, 2, 4, 5}), ("SQL92", "number > 3 AND TAGS <> 'tag1'", {5})],
    ids=["tags", "SQL"],
)
@pytest.mark.feature("gRPC: filters by tag and by SQL92", client=JAVA)
def test_a_filter_lets_through_what_it_names(
    java5: Jvm, served: Served, kind: str, expression: str, wanted: set[int]
) -> None:
    topic, group, client = served.topic("filter"), served.group("filter"), JavaClient(java5, served, tls=False)
    consumer = ready(client, topic, group, expression=expression, kind=kind)
    producer = client.producer(topic)
    try:
        for number in range(6):
            producer.send(client.message(topic, number).build())
        seen = by_key(consumer.receive_all(len(wanted)))
        consumer.ack(*seen.values())
        assert consumer.receive() == []
    finally:
        producer.close()
        consumer.close()
    assert set(seen) == {f"key-{number}" for number in wanted}


@pytest.mark.feature("gRPC: a consumer starts again and goes on where its group was", client=JAVA)
def test_a_consumer_that_starts_again_gets_the_rest_and_nothing_twice(
    java5: Jvm, served: Served, jvm4: Jvm, jvm5: Jvm
) -> None:
    topic, group, client = served.topic("resume"), served.group("resume"), JavaClient(java5, served, tls=False)
    client.fails = False
    producer, consumer = client.producer(topic), client.push_consumer(topic, group)
    try:
        until_member(served, jvm4, group)
        for number in range(10):
            producer.send(client.message(topic, number).build())
        until(lambda: len(client.seen) >= 10, seconds=60, what=lambda: f"{client.seen}")
        with admin(jvm5, served) as tool:
            until_acknowledged(tool, topic, group)  # the client gives what is on its way one second when it closes
        consumer.close()
        for number in range(10, 20):
            producer.send(client.message(topic, number).build())
        consumer = client.push_consumer(topic, group)
        until(lambda: len(client.seen) >= 20, seconds=60, what=lambda: f"{client.seen}")
    finally:
        producer.close()
        consumer.close()
    assert sorted(client.seen) == sorted((f"key-{number}", 1) for number in range(20))


@pytest.mark.feature("gRPC: kill -9 of the server between receive and acknowledgement", client=JAVA)
def test_clients_go_on_after_the_server_was_killed(java5: Jvm, served: Served) -> None:
    topic, group, client = served.topic("killed", 1), served.group("killed"), JavaClient(java5, served, tls=False)
    consumer, producer = ready(client, topic, group), client.producer(topic)
    try:
        for number in range(4):
            producer.send(client.message(topic, number).build())
        first = by_key(consumer.receive_all(3, KILLED_S)[:3])
        served.kill()
        served.start()
        patiently(lambda: producer.send(client.message(topic, 4).build()))
        patiently(lambda: consumer.ack(first["key-0"], first["key-1"]))
        seen = list[View]()
        end = time.monotonic() + 2 * KILLED_S
        while {"key-2", "key-3", "key-4"} - {each.keys[0] for each in seen} and time.monotonic() < end:
            seen += patiently(lambda: consumer.receive(KILLED_S))
        consumer.ack(*seen)
    finally:
        producer.close()
        consumer.close()
    came = {each.keys[0] for each in seen}
    if served.apache:  # which keeps acknowledgements in memory for some seconds
        came -= {"key-0", "key-1"}
    assert came == {"key-2", "key-3", "key-4"}, "what was acknowledged stays away"


def patiently(call: Callable[[], Any]) -> Any:
    """Return what a call gives once it does not fail: a connection that has ended fails what is asked on it."""
    end = time.monotonic() + 60
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


@pytest.mark.feature("gRPC: a transaction is checked by another producer after its own has left", client=JAVA)
def test_an_undecided_transaction_is_checked_by_the_next_producer(java5: Jvm, served: Served) -> None:
    topic, group, client = served.topic("orphan"), served.group("orphan"), JavaClient(java5, served, tls=False)
    consumer, producer = ready(client, topic, group), client.producer(topic)
    try:
        producer.send(client.message(topic, 5).build(), producer.beginTransaction())
        producer.close()
        asked_first = client.checked.is_set()
        client.checked.clear()
        producer = client.producer(topic)
        seen = consumer.receive_all(1)
        consumer.ack(*seen)
    finally:
        producer.close()
        consumer.close()
    assert [each.keys for each in seen] == [["key-5"]]
    assert asked_first or client.checked.is_set()
