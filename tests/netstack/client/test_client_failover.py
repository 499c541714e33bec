"""Brokers and NameServers die under load: sends move on, nothing acknowledged is lost."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from netstack.client import (
    ClientError,
    ConsumerOptions,
    Instance,
    Message,
    MessageQueue,
    Pending,
    Producer,
    ProducerOptions,
    PushConsumer,
    StartFrom,
)
from tests.interop import apache, jars
from tests.interop.box import Box
from tests.netstack.client.conftest import APACHE, PATIENT
from tests.waiting import until, until_it

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Box, Box]]:
    """Two boxes, the second registered at the first one's NameServer as well."""
    first = Box(tmp_path / "first", config="[box]\nname = 'first'\n")
    first.start()
    config = f"[box]\nname = 'second'\n[namesrv]\nregister_at = ['{first.namesrv}']\n"
    second = Box(tmp_path / "second", config=config)
    second.start()
    yield first, second
    for box in (first, second):
        if box.running:
            box.stop()


@pytest.fixture(params=APACHE)
def beside_apache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Box, "subprocess.Popen[bytes]"]]:
    """A box, and Apache's broker registered at its NameServer."""
    box = Box(tmp_path / "first", config="[box]\nname = 'first'\n")
    box.start()
    with ExitStack() as running:
        running.callback(lambda: box.running and box.stop())
        try:
            broker = running.enter_context(apache.apache_broker(request.param, tmp_path / "apache", box.namesrv))
        except jars.Unavailable as error:
            pytest.skip(str(error))
        yield box, broker


async def make_topic(
    instance: Instance, producer: Producer, topic: str, names: tuple[str, ...] = ("first", "second")
) -> None:
    """Have the topic on both brokers."""
    await until_it(lambda: brokers_of(instance, "TBW102", 2))
    for name in names:
        template = await instance.refresh("TBW102")
        queue = next(each for each in template.publish if each.broker_name == name)
        await until_it(lambda: is_sent(producer, Message(topic, b"makes the topic"), queue))  # noqa: B023
    await until_it(lambda: brokers_of(instance, topic, 2))


async def is_sent(producer: Producer, message: Message, queue: MessageQueue) -> bool:
    """Send to the first queue of the message's topic at the queue's broker; False when a busy broker did not answer."""
    with suppress(ClientError):
        await producer.send_to(queue._replace(topic=message.topic, queue_id=0), message)
        return True
    return False


async def brokers_of(instance: Instance, topic: str, number: int) -> bool:
    try:
        return len((await instance.refresh(topic)).brokers) == number
    except ClientError:
        return False


async def test_sends_move_to_the_living_broker_and_nothing_acknowledged_is_lost(
    pair: tuple[Box, Box], topic: str
) -> None:
    first, second = pair
    options = ProducerOptions(window=64, timeout_s=60)
    async with Instance(first.namesrv) as instance, Producer("killing", instance=instance, options=options) as producer:
        await make_topic(instance, producer, topic)
        under_way: list[Pending] = []
        for number in range(2000):
            if number == 700:
                settled = {pending.message_id for pending in under_way if pending.result}
                second.kill()
            if number == 1400:
                await trio.to_thread.run_sync(second.start)
            under_way.append(await producer.submit(Message(topic, b"%d" % number)))
            if number % 50 == 0:
                await trio.sleep(0.005)
        await producer.wait_sent()
        assert [str(pending.error) for pending in under_way if pending.error] == []
        kept = {pending.message_id for pending in under_way}
        used = {pending.result.queue.broker_name for pending in under_way if pending.result}
        assert used == {"first", "second"}
        places: dict[str, set[tuple[MessageQueue, int]]] = {}
        await until_it(lambda: brokers_of(instance, topic, 2))
        consuming = ConsumerOptions(start_from=StartFrom.FIRST)
        async with PushConsumer(topic, instance=instance, options=consuming, topics={topic: "*"}) as consumer:
            with trio.fail_after(60):
                while not kept <= places.keys():
                    message = await consumer.__anext__()
                    places.setdefault(message.message_id, set()).add((message.queue, message.queue_offset))
                    consumer.ack(message)
        assert len(settled) > 500
        assert {len(places[message_id]) for message_id in settled} == {1}  # only what was under way may lie twice


