"""Clients send to a group of boxes and consume from it while everything fails that the histories of groups know.

Boxes are killed, paused, cut off in every shape, disks stall, fill and are replaced, clocks jump, members change:
nothing acknowledged is lost, each queue keeps a sender's order. They have an address that moves with the leader.
"""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import trio

from netstack.client import Message
from netstack.client.blocking import Producer, PushConsumer
from tests.appliance.group.bridge import boxes, bridged, can_bridge
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.hostile_ground import can_make_ground
from tests.appliance.group.wall_clock import WallClock
from tests.histories.test_linearizable import FAULTS, Fault, Ground, member_replaced, votes_lost
from tests.interop.client import Collected, Seen, producer, push_consumer, unique
from tests.interop.jvm import Jvm
from tests.interop.programs import Program
from tests.interop.stream import Stream
from tests.interop.test_group import TimedSenders, check, linked
from tests.interop.test_group_switches import ADDRESS, make_topic
from tests.interop.threads import threads_running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    needs_openssl,
    pytest.mark.skipif(not (can_bridge() and can_make_ground()), reason="needs root, `ip`, file systems of its own"),
]
SEED = int(os.environ.get("GROUP_SEED", "1"))
BETWEEN = 30  # acknowledgements between two faults
WITNESS = pytest.mark.parametrize("witness", [False, True], ids=["three boxes", "two and a witness"])


class Senders(Protocol):
    """What sends all the time."""

    def more(self, number: int) -> None: ...


class Faulty:
    """A group in network namespaces, its faults in an order of their own, and where clients find it."""

    def __init__(self, ground: Ground, faults: list[Fault], topic: str) -> None:
        self._ground, self._faults, self.topic = ground, faults, topic
        self.namesrv = ";".join(each.namesrv for each in ground.boxes)

    def play(self, senders: Senders) -> None:
        """Let each fault happen once senders are acknowledged again."""
        senders.more(BETWEEN)
        for fault in self._faults:
            print(fault.__name__, flush=True)
            trio.run(self._happen, fault)
            senders.more(BETWEEN)

    async def _happen(self, fault: Fault) -> None:
        await fault(self._ground)
        await self._ground.revived()


@contextmanager
def faulty(folder: Path, *, witness: bool) -> Iterator[Faulty]:
    dice = random.Random(SEED)
    faults = [*FAULTS, votes_lost if witness else member_replaced]
    dice.shuffle(faults)
    clocks = {name: WallClock(folder / f"{name}.clock") for name in "abc"}
    preloaded = {name: clock.environment for name, clock in clocks.items()}
    more = ADDRESS + ("copies = 1\n" if witness else "")
    with bridged(folder, more, witness=witness, disks=True, environments=preloaded) as members:
        made, topic = boxes(members), unique("group")
        linked(list(made))
        make_topic(made, topic)
        yield Faulty(Ground(members, dice, clocks), faults, topic)


@WITNESS
def test_a_stock_java_client(jvm: Jvm, tmp_path: Path, witness: bool) -> None:
    with faulty(tmp_path, witness=witness) as group, ExitStack() as stack:
        client = stack.enter_context(producer(jvm, group.namesrv, SendMsgTimeout=3_000, PollNameServerInterval=30_000))
        senders = TimedSenders(jvm, client, group.topic)
        consuming = push_consumer(jvm, group.namesrv, group.topic, ConsumeThreadMin=1, ConsumeThreadMax=1)
        collected = stack.enter_context(consuming)
        with senders.running():
            group.play(senders)
        check(collected, senders)
        print(f"{len(senders.acknowledged)} acknowledged, {len(senders.failed)} failed")


@WITNESS
def test_the_go_client(go: Program, tmp_path: Path, witness: bool) -> None:
    streamed(go, tmp_path, witness=witness)


@WITNESS
def test_the_node_client(node: Program, tmp_path: Path, witness: bool) -> None:
    streamed(node, tmp_path, witness=witness)


def streamed(program: Program, folder: Path, *, witness: bool) -> None:
    with faulty(folder, witness=witness) as group:
        stream = Stream(program, group.namesrv, group.topic)
        with stream.running():
            group.play(stream)
        stream.check()


class OwnSenders(TimedSenders):
    """The same by the client of this package."""

    def __init__(self, client: Producer, topic: str) -> None:
        no_jvm: Any = None
        super().__init__(no_jvm, client, topic)
        self._own, self._to = client, topic

    def send(self, body: bytes) -> bool:
        return self._own.send(Message(self._to, body)).status == "SEND_OK"


@WITNESS
def test_the_client_of_this_package(tmp_path: Path, witness: bool) -> None:
    with faulty(tmp_path, witness=witness) as group, ExitStack() as stack:
        client = stack.enter_context(Producer(unique("group"), group.namesrv))
        consumer = stack.enter_context(PushConsumer(unique("group"), group.namesrv, topics={group.topic: "*"}))
        senders, collected, stop = OwnSenders(client, group.topic), Collected(), threading.Event()
        with threads_running([partial(consume, consumer, collected, stop)], stop):
            with senders.running():
                group.play(senders)
            check(collected, senders)
        print(f"{len(senders.acknowledged)} acknowledged, {len(senders.failed)} failed")


def consume(consumer: PushConsumer, collected: Collected, stop: threading.Event) -> None:
    while not stop.is_set():
        found = consumer.take(32, timeout_s=0.5)
        collected.add([Seen(m.topic, m.queue_id, m.queue_offset, m.body, None, None, {}, "", 0, 0, 0) for m in found])
        consumer.ack_all(found)
