"""What was fetched is polled once, from where the application stands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from netstack.client import Message, Producer, PullConsumer
from netstack.client.messages import MessageQueue
from tests.netstack.client.conftest import PATIENT, fill
from tests.netstack.client.consume.test_pull_consumer import poll_all
from tests.waiting import until


@asynccontextmanager
async def one_queue(cluster: Any, topic: str, *bodies: bytes) -> AsyncIterator[tuple[PullConsumer, MessageQueue]]:
    """Give a consumer that is at the beginning of one queue, which has these messages."""
    async with Producer("one", cluster.namesrv, options=PATIENT) as producer:
        queue = (await producer.send(Message(topic, bodies[0]))).queue
        for body in bodies[1:]:
            await producer.send_to(queue, Message(topic, body))
        async with PullConsumer(topic, instance=producer.instance) as consumer:
            await consumer.assign([queue])
            await consumer.seek_to_begin(queue)
            yield consumer, queue


async def test_a_paused_queue_brings_nothing(own_cluster: Any, topic: str) -> None:
    async with one_queue(own_cluster, topic, b"x") as (consumer, queue):
        await poll_all(consumer, 1)
        consumer.pause([queue])
        await consumer.seek_to_begin(queue)
        assert await consumer.poll(0.1) == []
        consumer.resume([queue])
        assert len(await poll_all(consumer, 1)) == 1


async def test_whoever_polls_is_woken_by_an_arrival(own_cluster: Any, topic: str) -> None:
    got: list[bytes] = []
    async with (
        Producer("two", own_cluster.namesrv, options=PATIENT) as producer,
        PullConsumer(topic, instance=producer.instance) as consumer,
    ):
        await fill(producer, topic, 4)
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_end(queue)

        async def poll() -> None:
            got.extend(message.body for message in await consumer.poll(120))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                nursery.start_soon(poll)
                await trio.testing.wait_all_tasks_blocked(0.01)
                for number in (1, 2):
                    await producer.send_to(queues[number], Message(topic, b"new %d" % number))
                    await until(lambda: len(got) == number)  # noqa: B023
    assert got == [b"new 1", b"new 2"]


async def test_a_seek_ends_the_pull_that_waits_at_the_end(own_cluster: Any, topic: str) -> None:
    async with one_queue(own_cluster, topic, b"first") as (consumer, queue):
        await poll_all(consumer, 1)
        assert await consumer.poll(0.2) == []  # the broker holds the next pull for 20 s
        await consumer.seek_to_begin(queue)
        assert [each.body for each in await consumer.poll(15)] == [b"first"]


async def test_what_was_fetched_before_a_seek_is_not_polled(own_cluster: Any, topic: str) -> None:
    async with one_queue(own_cluster, topic, *(b"%d" % number for number in range(40))) as (consumer, queue):
        assert len(await poll_all(consumer, 10)) == 10  # more are fetched by now
        await consumer.seek(queue, 35)
        assert [each.body for each in await poll_all(consumer, 5)] == [b"35", b"36", b"37", b"38", b"39"]
        assert consumer.position(queue) == 40
