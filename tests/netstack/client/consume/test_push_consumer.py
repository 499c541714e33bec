"""The push consumer against our box and Apache's broker, over real sockets."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.client import (
    AveragelyByCircle,
    BrokerRefused,
    ConsumerOptions,
    Instance,
    Message,
    Ordered,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Retry,
    Sql,
    StartFrom,
    UsageError,
)
from tests.netstack.client.conftest import PATIENT, fill
from tests.waiting import until

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


async def take_all(consumer: PushConsumer, number: int, seconds: float = 60) -> list[ReceivedMessage]:
    """Take and acknowledge so many messages."""
    got: list[ReceivedMessage] = []
    with trio.fail_after(seconds):
        while len(got) < number:
            message = await consumer.__anext__()
            consumer.ack(message)
            got.append(message)
    return got


async def test_every_message_comes_once_and_the_next_consumer_goes_on_behind(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer):
        bodies = await fill(producer, topic, 500)
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            got = await take_all(consumer, 500)
            assert sorted(each.body for each in got) == sorted(bodies)
            assert sum(queue.topic == topic for queue in consumer.assigned) == 4
        await producer.send(Message(topic, b"later"))
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            assert [each.body for each in await take_all(consumer, 1)] == [b"later"]


async def test_only_the_wanted_tags_come(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer):
        for number in range(30):
            await producer.send(Message(topic, b"%d" % number, tags="abc"[number % 3]))
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "a || c"}) as consumer:
            got = await take_all(consumer, 20)
            assert {each.tags for each in got} == {"a", "c"}


async def test_sql_selects_and_a_bad_expression_is_refused_at_the_start(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer):
        for number in range(6):
            await producer.send(Message(topic, b"%d" % number, properties={"a": str(number)}))
        rule = Sql("a BETWEEN 2 AND 4")
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: rule}) as consumer:
            got = await take_all(consumer, 3)
            assert sorted(each.body for each in got) == [b"2", b"3", b"4"]
            with pytest.raises(BrokerRefused, match="code 23"):
                await consumer.subscribe(topic, Sql("a >"))
            assert [each.sub_string for each in consumer.heartbeat().subscription_data_set if each.topic == topic] == [
                rule.expression
            ]
        with pytest.raises(BrokerRefused, match="code 23"):
            await PushConsumer(f"{topic}_b", instance=instance, topics={topic: Sql("a >")}).__aenter__()
        assert f"{topic}_b" not in instance.consumers


@pytest.mark.slow
async def test_a_failed_message_comes_again_with_its_topic_and_count(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), trio.open_nursery() as nursery:
        attempts: list[tuple[str, bytes, int, str]] = []

        async def handle(message: ReceivedMessage) -> None:
            attempts.append((message.topic, message.body, message.reconsume_times, message.message_id))
            if message.body == b"bad" and message.reconsume_times == 0:
                raise Retry(delay_level=1)

        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            nursery.start_soon(consumer.run, handle)
            await producer.send(Message(topic, b"good"))
            sent = await producer.send(Message(topic, b"bad"))
            await until(lambda: len(attempts) == 3)
            assert attempts[-1] == (topic, b"bad", 1, sent.message_id)
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_what_fails_too_often_becomes_a_dead_letter(cluster: Any, topic: str) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST, max_reconsume=0)
    async with cluster() as (instance, producer):
        async with PushConsumer(topic, instance=instance, options=options, topics={topic: "*"}) as consumer:
            await producer.send(Message(topic, b"poison"))
            with trio.fail_after(60):
                await consumer.retry(await consumer.__anext__())
        dead = {f"%DLQ%{topic}": "*"}
        async with PushConsumer(f"{topic}_d", instance=instance, options=FIRST, topics=dead) as consumer:
            (letter,) = await take_all(consumer, 1)
            assert letter.body == b"poison"
            assert letter.properties["RETRY_TOPIC"] == topic


async def test_an_unfinished_message_holds_the_offset(own_cluster: Any, topic: str) -> None:
    async with Producer("holding", own_cluster.namesrv, options=PATIENT) as producer:
        queue = (await producer.send(Message(topic, b"makes the topic"))).queue
        for number in range(9):
            await producer.send_to(queue, Message(topic, b"%d" % number))
        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            kept = None
            for _ in range(10):
                message = await consumer.__anext__()
                if message.queue_offset == 3:
                    kept = message
                else:
                    consumer.ack(message)
            assert consumer.positions(topic)[queue] == 3
            assert kept is not None
            consumer.ack(kept)
            assert consumer.positions(topic)[queue] == 10


async def test_a_full_cache_stops_the_pulls_until_messages_are_acknowledged(own_cluster: Any, topic: str) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST, queue_messages=10, pull_batch=5)
    async with Producer("flow", own_cluster.namesrv, options=PATIENT) as producer:
        queue = (await producer.send(Message(topic, b"0"))).queue
        for number in range(1, 100):
            await producer.submit(Message(topic, b"%d" % number), queue=queue)
        await producer.wait_sent()
        async with PushConsumer(topic, instance=producer.instance, options=options, topics={topic: "*"}) as consumer:
            held = consumer._assignment.held
            await until(lambda: queue in held and held[queue].messages.count > 10)
            await trio.sleep(0.1)  # nothing more may come in this time
            assert held[queue].messages.count == 15
            assert len(await take_all(consumer, 100)) == 100


async def test_ordered_messages_of_a_key_stay_in_order_through_failures(cluster: Any, topic: str) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True, suspend_s=0.05)
    async with cluster() as (instance, producer), trio.open_nursery() as nursery:
        for number in range(60):
            await producer.send_ordered(Message(topic, b"%d" % number, keys=str(number % 3)), number % 3)
        seen: dict[str, list[int]] = {}
        tries: Counter[int] = Counter()

        async def handle(message: ReceivedMessage) -> None:
            number = int(message.body)
            tries[number] += 1
            await trio.lowlevel.checkpoint()
            if number % 20 == 7 and tries[number] < 3:
                raise ValueError("not yet")
            seen.setdefault(message.keys, []).append(number)

        async with PushConsumer(topic, instance=instance, options=options, topics={topic: "*"}) as consumer:
            nursery.start_soon(consumer.run, handle)
            await until(lambda: sum(map(len, seen.values())) == 60)
            nursery.cancel_scope.cancel()
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert tries[7] == tries[27] == 3


async def test_ordered_dead_letters_and_manual_commits(own_cluster: Any, topic: str) -> None:
    options = ConsumerOptions(
        start_from=StartFrom.FIRST, orderly=True, suspend_s=0.01, max_reconsume=1, auto_commit=False
    )
    async with Producer("manual", own_cluster.namesrv, options=PATIENT) as producer, trio.open_nursery() as nursery:
        queue = (await producer.send(Message(topic, b"0"))).queue
        for number in range(1, 6):
            await producer.send_to(queue, Message(topic, b"%d" % number))
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> object:
            seen.append(message.body)
            if message.body == b"2" and seen.count(b"2") == 1:
                return Ordered.ROLLBACK
            return Ordered.COMMIT if int(message.body) % 2 else None

        async with PushConsumer(topic, instance=producer.instance, options=options, topics={topic: "*"}) as consumer:
            nursery.start_soon(consumer.run, handle)
            await until(lambda: consumer.positions(topic).get(queue) == 6)
            nursery.cancel_scope.cancel()
        assert seen == [b"0", b"1", b"2", b"2", b"3", b"4", b"5"]


async def test_two_consumers_share_the_queues_and_one_takes_over(cluster: Any, namesrv: str, topic: str) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST, strategy=AveragelyByCircle())
    async with cluster() as (instance, producer):
        await producer.send(Message(topic, b"makes the topic"))
        async with PushConsumer(topic, instance=instance, options=options, topics={topic: "*"}) as one:
            async with PushConsumer(topic, namesrv, options=options, topics={topic: "*"}) as two:

                def shared() -> bool:
                    parts = [{queue for queue in each.assigned if queue.topic == topic} for each in (one, two)]
                    return [len(part) for part in parts] == [2, 2] and not parts[0] & parts[1]

                await until(shared)
            await until(lambda: sum(queue.topic == topic for queue in one.assigned) == 4)


@pytest.mark.slow
async def test_broadcasting_gives_everybody_everything_and_resumes_from_the_file(
    cluster: Any, namesrv: str, topic: str, tmp_path: Path
) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST, broadcasting=True, offsets_folder=tmp_path)
    async with cluster() as (_, producer):
        bodies = await fill(producer, topic, 40)
        for folder in ("one", "two"):
            async with PushConsumer(topic, Instance(namesrv, name=folder).name_servers, options=options) as consumer:
                consumer._local.path = tmp_path / folder / "offsets.json"  # type: ignore[union-attr]
                await consumer.subscribe(topic)
                assert sorted(each.body for each in await take_all(consumer, 40)) == sorted(bodies)
                await consumer.commit()
        await producer.send(Message(topic, b"later"))
        async with PushConsumer(topic, namesrv, options=options) as consumer:
            consumer._local.path = tmp_path / "one" / "offsets.json"  # type: ignore[union-attr]
            await consumer._local.load()  # type: ignore[union-attr]
            await consumer.subscribe(topic)
            assert [each.body for each in await take_all(consumer, 1)] == [b"later"]


async def test_a_paused_consumer_gets_nothing_new_until_it_resumes(own_cluster: Any, topic: str) -> None:
    async with Producer("pausing", own_cluster.namesrv, options=PATIENT) as producer:
        await producer.send(Message(topic, b"first"))
        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            await take_all(consumer, 1)
            consumer.pause()
            consumer.pause()  # twice is paused, too
            await fill(producer, topic, 200)
            with trio.move_on_after(0.2):
                while True:
                    consumer.ack(await consumer.__anext__())  # pulls that were parked bring a little
            consumer.resume()
            with trio.fail_after(60):
                await consumer.__anext__()


async def test_plain_functions_run_in_threads_and_batches_may_be_partly_done(own_cluster: Any, topic: str) -> None:
    async with Producer("plain", own_cluster.namesrv, options=PATIENT) as producer, trio.open_nursery() as nursery:
        await fill(producer, topic, 40)
        seen: list[int] = []

        def handle(messages: Any) -> None:
            seen.extend(int(each.body) for each in messages if each.reconsume_times == 0)
            if len(messages) > 1 and all(each.reconsume_times == 0 for each in messages):
                raise Retry(delay_level=1, done=len(messages) - 1)

        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            nursery.start_soon(lambda: consumer.run_batches(handle, batch=8, concurrency=2))
            await until(lambda: len(seen) == 40)
            assert sorted(seen) == list(range(40))
            nursery.cancel_scope.cancel()


async def test_a_cancelled_handler_leaves_its_message_for_the_next_run(own_cluster: Any, topic: str) -> None:
    async with Producer("cancelled", own_cluster.namesrv, options=PATIENT) as producer:
        await producer.send(Message(topic, b"x"))
        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            got: list[ReceivedMessage] = []
            async with trio.open_nursery() as nursery:

                async def cancelled(message: ReceivedMessage) -> None:
                    got.append(message)
                    nursery.cancel_scope.cancel()
                    await trio.sleep_forever()

                nursery.start_soon(consumer.run, cancelled)
            assert await take_all(consumer, 1, 5) == got


async def test_ordered_consumption_needs_a_handler(own_cluster: Any, topic: str) -> None:
    async with PushConsumer(topic, own_cluster.namesrv, options=ConsumerOptions(orderly=True)) as consumer:
        with pytest.raises(UsageError, match="handler"):
            await consumer.__anext__()


async def test_a_message_taken_away_meanwhile_is_not_committed(own_cluster: Any, topic: str) -> None:
    async with Producer("taken", own_cluster.namesrv, options=PATIENT) as producer:
        queue = (await producer.send(Message(topic, b"x"))).queue
        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            message = await consumer.__anext__()
            consumer.reset(topic, {queue: 0})
            consumer.ack(message)
            again = await consumer.__anext__()
            assert again is not message
            assert again.message_id == message.message_id


async def test_tools_see_the_running_consumer(own_cluster: Any, topic: str) -> None:
    async with Producer("tools", own_cluster.namesrv, options=PATIENT) as producer:
        await producer.send(Message(topic, b"x"))
        async with PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer:
            await take_all(consumer, 1)
            await until(lambda: len(consumer.assigned) == 4 + 1)
            known = consumer.running_info(with_tasks=True)
            assert known.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert int(known.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
            assert {queue.topic for queue in known.mq_table} == {topic, f"%RETRY%{topic}"}
            assert known.status_table[topic].pull_tps > 0
            assert "Puller.run" in (known.jstack or "")