async def test_sends_move_from_apaches_broker_to_the_box(
    beside_apache: tuple[Box, "subprocess.Popen[bytes]"], topic: str
) -> None:
    box, broker = beside_apache
    options = ProducerOptions(window=64, timeout_s=60)
    seen: set[str] = set()
    async with Instance(box.namesrv) as instance, Producer("moving", instance=instance, options=options) as producer:
        await make_topic(instance, producer, topic, ("first", "apache"))
        consuming = ConsumerOptions(start_from=StartFrom.FIRST, failure_delay_s=0.2)
        async with (
            PushConsumer(topic, instance=instance, options=consuming, topics={topic: "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, lambda message: seen.add(message.message_id))
            before = [await producer.submit(Message(topic, b"%d" % number)) for number in range(600)]
            await producer.wait_sent()
            kept = {pending.message_id for pending in before}
            await until(lambda: kept <= seen)  # what the dead broker acknowledged lies on its disk alone
            assert {pending.result.queue.broker_name for pending in before if pending.result} == {"first", "apache"}
            under_way = [await producer.submit(Message(topic, b"%d" % number)) for number in range(40)]
            broker.kill()
            under_way += [await producer.submit(Message(topic, b"%d" % number)) for number in range(600)]
            await producer.wait_sent()
            assert [str(pending.error) for pending in under_way if pending.error] == []
            after = [pending for pending in under_way if pending.result]
            assert {pending.result.queue.broker_name for pending in after[-500:] if pending.result} == {"first"}
            moved = {each.message_id for each in after if each.result and each.result.queue.broker_name == "first"}
            await until(lambda: moved <= seen)
            nursery.cancel_scope.cancel()


async def test_a_consumer_goes_on_after_its_broker_was_killed_and_came_back(pair: tuple[Box, Box], topic: str) -> None:
    first, second = pair
    consuming = ConsumerOptions(start_from=StartFrom.FIRST, failure_delay_s=0.2)
    async with Instance(first.namesrv) as instance, Producer("back", instance=instance, options=PATIENT) as producer:
        await make_topic(instance, producer, topic)
        seen: set[bytes] = set()
        async with (
            PushConsumer(topic, instance=instance, options=consuming, topics={topic: "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, lambda message: seen.add(message.body))
            await until(lambda: len({queue.broker_name for queue in consumer.assigned if queue.topic == topic}) == 2)
            second.kill()
            for number in range(20):
                await producer.send(Message(topic, b"during %d" % number))
            await trio.to_thread.run_sync(second.start)
            await until_it(lambda: brokers_of(instance, topic, 2))
            queue = next(each for each in await producer.queues(topic) if each.broker_name == "second")
            await producer.send_to(queue, Message(topic, b"after"))
            await until(lambda: len(seen) == 22)
            nursery.cancel_scope.cancel()


async def test_without_its_name_server_a_client_goes_on_with_the_routes_it_knows(
    pair: tuple[Box, Box], topic: str
) -> None:
    first, second = pair
    async with Producer("nameless", f"{first.namesrv};{second.namesrv}", options=PATIENT) as producer:
        await make_topic(producer.instance, producer, topic)
        options = ProducerOptions(window=64, timeout_s=60)
        async with Producer("loaded", instance=producer.instance, options=options) as loaded:
            under_way = [await loaded.submit(Message(topic, b"%d" % number)) for number in range(500)]
            first.kill()  # NameServer and one broker, with answers under way
            under_way += [await loaded.submit(Message(topic, b"%d" % number)) for number in range(500)]
            results = [await pending.wait() for pending in under_way]
        assert {result.queue.broker_name for result in results} == {"first", "second"}
        assert {result.queue.broker_name for result in results[-300:]} == {"second"}
        await producer.instance.refresh(topic)  # now from the other NameServer
        assert set(producer.instance.routes[topic].brokers) == {"second"}
