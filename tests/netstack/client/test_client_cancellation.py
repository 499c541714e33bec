"""Cancelled at any await, a client leaves no task, no waiter, no group and no half state."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.client import (
    ClientError,
    ConsumerOptions,
    Instance,
    Message,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    UsageError,
)
from netstack.serving.peer import Peer
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer
from netstack.wire.headers import ConsumerGroupHeader
from tests.appliance.box import running_box
from tests.netstack.client.conftest import fill
from tests.netstack.client.small_cluster import SmallCluster
from tests.waiting import until

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when its task has come to rest at its n-th await."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left, self._scope, self._task = step, scope, trio.lowlevel.current_task()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


class Life:
    """All a program does with a client, once; what was acknowledged, and what was seen and acknowledged."""

    def __init__(self, instance: Instance, namesrv: str, topic: str) -> None:
        self.instance, self.namesrv, self.topic = instance, namesrv, topic
        self.stored: set[str] = set()
        self.seen: set[str] = set()

    async def run(self) -> None:
        topic, patient = self.topic, ProducerOptions(timeout_s=30)
        async with Producer(f"{topic}_p", instance=self.instance, options=patient) as producer:
            self.stored.add((await producer.send(Message(topic, b"one"))).message_id)
            pending = await producer.submit(Message(topic, b"two"))
            self.stored.add((await pending.wait()).message_id)
            batch = [Message(topic, b"three"), Message(topic, b"four")]
            self.stored.update((await producer.send_batch(batch)).message_ids)
            async with producer.transaction(Message(topic, b"half")) as half:
                pass
            self.stored.add(half.transaction_id)
            await producer.send_ordered(Message(topic, b"ordered"), "key")
            await producer.send_oneway(Message(topic, b"nobody asks"))
            with suppress(ClientError):  # no reply, or not even sent within so short a time
                await producer.request(Message(f"{topic}_ask", b"?"), timeout_s=0.01)
            await self.consume(producer)

    async def consume(self, producer: Producer) -> None:
        topic = self.topic
        async with PushConsumer(topic, instance=self.instance, options=FIRST, topics={topic: "*"}) as consumer:
            await consumer.retry(await consumer.__anext__(), 1)
            self.stored.add((await producer.send(Message(topic, b"five"))).message_id)
            message = await consumer.__anext__()
            self.seen.add(message.message_id)
            consumer.ack(message)
            await consumer.subscribe(f"{topic}_ask", "tag")
            with trio.move_on_after(0.01):
                await consumer.run(self.handle)
            await consumer.commit()
            await consumer.unsubscribe(f"{topic}_ask")
        async with PullConsumer(f"{topic}_pull", self.namesrv) as reader:
            await reader.assign(await reader.queues(topic))
            await reader.poll(0.01)
            await reader.seek_to_end(reader.assigned[0])  # type: ignore[index]
            await reader.commit()

    async def handle(self, message: ReceivedMessage) -> None:
        await trio.sleep(0.001)
        self.seen.add(message.message_id)

    async def rest(self) -> None:
        """Nothing is left of a life: no group, no waiter, no task but those of the instance and its connections."""
        instance = self.instance
        assert not instance.producers
        assert not instance.consumers
        assert not instance.requests.replies
        await until(lambda: not instance._routes._refreshing._flights and not instance._links._openings, 60)
        links = [instance._links._channels[address] for address in instance._links.addresses]
        await until(lambda: not any(len(link.peer._asked) for link in links), 60)
        await until(lambda: len(instance.nursery.child_tasks) <= 2 + len(links), 60)
        (broker,) = {row[0] for each in instance.routes.values() for row in each.brokers.values()}
        members = await instance.ask(broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(self.topic))
        assert members.code != 0, members.body


@pytest.mark.slow
@pytest.mark.parametrize("apart", [21, pytest.param(1, marks=pytest.mark.soak)])
async def test_cancelled_at_any_await_nothing_is_left_and_nothing_is_lost(
    tmp_path: Path, topic: str, apart: int
) -> None:
    async with running_box(tmp_path / "data") as box, Instance(f"127.0.0.1:{box.namesrv_port}") as instance:
        life = Life(instance, f"127.0.0.1:{box.namesrv_port}", topic)
        await life.run()
        await life.rest()
        before = trio.lowlevel.current_statistics().tasks_living
        for step in count(1, apart):
            with trio.CancelScope() as scope:
                trio.lowlevel.add_instrument(CancelAt(step, scope))
                await life.run()
            await life.rest()
            await until(lambda: trio.lowlevel.current_statistics().tasks_living <= before, 60)
            if not scope.cancel_called:
                break
        print(f"cancelled at {step // apart} of {step - 1} awaits, {len(life.stored)} messages stored")
        assert step > 20
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            with trio.fail_after(60):
                while not life.stored <= life.seen:
                    message = await consumer.__anext__()
                    life.seen.add(message.message_id)
                    consumer.ack(message)


async def test_a_cancelled_subscription_is_as_if_it_was_never_made(own_cluster: Any, topic: str) -> None:
    async with PushConsumer(topic, own_cluster.namesrv, topics={f"{topic}_2": "a"}) as consumer:
        for wanted in (topic, f"{topic}_2"):
            with trio.CancelScope() as scope:
                scope.cancel()
                await consumer.subscribe(wanted, "b")
        assert topic not in consumer.topics
        assert [
            each.sub_string for each in consumer.heartbeat().subscription_data_set if each.topic == f"{topic}_2"
        ] == ["a"]


class Silent(SmallCluster):
    """A broker that does not answer heartbeats while it is asked not to."""

    silent = False

    def __init__(self) -> None:
        super().__init__()
        self.asked = trio.Event()

    def answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        if self.silent and request.code == RequestCode.HEART_BEAT:
            self.asked.set()
            return None
        return super().answer(request, peer)


async def test_a_pull_consumer_cancelled_in_its_heartbeat_is_as_before() -> None:
    cluster = Silent()
    async with cluster.instance() as instance, PullConsumer("g", instance=instance) as consumer:
        for before in ([], ["a"]):
            async with trio.open_nursery() as nursery:
                cluster.silent, cluster.asked = True, trio.Event()
                nursery.start_soon(consumer.subscribe, "T", "b")
                await cluster.asked.wait()
                nursery.cancel_scope.cancel()
            assert [each.sub_string for each in consumer.heartbeat().subscription_data_set] == before
            cluster.silent = False
            await consumer.subscribe("T", "a")
        await until(lambda: len(consumer.assigned) == 4)


async def test_of_a_subscription_and_an_assignment_at_once_only_one_is_made() -> None:
    cluster, refused = SmallCluster(), list[UsageError]()
    async with cluster.instance() as instance, PullConsumer("g", instance=instance) as consumer:

        async def choose(way: Callable[[], Awaitable[None]]) -> None:
            try:
                await way()
            except UsageError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(choose, lambda: consumer.assign([cluster.queue(0)]))
            nursery.start_soon(choose, lambda: consumer.subscribe("T"))
        assert len(refused) == 1


def tasks_in(nursery: trio.Nursery) -> int:
    return len(nursery.child_tasks) + sum(
        tasks_in(inner) for task in nursery.child_tasks for inner in task.child_nurseries
    )


async def test_every_task_lives_in_a_nursery_that_the_caller_can_see(own_cluster: Any, topic: str) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with (
        Instance(own_cluster.namesrv) as instance,
        Producer(topic, instance=instance) as producer,
        PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer,
        PullConsumer(f"{topic}_pull", instance=instance) as reader,
    ):
        await fill(producer, topic, 10)
        await reader.assign(await reader.queues(topic))
        for _ in range(5):
            consumer.ack(await consumer.__anext__())
        nurseries = (instance.nursery, producer.nursery, consumer.nursery, reader.nursery)
        assert trio.lowlevel.current_statistics().tasks_living - before == sum(map(tasks_in, nurseries)) > 10
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_an_error_inside_comes_out_bare_and_ends_everything(own_cluster: Any, topic: str) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    producer = Producer("bare", own_cluster.namesrv)

    async def fail_inside() -> None:
        async with producer, PushConsumer(topic, instance=producer.instance, topics={topic: "*"}):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert trio.lowlevel.current_statistics().tasks_living == before
    with pytest.raises(ClientError):
        await producer.send(Message(topic, b"x"))


async def test_a_cancelled_client_says_goodbye(own_cluster: Any, topic: str) -> None:
    async with Producer("goodbye", own_cluster.namesrv) as watcher:
        queue = (await watcher.send(Message(topic, b"x"))).queue
        with trio.CancelScope() as scope:
            async with PushConsumer(topic, own_cluster.namesrv, options=FIRST, topics={topic: "*"}) as consumer:
                consumer.ack(await consumer.__anext__())
                scope.cancel()
                await trio.sleep_forever()
        async with PullConsumer(topic, instance=watcher.instance) as reader:
            assert await reader.committed(queue) == 1
            await reader.subscribe(topic)
            assert len(reader.assigned) == 4  # the cancelled member is gone already
