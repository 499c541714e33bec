"""What an application is told of its own mistakes by the clients of RocketMQ 5.

A row has what the client says: a code, or the name of its own error where it checks itself.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.grpc_java import JavaClient, code_of
from tests.interop.jvm import Jvm
from tests.interop.programs import HERE, Program
from tests.interop.served import GrpcBox
from tests.interop.test_grpc import JAVA, NODE, PYTHON
from tests.interop.wire import make_topic

pytestmark = [pytest.mark.slow, pytest.mark.soak]  # each waits for handles to expire

WHAT = "gRPC: an application is told of its mistakes"
LEAST_S = 10
SENDS = {
    "a reserved property": 40007,
    "129 properties": 43101,
    "17,000 bytes of properties": 43101,
}
CONSUMES = {
    "consumes by no SQL": 40010,
    "is given back too soon": 40011,
    "acknowledges twice": "ok",
    "acknowledges late": 40013,
}
OF_PYTHON = {  # it keeps the code of a route for its log
    "no topic": "Exception",
    "consumes no topic": "Exception",
    **dict.fromkeys(("normal to FIFO", "FIFO to normal", "a large body"), "IllegalArgumentException"),
}
OF_NODE = {
    **dict.fromkeys(("no topic", "consumes no topic"), 40402),
    **dict.fromkeys(("normal to FIFO", "FIFO to normal", "a large body"), "TypeError"),
    "consumes by no tag": 40010,
    "consumes for no group": 40003,
}
OF_JAVA = {"no topic": 40402, "consumes no topic": 40402}


def told(program: Program, box5: GrpcBox, script: Path, home: dict[str, str]) -> dict[str, Any]:
    """Return what a client said of each mistake."""
    normal, fifo = f"normal_{program.name}", f"fifo_{program.name}"
    make_topic(box5.broker, normal, 1, "+message.type=NORMAL")
    make_topic(box5.broker, fifo, 1, "+message.type=FIFO")
    run = Program(program.name, (program.command[0], str(script)))
    said = run.run(box5.endpoint, normal, fifo, box5.group(f"{program.name}_mistakes"), **home)
    return {row["mistake"]: row["seen"] for row in said}


@pytest.mark.feature(WHAT, client=PYTHON)
def test_python_says_what_is_wrong(python5: Program, box5: GrpcBox, home: dict[str, str]) -> None:
    said = told(python5, box5, HERE / "python5" / "mistakes.py", home)
    assert said == {**SENDS, **CONSUMES, **OF_PYTHON}


@pytest.mark.feature(WHAT, client=NODE)
def test_node_says_what_is_wrong(node5: Program, box5: GrpcBox, home: dict[str, str]) -> None:
    said = told(node5, box5, Path(node5.command[1]).with_name("mistakes.js"), home)
    assert said == {**SENDS, **CONSUMES, **OF_NODE}


@pytest.mark.feature(WHAT, client=JAVA)
def test_java_says_what_is_wrong(java5: Jvm, box5: GrpcBox) -> None:
    client, group = JavaClient(java5, box5, tls=False), box5.group("java_mistakes")
    topic = box5.topic("java_mistakes", 1)
    made, consumer = client.producer(topic), client.simple_consumer(topic, group)
    try:
        consumer.receive()
        made.send(client.message(topic, 0).build())
        first, *_ = consumer.receive_all(1, LEAST_S)
        came_s = time.monotonic()
        said: dict[str, Any] = {name: code_of(call) for name, call in mistakes(client, made, consumer, topic)}
        said["consumes by no SQL"] = code_of(lambda: client.simple_consumer(topic, group, "a >", "SQL92").receive())
        time.sleep(max(0.0, came_s + LEAST_S + 1 - time.monotonic()))
        said["acknowledges late"] = code_of(lambda: consumer.ack(first))
        made.send(client.message(topic, 1).build())
        (second,) = [each for each in consumer.receive_all(2) if each.keys == ["key-1"]]
        consumer.ack(second)
        said["acknowledges twice"] = code_of(lambda: consumer.ack(second)) or "ok"
    finally:
        made.close()
        consumer.close()
    assert said == {**SENDS, **CONSUMES, **OF_JAVA}


def mistakes(client: JavaClient, made: Any, consumer: Any, topic: str) -> list[tuple[str, Callable[[], Any]]]:
    def sends(properties: dict[str, str], of: str = topic) -> Callable[[], Any]:
        builder = client.message(of, 1)
        for name, value in properties.items():
            builder = builder.addProperty(name, value)
        return lambda: made.send(builder.build())

    return [
        ("no topic", sends({}, "no_such_topic")),
        ("a reserved property", sends({"KEYS": "x"})),
        ("129 properties", sends({f"k{number}": "v" for number in range(129)})),
        ("17,000 bytes of properties", sends({"a": "x" * 17_000})),
        ("consumes no topic", lambda: client.simple_consumer("no_such_topic", "java_mistakes")),
        ("is given back too soon", lambda: consumer.receive(5)),
    ]
