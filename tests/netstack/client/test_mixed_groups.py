"""Java and Python in one group: by each strategy both come to the same sharing, and hand queues over in order."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from netstack.client import (
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    ConsumerOptions,
    Message,
    Producer,
    ProducerOptions,
    PushConsumer,
    StartFrom,
)
from netstack.client.consume.rebalance import Strategy, allocate
from netstack.client.messages import ReceivedMessage
from tests.interop.client import push_consumer as java_consumer
from tests.netstack.client.conftest import BOX_AND_LATER_APACHE

pytestmark = pytest.mark.slow

QUEUES, JAVA, PYTHON = 8, "java", "python"
Owners = dict[int, str]


class Log:
    """Who saw which message of which queue, in order, from all threads."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, bytes]] = []

    def from_java(self, batch: list[Any], context: Any) -> str:
        self.rows += [(JAVA, each.queue_id, each.queue_offset, each.body) for each in batch]
        return "SUCCESS" if "Orderly" in str(context) else "CONSUME_SUCCESS"

    async def from_python(self, message: ReceivedMessage) -> None:
        self.rows.append((PYTHON, message.queue_id, message.queue_offset, message.body))

    def owners(self, body: bytes) -> Owners:
        return {queue_id: who for who, queue_id, _, seen in self.rows if seen == body}

    def check(self, *, ordered: bool) -> None:
        """Nothing of a queue was left out; in order, what is seen for the first time comes after all seen before."""
        for queue_id in range(QUEUES):
            offsets = [offset for _, queue, offset, _ in self.rows if queue == queue_id]
            assert set(offsets) == set(range(max(offsets) + 1)), queue_id
            if ordered:
                assert list(dict.fromkeys(offsets)) == sorted(set(offsets)), queue_id


async def rounds_until(producer: Producer, topic: str, log: Log, expected: Callable[[], Owners]) -> None:
    """Send one message to each queue, round after round, until a round went to whom the strategy names."""
    seen: list[Owners] = []
    with trio.move_on_after(120):
        while True:
            body = b"round %d, %d rows before" % (len(seen), len(log.rows))
            for queue in await producer.queues(topic):
                await producer.send_to(queue, Message(topic, body))
            while len(log.owners(body)) < QUEUES:  # noqa: ASYNC110 the JVM's threads write it
                await trio.sleep(0.02)
            seen.append(log.owners(body))
            if seen[-1] == expected():
                return
    raise AssertionError(f"expected {expected()}, the last rounds went to {seen[-3:]}")


@pytest.mark.parametrize(
    ("strategy", "official", "orderly"),
    [
        (AveragelyByCircle(), "AveragelyByCircle", False),
        (ConsistentHash(), "ConsistentHash", False),
        (Averagely(), "Averagely", True),
    ],
    ids=["circle", "hash", "orderly"],
)
@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE, indirect=True)
async def test_java_and_python_share_by_the_same_strategy(
    namesrv: str, jvm4: Any, topic: str, strategy: Strategy, official: str, orderly: bool
) -> None:
    log = Log()
    allocation = jvm4.new(f"client.consumer.rebalance.AllocateMessageQueue{official}")
    options = ConsumerOptions(start_from=StartFrom.FIRST, strategy=strategy, orderly=orderly)
    async with Producer(topic, namesrv, options=ProducerOptions(new_topic_queues=QUEUES)) as producer:
        await producer.send(Message(topic, b"makes the topic"))
        java = java_consumer(
            *(jvm4, namesrv, topic),
            group=topic,
            orderly=orderly,
            answer=log.from_java,
            AllocateMessageQueueStrategy=allocation,
        )
        async with PushConsumer(topic, namesrv, options=options, topics={topic: "*"}) as consumer:
            with java:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(consumer.run, log.from_python)
                    members = await both(consumer, topic)

                    def shared() -> Owners:
                        route = consumer.instance.routes[topic].subscribe
                        return expected_owners(strategy, consumer.instance.client_id, route, members)

                    await rounds_until(producer, topic, log, shared)
                    assert {queue.queue_id for queue in consumer.assigned if queue.topic == topic} == {
                        queue_id for queue_id, who in shared().items() if who == PYTHON
                    }
                    nursery.cancel_scope.cancel()
            async with trio.open_nursery() as nursery:  # Java has left, Python takes all
                nursery.start_soon(consumer.run, log.from_python)
                await rounds_until(producer, topic, log, lambda: dict.fromkeys(range(QUEUES), PYTHON))
                nursery.cancel_scope.cancel()
    log.check(ordered=orderly)


def expected_owners(strategy: Strategy, me: str, queues: Any, members: list[str]) -> Owners:
    mine = {queue.queue_id for queue in allocate(strategy, me, queues, members)}
    return {queue.queue_id: PYTHON if queue.queue_id in mine else JAVA for queue in queues}


async def both(consumer: PushConsumer, topic: str) -> list[str]:
    """Return the ids of the two members once the broker knows both."""
    with trio.fail_after(60):
        while True:
            members = await consumer._assignment._members(await consumer.instance.refresh(topic))
            if len(members) == 2:
                return list(members)
            await trio.sleep(0.05)
