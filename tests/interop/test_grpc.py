"""The official clients of RocketMQ 5 against a box's gRPC port, beside stock remoting clients on the same topics."""

import socket
import time
from typing import Any

import pytest

from tests.interop.box import until
from tests.interop.client import producer, push_consumer
from tests.interop.grpc_java import JAVA_VERSION, JavaClient
from tests.interop.jvm import Jvm
from tests.interop.programs import Program, finished
from tests.interop.served import GrpcBox, Served
from tests.interop.test_java_admin import admin
from tests.interop.wire import command, frame, what_comes_back

pytestmark = pytest.mark.slow

JAVA, PYTHON, NODE = f"Java gRPC {JAVA_VERSION}", "Python gRPC 5.1.2", "Node gRPC 1.0.8"
RUST, GO = "Rust gRPC 5.0.0", "Go gRPC 5.1.4"


def check_intact(seen: list[Any], sender: str, count: int) -> None:
    """Compare what a stock remoting consumer got, or a consumer of another program, with what was sent."""
    fields = [each if isinstance(each, dict) else _fields(each) for each in seen]
    assert sorted(int(each["properties"]["number"]) for each in fields) == list(range(count))
    for each in fields:
        number = int(each["properties"]["number"])
        assert (each["body"], each["tag"]) == (f"{sender} {number} ✓", f"tag{number % 3}")
        assert each["keys"] == [f"key-{number}"]
        assert each["properties"]["läge"] == "über ✓ 漢字 😀"


def _fields(seen: Any) -> dict[str, Any]:
    properties = seen.properties
    return {
        "body": seen.body.decode(),
        "tag": seen.tags,
        "keys": (seen.keys or "").split(),
        "properties": properties,
        "id": properties["UNIQ_KEY"],
    }


def send_to_remoting(program: Program, box: Served, jvm: Jvm, home: dict[str, str], sender: str) -> None:
    topic = box.topic(f"{program.name}_send")
    with push_consumer(jvm, box.namesrv, topic) as collected:
        sent = program.run("send", box.endpoint, topic, 100, **home)
        seen = collected.wait_count(100)
    check_intact(seen, sender, 100)
    assert {each.properties["UNIQ_KEY"] for each in seen} == {each["id"] for each in sent}


