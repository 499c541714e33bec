"""What an application is told of its own mistakes by the clients of RocketMQ 5: on a box as on Apache's proxy.

A row has what the client says: a code, or the name of its own error where it checks itself. docs/limits.md has what
Apache's proxy answers otherwise.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import jars
from tests.interop.apache_proxy import apache_proxy
from tests.interop.grpc_java import JavaClient, code_of
from tests.interop.jvm import Jvm
from tests.interop.programs import HERE, Program
from tests.interop.served import APACHE, Served
from tests.interop.test_grpc import JAVA, NODE, PYTHON
from tests.interop.wire import make_topic

pytestmark = [pytest.mark.slow, pytest.mark.soak]  # each waits for handles to expire

WHAT = "gRPC: an application is told of its mistakes"
FAULT, LEAST_S = 50001, 10
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
OF_APACHE = {"consumes by no SQL": FAULT}


@pytest.fixture(scope="module", params=["box", APACHE])
def strict(request: pytest.FixtureRequest, module_path: Path) -> Iterator[Served]:
    """A box, and beside it Apache's proxy as it is by default: a topic takes messages of its type alone."""
    if request.param != APACHE:
        yield request.getfixturevalue("box5")
        return
    try:
        with apache_proxy(module_path / "strict", proxy={}) as proxy:
            yield proxy
    except jars.Unavailable as error:
        pytest.skip(str(error))


def wanted(strict: Served, *parts: dict[str, Any]) -> dict[str, Any]:
    rows = {name: seen for part in parts for name, seen in part.items()}
    return {**rows, **(OF_APACHE if strict.apache else {})}


def told(program: Program, strict: Served, script: Path, home: dict[str, str]) -> dict[str, Any]:
    """Return what a client said of each mistake."""
    normal, fifo = f"normal_{program.name}", f"fifo_{program.name}"
    make_topic(strict.broker, normal, 1, "+message.type=NORMAL")
    make_topic(strict.broker, fifo, 1, "+message.type=FIFO")
    run = Program(program.name, (program.command[0], str(script)))
    said = run.run(strict.endpoint, normal, fifo, strict.group(f"{program.name}_mistakes"), **home)
    return {row["mistake"]: row["seen"] for row in said}


@pytest.mark.feature(WHAT, client=PYTHON)
def test_python_says_what_is_wrong(python5: Program, strict: Served, home: dict[str, str]) -> None:
    said = told(python5, strict, HERE / "python5" / "mistakes.py", home)
    assert said == wanted(strict, SENDS, CONSUMES, OF_PYTHON)


@pytest.mark.feature(WHAT, client=NODE)
def test_node_says_what_is_wrong(node5: Program, strict: Served, home: dict[str, str]) -> None:
    said = told(node5, strict, Path(node5.command[1]).with_name("mistakes.js"), home)
    if strict.apache:  # whose refusal of settings Node's client takes for none: it waits for ever
        assert (said.pop("consumes by no tag"), said.pop("consumes for no group")) == ("hangs", "hangs")
        said |= {"consumes by no tag": 40010, "consumes for no group": 40003}
    assert said == wanted(strict, SENDS, CONSUMES, OF_NODE)


@pytest.mark.feature(WHAT, client=JAVA)
def test_java_says_what_is_wrong(java5: Jvm, strict: Served) -> None:
    client, group = JavaClient(java5, strict, tls=False), strict.group("java_mistakes")
    topic = strict.topic("java_mistakes", 1)
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
    assert said == wanted(strict, SENDS, CONSUMES, OF_JAVA)


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
