"""The pull consumer against our box and Apache's broker, over real sockets."""

from dataclasses import replace
from typing import Any

import pytest
import trio

from netstack.client import (
    Instance,
    Message,
    NoRoute,
    NotAssigned,
    Producer,
    PullConsumer,
    ReceivedMessage,
    StartFrom,
    UsageError,
)
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.pull_consumer import LITE
from tests.netstack.client.conftest import PATIENT, arrived, fill, known
from tests.waiting import until, until_it


async def poll_all(consumer: PullConsumer, number: int) -> list[ReceivedMessage]:
    got: list[ReceivedMessage] = []
    with trio.fail_after(60):
        while len(got) < number:
            got += await consumer.poll()
    return got


async def test_assigned_queues_are_polled_from_where_they_were_sought(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        bodies = await fill(producer, topic, 100)
        queues = (await known(instance, topic)).subscribe
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        got = await poll_all(consumer, 100)
        assert sorted(each.body for each in got) == sorted(bodies)
        assert {consumer.position(queue) for queue in queues} <= set(range(20, 31))
        await consumer.seek(queues[0], 3)
        assert (await poll_all(consumer, 1))[0].queue_offset == 3
        await consumer.seek_to_end(queues[0])
        lowest, highest = await consumer.ends(queues[0])
        assert (lowest, consumer.position(queues[0])) == (0, highest)
        with pytest.raises(UsageError, match="there are"):
            await consumer.seek(queues[0], highest + 1)


async def test_a_commit_survives_and_a_second_consumer_goes_on_behind(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer):
        await fill(producer, topic, 50)
        async with PullConsumer(topic, instance=instance) as consumer:
            queues = (await known(instance, topic)).subscribe
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            await poll_all(consumer, 50)
            await consumer.commit()
            committed = [await consumer.committed(queue) for queue in queues]
            assert sum(committed) == 50
        await producer.send(Message(topic, b"later"))
        async with PullConsumer(topic, instance=instance) as consumer:
            await consumer.assign(queues)
            assert [each.body for each in await poll_all(consumer, 1)] == [b"later"]


async def test_subscribing_joins_the_group(cluster: Any, namesrv: str, topic: str) -> None:
    async with cluster() as (instance, producer):
        await producer.send(Message(topic, b"makes the topic"))
        await known(instance, topic)
        async with PullConsumer(topic, instance=instance) as one:
            await one.subscribe(topic)
            assert len(one.assigned) == 4
            async with PullConsumer(topic, namesrv) as two:
                await two.subscribe(topic)
                await until(lambda: (len(one.assigned), len(two.assigned)) == (2, 2))
            await until(lambda: len(one.assigned) == 4)
            with pytest.raises(UsageError):
                await one.assign([])


async def test_a_tag_expression_counts_for_assigned_queues(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        for number in range(20):
            await producer.send(Message(topic, b"x", tags="ab"[number % 2]))
        queues = (await known(instance, topic)).subscribe
        await consumer.assign(queues, {topic: "a"})
        for queue in queues:
            await consumer.seek_to_begin(queue)
        assert {each.tags for each in await poll_all(consumer, 10)} == {"a"}


async def test_a_pull_waits_for_the_arrival(own_cluster: Any, topic: str) -> None:
    async with (
        Producer("wait", own_cluster.namesrv, options=PATIENT) as producer,
        PullConsumer(topic, instance=producer.instance) as consumer,
    ):
        sent = await producer.send(Message(topic, b"first"))
        assert (await consumer.pull(sent.queue, 1)).messages == []
        async with trio.open_nursery() as nursery:

            async def pull() -> None:
                found = await consumer.pull(sent.queue, 1, hold_s=10)
                assert [each.body for each in found.messages] == [b"arrival"]

            with trio.fail_after(60):
                nursery.start_soon(pull)
                await trio.testing.wait_all_tasks_blocked()
                await producer.send_to(sent.queue, Message(topic, b"arrival"))


async def test_a_time_finds_its_offset(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        queue = (await producer.send(Message(topic, b"old"))).queue
        await trio.sleep(0.1)
        await producer.send_to(queue, Message(topic, b"new"))
        await known(instance, topic)

        async def both_there() -> bool:  # Apache's broker fills its queues a moment after the acknowledgement
            return (await consumer.ends(queue))[1] == 2

        await until_it(both_there)
        (new,) = (await consumer.pull(queue, 1)).messages
        middle_ms = new.stored_ms - 1  # brokers answer with the message nearest to a time
        assert await consumer.offset_at(queue, middle_ms) == 1
        await consumer.assign([queue])
        await consumer.seek_to_time(queue, middle_ms)
        assert [each.body for each in await poll_all(consumer, 1)] == [b"new"]


async def test_what_is_not_assigned_cannot_be_moved(own_cluster: Any, topic: str) -> None:
    async with Producer("none", own_cluster.namesrv, options=PATIENT) as producer:
        queue = (await producer.send(Message(topic, b"x"))).queue
        async with PullConsumer(topic, instance=producer.instance, options=LITE) as consumer:
            with pytest.raises(NotAssigned):
                await consumer.seek(queue, 0)
            with pytest.raises(NotAssigned):
                consumer.pause([queue])
            await consumer.assign([queue])
            with pytest.raises(UsageError, match="exclude"):
                await consumer.subscribe(topic)


async def test_changes_of_the_queues_are_told(own_cluster: Any, topic: str) -> None:
    async with (
        Producer("changes", own_cluster.namesrv, options=PATIENT) as producer,
        PullConsumer(topic, instance=producer.instance) as consumer,
    ):
        await producer.send(Message(topic, b"x"))
        async for queues in consumer.queue_changes(topic):
            assert len(queues) == 4
            break


async def test_a_topic_that_was_subscribed_too_early_can_be_subscribed_again(cluster: Any, topic: str) -> None:
    async with (
        cluster() as (instance, producer),
        PullConsumer(topic, instance=instance, options=replace(LITE, start_from=StartFrom.FIRST)) as consumer,
    ):
        with pytest.raises(NoRoute):
            await consumer.subscribe(topic)
        assert not consumer.topics
        bodies = await fill(producer, topic, 3)
        await known(instance, topic)
        await consumer.subscribe(topic)
        assert sorted(each.body for each in await poll_all(consumer, 3)) == sorted(bodies)


async def test_a_consumer_opened_twice_leaves_its_group_free(own_cluster: Any, topic: str) -> None:
    async with Instance(own_cluster.namesrv) as instance:
        consumer = PullConsumer(topic, instance=instance)
        async with consumer:
            pass
        with pytest.raises(UsageError, match="opened twice"):
            await consumer.__aenter__()
        async with PullConsumer(topic, instance=instance):
            pass


async def test_a_queue_that_comes_back_is_not_committed_where_it_was_when_it_left(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        await fill(producer, topic, 40)
        await arrived(instance, topic, 40)
        queue, others = (await known(instance, topic)).subscribe[0], RemoteOffsets(instance, topic)
        await consumer.assign([queue])
        await consumer.seek(queue, 1)
        await consumer.commit()
        await consumer.assign([])
        others.set(queue, 5)  # another member of the group went on
        await others.persist([queue])
        await consumer.assign([queue])
        assert (consumer.position(queue), await consumer.committed(queue)) == (-1, 5)
        await consumer.commit()
        assert await others.read(queue) == 5