@pytest.mark.feature("gRPC: sends reach a remoting consumer with equal ids, keys, tags, properties", client=PYTHON)
def test_python_sends_to_a_remoting_consumer(python5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_to_remoting(python5, served, jvm4, home, "python")


@pytest.mark.feature("gRPC: sends reach a remoting consumer with equal ids, keys, tags, properties", client=NODE)
def test_node_sends_to_a_remoting_consumer(node5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_to_remoting(node5, served, jvm4, home, "node")


@pytest.mark.soak  # the client and what it needs are built first, two minutes
@pytest.mark.feature("gRPC: sends reach a remoting consumer with equal ids, keys, tags, properties", client=RUST)
def test_rust_sends_to_a_remoting_consumer(rust5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_to_remoting(rust5, served, jvm4, home, "rust")


@pytest.mark.soak
@pytest.mark.feature("gRPC: FIFO and delay", client=RUST)
def test_rust_sends_in_order_and_for_later(rust5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    topic = served.topic("rust_kinds")
    with push_consumer(jvm4, served.namesrv, topic) as collected:
        (delayed,) = rust5.run("delay", served.endpoint, topic, 2, **home)
        rust5.run("fifo", served.endpoint, topic, "one-group", 10, **home)
        seen = collected.wait_count(11)
    (later,) = [each for each in seen if each.body == b"later"]
    assert later.store_ms >= delayed["due_s"] * 1000
    ordered = [each for each in seen if each.body != b"later"]
    assert len({each.queue_id for each in ordered}) == 1
    assert [each.body for each in sorted(ordered, key=lambda one: one.queue_offset)] == [b"%d" % n for n in range(10)]


@pytest.mark.soak
@pytest.mark.feature("gRPC: simple consumer of a remoting producer", client=RUST)
def test_rust_receives_from_a_remoting_producer(
    rust5: Program, served: Served, jvm4: Jvm, home: dict[str, str]
) -> None:
    receive_from_remoting(rust5, served, jvm4, home)


def send_every_kind(program: Program, box: Served, jvm: Jvm, home: dict[str, str]) -> None:
    topic = box.topic(f"{program.name}_kinds")
    with push_consumer(jvm, box.namesrv, topic) as collected:
        said = program.run("kinds", box.endpoint, topic, **home)
        seen = collected.wait_count(4)
    assert sorted(each.body for each in seen) == [b"check", b"commit", b"delay", b"fifo"]
    assert any(each.get("checked") == "check" for each in said)
    (delayed,) = [each for each in seen if each.body == b"delay"]
    assert delayed.store_ms - delayed.born_ms >= 1000
    (recalled,) = [each for each in said if "recalled" in each]
    assert recalled["recalled"] == recalled["id"]


@pytest.mark.feature("gRPC: FIFO, delay, recall, transactions with checks", client=PYTHON)
def test_python_sends_every_kind(python5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_every_kind(python5, served, jvm4, home)


@pytest.mark.soak  # the client and what it needs are built first
@pytest.mark.feature("gRPC: sends reach a remoting consumer with equal ids, keys, tags, properties", client=GO)
def test_go_sends_to_a_remoting_consumer(go5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_to_remoting(go5, served, jvm4, home, "go")


@pytest.mark.soak
@pytest.mark.feature("gRPC: FIFO, delay, recall, transactions with checks", client=GO)
def test_go_sends_every_kind(go5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_every_kind(go5, served, jvm4, home)


@pytest.mark.soak
@pytest.mark.feature("gRPC: simple consumer of a remoting producer", client=GO)
def test_go_receives_from_a_remoting_producer(go5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    receive_from_remoting(go5, served, jvm4, home)


@pytest.mark.soak
@pytest.mark.feature("gRPC: push consumer; a failed message is delivered again", client=GO)
def test_a_message_that_go_failed_comes_again(go5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    push_again(go5, served, jvm4, home, "go")


@pytest.mark.soak
@pytest.mark.feature("gRPC: FIFO, delay, recall, transactions with checks", client=NODE)
def test_node_sends_every_kind(node5: Program, served: Served, jvm4: Jvm, home: dict[str, str]) -> None:
    send_every_kind(node5, served, jvm4, home)


@pytest.mark.soak
@pytest.mark.feature("gRPC: push consumer; a failed message is delivered again", client=NODE)
def test_a_message_that_node_failed_comes_again(
    node5: Program, served: Served, jvm4: Jvm, home: dict[str, str]
) -> None:
    push_again(node5, served, jvm4, home, "node")


def receive_from_remoting(program: Program, box: Served, jvm: Jvm, home: dict[str, str]) -> list[dict[str, Any]]:
    """Let a simple consumer wait for what a stock remoting producer sends then."""
    # Of one queue: a new group begins at the end of each queue when it first receives from it.
    topic, group = box.topic("simple", queues=1), box.group("simple_group")
    process = program.start("simple", box.endpoint, topic, group, 30, **home)
    with producer(jvm, box.namesrv) as client:
        until_member(box, jvm, group)
        ids = set()
        for number in range(30):
            made = jvm.message(topic, f"java {number} ✓".encode(), tags=f"tag{number % 3}", keys=f"key-{number}")
            made.putUserProperty("number", str(number))
            made.putUserProperty("läge", "über ✓ 漢字 😀")
            ids.add(client.send(made).getMsgId())
    seen = [each for each in finished(process) if "body" in each]
    check_intact(seen, "java", 30)
    assert len({each["id"] for each in seen}) == 30
    return seen


def until_member(box: Served, jvm: Jvm, group: str) -> None:
    """Wait until a group has received once: it begins where the topic ends."""

    def begun() -> bool:
        host, port = box.broker.split(":")
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(frame(command(38, consumerGroup=group)))
            return b"consumerIdList" in what_comes_back(connection)

    until(begun, seconds=60, what=f"nobody joined {group}")


@pytest.mark.feature("gRPC: simple consumer of a remoting producer", client=PYTHON)
def test_python_receives_from_a_remoting_producer(
    python5: Program, served: Served, jvm4: Jvm, home: dict[str, str]
) -> None:
    receive_from_remoting(python5, served, jvm4, home)


@pytest.mark.feature("gRPC: simple consumer of a remoting producer", client=NODE)
def test_node_receives_from_a_remoting_producer(
    node5: Program, served: Served, jvm4: Jvm, home: dict[str, str]
) -> None:
    receive_from_remoting(node5, served, jvm4, home)


@pytest.mark.feature("gRPC: push consumer; a failed message is delivered again", client=PYTHON)
def test_a_message_that_python_failed_comes_again(
    python5: Program, served: Served, jvm4: Jvm, home: dict[str, str]
) -> None:
    push_again(python5, served, jvm4, home, "python")


def push_again(program: Program, box: Served, jvm: Jvm, home: dict[str, str], sender: str) -> None:
    """Let a push consumer fail one of ten messages once."""
    topic, group = box.topic("push"), box.group("push_group")
    process = program.start("push", box.endpoint, topic, group, 10, **home)
    until_member(box, jvm, group)
    program.run("send", box.endpoint, topic, 10, **home)
    seen = [each for each in finished(process) if "body" in each]
    assert sorted(each["attempt"] for each in seen if each["keys"] == ["key-1"]) == [1, 2]
    assert {each["body"] for each in seen} == {f"{sender} {number} ✓" for number in range(10)}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.feature("gRPC: sends reach a remoting consumer with equal ids, keys, tags, properties", client=JAVA)
def test_java_sends_to_a_remoting_consumer(java5: Jvm, served: Served, jvm4: Jvm, tls: bool) -> None:
    topic, client = served.topic("java_send"), JavaClient(java5, served, tls=tls)
    made = client.producer(topic)
    try:
        with push_consumer(jvm4, served.namesrv, topic) as collected:
            ids = {str(made.send(client.message(topic, n).build()).getMessageId()) for n in range(100)}
            seen = collected.wait_count(100)
    finally:
        made.close()
    check_intact(seen, "java", 100)
    assert {each.properties["UNIQ_KEY"] for each in seen} == ids


@pytest.mark.feature("gRPC: FIFO, delay, recall, transactions with checks", client=JAVA)
def test_java_sends_every_kind(java5: Jvm, served: Served, jvm4: Jvm) -> None:
    topic, client = served.topic("java_kinds"), JavaClient(java5, served, tls=False)
    made = client.producer(topic)
    now_ms = int(java5.cls("java.lang.System").currentTimeMillis())
    try:
        with push_consumer(jvm4, served.namesrv, topic) as collected:
            made.send(client.message(topic, 0).setMessageGroup("g").build())
            made.send(client.message(topic, 1).setDeliveryTimestamp(now_ms + 2000).build())
            for number, how in ((2, "commit"), (3, "rollback"), (4, "")):
                transaction = made.beginTransaction()
                made.send(client.message(topic, number).build(), transaction)
                if how:
                    getattr(transaction, how)()
            assert client.checked.wait(60)
            seen = collected.wait_count(4)
    finally:
        made.close()
    assert sorted(each.body for each in seen) == [f"java {number} ✓".encode() for number in (0, 1, 2, 4)]


@pytest.mark.feature("gRPC: push consumer; a failed message is delivered again", client=JAVA)
def test_a_message_that_java_failed_comes_again(java5: Jvm, served: Served, jvm4: Jvm) -> None:
    topic, group, client = served.topic("java_push"), served.group("java_group"), JavaClient(java5, served, tls=False)
    consumer = client.push_consumer(topic, group)
    try:
        until_member(served, jvm4, group)
        made = client.producer(topic)
        for number in range(10):
            made.send(client.message(topic, number).build())
        until(lambda: len(client.seen) >= 11, seconds=60, what=lambda: f"{client.seen}")
        made.close()
    finally:
        consumer.close()
    assert sorted(client.seen) == sorted([("key-1", 2), *((f"key-{number}", 1) for number in range(10))])


def offset_id_of(tool: Any, topic: str, key: str) -> str:
    """Return the offset id of the only message with a key."""
    now_ms = int(time.time() * 1000)

    def found() -> list[Any]:
        try:
            return list(tool.queryMessage(topic, key, 32, now_ms - 60_000, now_ms + 60_000).getMessageList())
        except Exception:  # the index is written a moment after the message
            return []

    (message,) = until(found, seconds=60, what=f"no message with key {key}")
    return str(message.getOffsetMsgId())


@pytest.mark.feature("gRPC: stacks of a consumer and direct consumption through stock tools", client=JAVA)
def test_a_java_consumer_shows_its_stacks_and_consumes_what_it_is_told_to(java5: Jvm, box5: GrpcBox, jvm4: Jvm) -> None:
    topic, group, client = box5.topic("java_asked"), box5.group("java_asked_group"), JavaClient(java5, box5, tls=False)
    consumer = client.push_consumer(topic, group)
    try:
        until_member(box5, jvm4, group)
        made = client.producer(topic)
        made.send(client.message(topic, 7).build())
        made.close()
        until(lambda: len(client.seen) == 1, seconds=60, what=lambda: f"{client.seen}")
        with admin(jvm4, box5) as tool:
            (connection,) = list(tool.examineConsumerConnectionInfo(group).getConnectionSet())
            info = tool.getConsumerRunningInfo(group, connection.getClientId(), True)
            assert topic in {item.getTopic() for item in info.getSubscriptionSet()}
            assert "java.lang.Thread" in info.getJstack()
            assert "#Consumer Subscription#" in info.formatString()
            message_id = offset_id_of(tool, topic, "key-7")
            answer = tool.consumeMessageDirectly(group, connection.getClientId(), topic, message_id)
            assert answer.getConsumeResult().toString() == "CR_SUCCESS"
    finally:
        consumer.close()
    assert client.seen == [("key-7", 1)] * 2
