"""The Java client of RocketMQ 5 through hand-overs and ends of leaders, with and without an address that moves.

It sends, receives and acknowledges all the time: nothing acknowledged is lost. Prints the figures of docs/group.md.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.group.bridge import BridgedMember, boxes, bridged, can_bridge
from tests.appliance.group.certificates import needs_openssl
from tests.interop.box import until
from tests.interop.client import unique
from tests.interop.grpc_java import JavaClient
from tests.interop.jars import Unavailable
from tests.interop.jvm import Jvm
from tests.interop.programs import Program, go5_program, node5_program, python5_program, rust5_program
from tests.interop.test_group import TimedSenders, hand_over, leader_of, linked
from tests.interop.test_group_switches import ADDRESS, make_topic, rounds
from tests.interop.threads import threads_running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    needs_openssl,
    pytest.mark.skipif(not can_bridge(), reason="needs root, `ip` and network namespaces"),
]
GRPC_PORT = 8081
RECEIVERS, BATCH, INVISIBLE_S = 2, 16, 15


class Group:
    """Where clients find a group: one address or those of all, at one port."""

    def __init__(self, hosts: list[str]) -> None:
        self.endpoint = ";".join(f"{host}:{GRPC_PORT}" for host in hosts)


class GrpcSenders(TimedSenders):
    """Threads that send by the gRPC client."""

    def __init__(self, java: JavaClient, client: Any, topic: str) -> None:
        super().__init__(java.jvm, client, topic)
        self._java = java

    def send(self, body: bytes) -> bool:
        builder = self._java.provider.newMessageBuilder().setTopic(self._topic).setBody(body)
        self._client.send(builder.build())
        return True


class Receivers:
    """Threads that receive and acknowledge by one simple consumer."""

    def __init__(self, java: JavaClient, topic: str, group: str) -> None:
        jvm = java.jvm
        self._duration = jvm.cls("java.time.Duration")
        self._utf8 = jvm.cls("java.nio.charset.StandardCharsets").UTF_8
        builder = java.provider.newSimpleConsumerBuilder().setClientConfiguration(java.configuration)
        builder = builder.setConsumerGroup(group).setAwaitDuration(self._duration.ofSeconds(5))
        self._consumer = builder.setSubscriptionExpressions(java.filters(topic)).build()
        self._stop = threading.Event()
        self.seen, self.failed = set[bytes](), list[str]()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for view in self._consumer.receive(BATCH, self._duration.ofSeconds(INVISIBLE_S)):
                    body = str(self._utf8.decode(view.getBody()).toString()).encode()
                    self.seen.add(body)  # a kill may take the answer to what counts
                    self._consumer.ack(view)
            except Exception as error:
                self.failed.append(str(error).splitlines()[0][:100])
                self._stop.wait(0.2)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with threads_running([self._run] * RECEIVERS, self._stop, end_s=60):
                yield
        finally:
            with suppress(Exception):
                self._consumer.close()


@contextmanager
def three(folder: Path, *, floating: bool) -> Iterator[tuple[list[BridgedMember], Group]]:
    more = (ADDRESS if floating else "") + f"[grpc]\nport = {GRPC_PORT}\n"
    with bridged(folder, more, timing=1.0) as members:
        made = boxes(members)
        linked(list(made))
        network = made[0].host.rpartition(".")[0]
        yield made, Group([f"{network}.200"] if floating else [each.host for each in made])


def follower_rounds(made: list[BridgedMember], senders: GrpcSenders) -> list[tuple[float, int]]:
    """End each follower twice: clients may be relayed by it. Return the longest pause and failed sends of each."""
    found = list[tuple[float, int]]()
    for number in range(4):
        linked(list(made))
        leader = leader_of(list(made))
        follower = [each for each in made if each is not leader][number % 2]
        began = time.monotonic()
        follower.kill()
        senders.more(50)
        found.append(senders.since(began))
        follower.start()
        senders.more(50)
    print(f"kill -9 of a follower: {found}")
    return found


@pytest.mark.parametrize("floating", [True, False], ids=["floating address", "none"])
def test_a_java_client_goes_on_with_the_next_leader(java5: Jvm, tmp_path: Path, floating: bool) -> None:
    topic, group = unique("group"), unique("group_group")
    with three(tmp_path, floating=floating) as (made, where):
        make_topic(made, topic)
        java = JavaClient(java5, where, tls=False)
        client = java.producer(topic)
        senders, receivers = GrpcSenders(java, client, topic), Receivers(java, topic, group)
        with receivers.running():
            with senders.running():
                found = rounds(made, senders)
                found["follower"] = [] if floating else follower_rounds(made, senders)
            client.close()
            wanted = senders.acknowledged.keys()
            missing = lambda: f"{len(wanted - receivers.seen)} of {len(wanted)} are missing"  # noqa: E731
            until(lambda: wanted <= receivers.seen, seconds=120, what=missing)
        print(f"failed sends: {Counter(text for _, text in senders.failed)}")
        print(f"failed receives: {Counter(receivers.failed)}")
    assert max(pause for each in found.values() for pause, _ in each) < 60
    assert not any(failed for name, each in found.items() if name != "kill -9" for _, failed in each)


@pytest.mark.parametrize(
    ("make", "separator"),
    [(python5_program, ";"), (go5_program, ";"), (rust5_program, ""), (node5_program, "")],
    ids=["python", "go", "rust", "node"],
)
def test_other_clients_are_served_by_any_box(tmp_path: Path, make: Callable[[], Program], separator: str) -> None:
    """Those that take several addresses are told them again; of those that take one each box is tried.

    Rust 5.0.0 takes several, and does not start while nobody listens at one of them.
    """
    try:
        program = make()
    except Unavailable as error:
        pytest.skip(str(error))
    home = {"HOME": str(tmp_path), "CLIENT_LOG_ROOT": str(tmp_path), "ENABLE_CONSOLE_APPENDER": "false"}
    topic, group = unique("group"), unique("group_group")
    with three(tmp_path, floating=False) as (made, _):
        make_topic(made, topic)
        addresses = [f"{each.host}:{GRPC_PORT}" for each in made]
        given = [separator.join(addresses[at:] + addresses[:at]) for at in range(3)] if separator else addresses
        for endpoint in given:
            assert len(program.run("send", endpoint, topic, 30, **home)) == 30
        hand_over(list(made))
        assert len(program.run("send", given[0], topic, 30, **home)) == 30
        linked(list(made))
        leader = leader_of(list(made))
        leader.kill()
        left = given[0] if separator else next(f"{each.host}:{GRPC_PORT}" for each in made if each is not leader)
        until(lambda: sends(program, left, topic, home), seconds=90, what="no send after a kill")
        seen = [each for each in program.run("simple", left, topic, group, 120, **home) if "body" in each]
        assert len(seen) >= 120


def sends(program: Program, endpoint: str, topic: str, home: dict[str, str]) -> bool:
    """Send, and tell whether the program started and all went well: some give up while nobody leads."""
    try:
        return len(program.run("send", endpoint, topic, 30, **home)) == 30
    except AssertionError:
        return False
