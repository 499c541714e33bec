"""The producer against our box and Apache's broker, over real sockets."""

import time
from typing import Any

import pytest
import trio

from netstack.client import (
    BrokerRefused,
    Message,
    MessageQueue,
    MessageRejected,
    NoNameServer,
    NoReply,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    ReplyImpossible,
    UsageError,
    Verdict,
    make_reply,
)
from netstack.client.text import hashed_position
from netstack.wire.codes import ResponseCode
from tests.netstack.client.conftest import PATIENT, known


async def stored(consumer: PullConsumer, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic."""
    found: list[ReceivedMessage] = []
    for queue in (await known(consumer.instance, topic)).subscribe:
        at, end = await consumer.ends(queue)
        while at < end:
            pulled = await consumer.pull(queue, at)
            found += pulled.messages
            at = pulled.next_offset
    return found


async def stored_count(consumer: PullConsumer, topic: str, number: int) -> list[ReceivedMessage]:
    """Return all messages of a topic once there are so many."""
    with trio.fail_after(60):
        while True:
            if len(found := await stored(consumer, topic)) >= number:
                return found
            await trio.sleep(0.02)


async def test_a_message_arrives_as_it_was_sent(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        sent = await producer.send(
            Message(topic, "grüß 中😀".encode(), tags="tag", keys="k1 k2", properties={"ö": "ü"}, flag=7)
        )
        (got,) = await stored_count(consumer, topic, 1)
        assert (got.body, got.tags, got.keys, got.flag) == ("grüß 中😀".encode(), "tag", "k1 k2", 7)
        assert got.properties["ö"] == "ü"
        assert (got.message_id, got.offset_message_id) == (sent.message_id, sent.offset_message_id)
        assert (got.queue, got.queue_offset, sent.status) == (sent.queue, sent.queue_offset, "SEND_OK")
        assert abs(got.born_ms - time.time() * 1000) < 60_000


async def test_a_first_message_makes_its_topic_with_four_queues(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer):
        await producer.send(Message(topic, b"x"))
        assert len((await known(instance, topic)).publish) == 4


async def test_queues_come_in_turn_and_a_key_keeps_its_queue(cluster: Any, topic: str) -> None:
    async with cluster() as (_, producer):
        await producer.send(Message(topic, b"x"))
        used = [(await producer.send(Message(topic, b"x"))).queue.queue_id for _ in range(8)]
        assert sorted(used) == [0, 0, 1, 1, 2, 2, 3, 3]
        queues = await producer.queues(topic)
        for key in ("a", "b", 17):
            results = [await producer.send_ordered(Message(topic, b"x"), key) for _ in range(2)]
            assert {result.queue for result in results} == {queues[hashed_position(key, len(queues))]}
        result = await producer.send_selected(Message(topic, b"x"), lambda queues: queues[-1])
        assert result.queue == queues[-1]


async def test_a_large_body_travels_compressed_and_arrives_whole(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        await producer.send(Message(topic, b"0123456789" * 500))
        (got,) = await stored_count(consumer, topic, 1)
        assert got.stored_body[0] == 0x78
        assert got.sys_flag & 0x701 == 0x301
        assert got.body == b"0123456789" * 500


async def test_a_batch_lies_together_and_each_message_keeps_its_id(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        result = await producer.send_batch([Message(topic, b"%d" % number, tags="t") for number in range(3)])
        got = await stored_count(consumer, topic, 3)
        assert [each.body for each in got] == [b"0", b"1", b"2"]
        assert [each.queue_offset for each in got] == [result.queue_offset + number for number in range(3)]
        assert tuple(each.message_id for each in got) == result.message_ids
        lots = await producer.send_all((Message(topic, bytes(65)) for _ in range(10)), limit_bytes=700)
        assert len(lots) > 2


async def test_pipelined_sends_all_get_their_result(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        under_way = [await producer.submit(Message(topic, b"%d" % number)) for number in range(120)]
        results = [await pending.wait() for pending in under_way]
        assert {result.status for result in results} == {"SEND_OK"}
        assert [result.message_id for result in results] == [pending.message_id for pending in under_way]
        got = await stored_count(consumer, topic, 120)
        assert {each.body for each in got} == {b"%d" % number for number in range(120)}


async def test_leaving_a_producer_waits_for_what_is_under_way(namesrv: str, topic: str) -> None:
    async with Producer("leaving", namesrv, options=PATIENT) as producer:
        await producer.send(Message(topic, b"x"))
        under_way = [await producer.submit(Message(topic, b"x")) for _ in range(50)]
    assert all(pending.result is not None for pending in under_way)


async def test_a_one_way_send_arrives(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        await producer.send(Message(topic, b"first"))
        await producer.send_oneway(Message(topic, b"one-way"))
        await stored_count(consumer, topic, 2)


async def test_what_must_not_be_sent_is_rejected_before_it_leaves(cluster: Any, topic: str) -> None:
    async with cluster() as (_, producer):
        for wrong in (Message(topic, b""), Message("SCHEDULE_TOPIC_XXXX", b"x"), Message("a b", b"x")):
            with pytest.raises(MessageRejected):
                await producer.send(wrong)
        with pytest.raises(MessageRejected, match="queue of"):
            await producer.send_to(MessageQueue("other", "b", 0), Message(topic, b"x"))


async def test_a_refusal_names_broker_code_and_remark(cluster: Any, topic: str) -> None:
    async with cluster() as (_, producer):
        result = await producer.send(Message(topic, b"x"))
        with pytest.raises(BrokerRefused, match="queueId") as caught:
            await producer.send_to(result.queue._replace(queue_id=99), Message(topic, b"x"))
        assert caught.value.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)  # 4.9, 5.x
        assert result.queue.broker_name in str(caught.value)


async def test_verdicts_decide_about_half_messages(cluster: Any, topic: str) -> None:
    async def commit(message: Message, message_id: str) -> Verdict:
        return Verdict.COMMIT

    async def roll_back(message: Message, message_id: str) -> Verdict:
        return Verdict.ROLLBACK

    async with cluster() as (instance, producer), PullConsumer(topic, instance=instance) as consumer:
        await producer.send(Message(topic, b"plain"))
        result, verdict = await producer.send_in_transaction(Message(topic, b"committed"), commit)
        assert (result.status, verdict) == ("SEND_OK", Verdict.COMMIT)
        await producer.send_in_transaction(Message(topic, b"rolled back"), roll_back)
        async with producer.transaction(Message(topic, b"block")) as half:
            assert half.transaction_id
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"failed block")):
                raise ZeroDivisionError
        got = await stored_count(consumer, topic, 3)
        assert {each.body for each in got} == {b"plain", b"committed", b"block"}
        with pytest.raises(UsageError):
            await producer.send_in_transaction(Message(topic, b"x", delay_level=1), commit)


async def test_a_request_gets_its_reply_and_without_a_responder_none(cluster: Any, topic: str) -> None:
    async with cluster() as (instance, producer), trio.open_nursery() as nursery:
        async with PushConsumer(f"{topic}_r", instance=instance) as responder:
            await producer.send(Message(topic, b"makes the topic"))
            await responder.subscribe(topic)

            async def respond(message: ReceivedMessage) -> None:
                try:
                    await producer.send(make_reply(message, b"re: " + message.body))
                except ReplyImpossible:
                    assert message.body == b"makes the topic"

            nursery.start_soon(responder.run, respond)
            reply = await producer.request(Message(topic, b"question"), timeout_s=60)
            assert reply.body == b"re: question"
            assert "ARRIVE_TIME" in reply.properties
            nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            with pytest.raises(NoReply):
                await producer.request(Message(f"{topic}_silent", b"x"), timeout_s=2)
            assert not instance.requests.replies


@pytest.mark.slow
async def test_a_delayed_message_comes_when_its_level_is_over(cluster: Any, topic: str) -> None:
    async with (
        cluster() as (instance, producer),
        PushConsumer(topic, instance=instance, topics={topic: "*"}) as consumer,
    ):
        await producer.send(Message(topic, b"makes the topic"))
        began = trio.current_time()
        await producer.send(Message(topic, b"later", delay_level=1))
        with trio.fail_after(60):
            async for message in consumer:
                consumer.ack(message)
                if message.body == b"later":
                    break
        assert trio.current_time() - began >= 0.95


@pytest.mark.slow
async def test_a_timer_fires_at_its_millisecond_and_can_be_recalled(own_cluster: Any, topic: str) -> None:
    async with (
        Producer("timers", own_cluster.namesrv, options=PATIENT) as producer,
        PushConsumer(topic, instance=producer.instance, topics={topic: "*"}) as consumer,
    ):
        await producer.send(Message(topic, b"makes the topic"))
        recalled = await producer.send(Message(topic, b"recalled", delay_ms=3000))
        assert recalled.recall_handle is not None
        assert await producer.recall(topic, recalled.recall_handle) == recalled.message_id
        await producer.send(Message(topic, b"timed", delay_ms=3500))
        got = list[bytes]()
        with trio.fail_after(60):
            while got[-1:] != [b"timed"]:
                message = await consumer.__anext__()
                consumer.ack(message)
                got.append(message.body)
        assert got == [b"makes the topic", b"timed"]


async def test_traces_can_be_found_by_message_id(own_cluster: Any, topic: str) -> None:
    options = ProducerOptions(trace_topic=f"{topic}_trace")
    async with Producer("traced", own_cluster.namesrv, options=options) as producer:
        result = await producer.send(Message(topic, b"x", keys="key"))
    async with PullConsumer(topic, own_cluster.namesrv) as consumer:
        (trace,) = await stored(consumer, f"{topic}_trace")
    fields = trace.body.decode().rstrip("\x02").split("\x01")
    assert (fields[0], fields[3], fields[4], fields[5]) == ("Pub", "traced", topic, result.message_id)
    assert (fields[12], fields[13]) == (result.offset_message_id, "true")
    assert trace.keys.split() == [result.message_id, "key"]


async def test_without_a_name_server_the_error_says_so(topic: str) -> None:
    async with Producer("lonely", "127.0.0.1:1") as producer:
        with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:1"):
            await producer.send(Message(topic, b"x"))
    async with Producer("lonely", []) as producer:
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            await producer.send(Message(topic, b"x"))


async def test_a_dead_name_server_is_passed_over(own_cluster: Any, topic: str) -> None:
    async with Producer("failover", f"127.0.0.1:1;{own_cluster.namesrv}", options=PATIENT) as producer:
        assert (await producer.send(Message(topic, b"x"))).status == "SEND_OK"


async def test_a_group_is_used_once_per_instance_and_only_when_open(own_cluster: Any, topic: str) -> None:
    async with Producer("once", own_cluster.namesrv) as producer:
        with pytest.raises(UsageError, match="already in use"):
            await Producer("once", instance=producer.instance).__aenter__()
    with pytest.raises(UsageError, match="async with"):
        await producer.send(Message(topic, b"x"))
    with pytest.raises(UsageError, match="group"):
        await Producer("not a group", own_cluster.namesrv).__aenter__()
