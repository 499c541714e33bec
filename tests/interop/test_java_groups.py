"""Several consumers of one group with the official Java client: who gets which queue, order across a takeover."""

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.interop.box import Box, Foreign, until
from tests.interop.client import Seen, producer, push_consumer, unique
from tests.interop.conftest import ONE_VERSION
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.slow

STRATEGIES = (
    "Averagely",
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("AveragelyByCircle", "ConsistentHash")),
)
QUEUES = 8


class Shared:
    """What all consumers of a test saw, in the order in which they saw it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Seen]] = []
        self._lock = threading.Lock()

    def by(self, name: str) -> Any:
        def note(batch: list[Seen], _context: Any) -> str:
            with self._lock:
                self.seen += [(name, message) for message in batch]
            return self.answer

        return note

    answer = "CONSUME_SUCCESS"

    def names(self) -> set[str]:
        return {name for name, _ in self.seen}

    def bodies(self) -> list[str]:
        return [message.body.decode() for _, message in self.seen]


@ONE_VERSION
@pytest.mark.feature("rebalance: averagely, by circle, by consistent hash")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_consumers_share_the_queues_by_their_strategy(jvm: Jvm, cluster: Box | Foreign, strategy: str) -> None:
    topic, group, shared = unique("strategy"), unique("strategy_group"), Shared()
    rule = jvm.new(f"client.consumer.rebalance.AllocateMessageQueue{strategy}")
    settings: dict[str, Any] = {"group": group, "AllocateMessageQueueStrategy": rule}
    with producer(jvm, cluster.namesrv, DefaultTopicQueueNums=QUEUES) as client, ExitStack() as stack:
        client.send(jvm.message(topic, b"makes the topic"))
        for name in ("one", "two"):
            stack.enter_context(push_consumer(jvm, cluster.namesrv, topic, answer=shared.by(name), **settings))
        until(lambda: "makes the topic" in shared.bodies(), seconds=60, what="the first message")
        queues = list(client.fetchPublishMessageQueues(topic))
        assert len(queues) == QUEUES

        def every_queue_has_one_reader() -> bool:
            shared.seen.clear()
            for number, queue in enumerate(queues):
                client.send(jvm.message(topic, str(number).encode()), queue)
            time.sleep(1)
            return sorted(shared.bodies()) == sorted(map(str, range(QUEUES))) and (
                strategy == "ConsistentHash" or shared.names() == {"one", "two"}
            )

        until(every_queue_has_one_reader, seconds=90, what=lambda: f"{[(n, m.body) for n, m in shared.seen]}")


@ONE_VERSION
@pytest.mark.feature("orderly: two consumers, and one takes over without reordering")
def test_a_takeover_keeps_the_order_of_each_queue(jvm: Jvm, cluster: Box | Foreign) -> None:
    topic, group, shared, total = unique("takeover"), unique("takeover_group"), Shared(), 160
    shared.answer = "SUCCESS"
    settings: dict[str, Any] = {"group": group, "orderly": True, "ConsumeMessageBatchMaxSize": 1}
    with producer(jvm, cluster.namesrv) as client:
        client.send(jvm.message(topic, b"makes the topic"))
        queues = list(client.fetchPublishMessageQueues(topic))

        def send(start: int, end: int) -> None:
            for number in range(start, end):
                client.send(jvm.message(topic, str(number).encode()), queues[number % len(queues)])

        with push_consumer(jvm, cluster.namesrv, topic, answer=shared.by("one"), **settings):
            with push_consumer(jvm, cluster.namesrv, topic, answer=shared.by("two"), **settings):
                sent = 0

                def both_read() -> bool:
                    nonlocal sent
                    send(sent, sent + 4)
                    sent += 4
                    return shared.names() == {"one", "two"} and sent >= total // 2

                until(both_read, seconds=90, what="both consumers read")
            send(sent, sent + total)
            wanted = {str(number) for number in range(sent + total)} | {"makes the topic"}
            until(
                lambda: set(shared.bodies()) == wanted, seconds=90, what=lambda: f"{len(shared.seen)} of {len(wanted)}"
            )
    for rest in range(len(queues)):
        numbers = [int(body) for body in shared.bodies() if body.isdecimal() and int(body) % len(queues) == rest]
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), f"queue {rest}"
