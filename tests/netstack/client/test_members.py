"""A group of one's own making: who has what a member needs, and no more, is served as the library's consumers are."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest

from netstack.client import Instance, Producer, PullConsumer, PushConsumer, UsageError
from netstack.client.members import ConsumerMember, ProducerMember
from netstack.client.messages import ReceivedMessage
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    HeartbeatData,
    ResetOffset,
)
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from netstack.wire.headers import CheckTransactionHeader
from netstack.wire.json_body import MessageQueue
from storage_driver.record import Message, encode_host, encode_properties, encode_record, encode_topic
from tests.waiting import until

QUEUE, HOST = MessageQueue("T", "box", 1), encode_host("127.0.0.1", 10911)


class OwnConsumer:
    """A consumer that keeps what it was asked."""

    group, topics = "CG", ("T",)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(self.group)

    def wake(self) -> None:
        self.asked.append("wake")

    def reset(self, topic: str, positions: Mapping[MessageQueue, int]) -> None:
        self.asked.append(f"reset {topic} {[(queue.queue_id, at) for queue, at in positions.items()]}")

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 7} if topic == "T" else {}

    def running_info(self, *, with_tasks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo({"own": "yes"}, jstack="tasks" if with_tasks else None)

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeDirectlyResult:
        return ConsumeDirectlyResult(ConsumeResult.CR_SUCCESS, remark=f"{message.broker_name} {message.body.decode()}")


class OwnProducer:
    group = "PG"

    def __init__(self) -> None:
        self.checked: list[tuple[str, int, bytes]] = []

    def check_transaction(self, address: str, header: CheckTransactionHeader, message: ReceivedMessage) -> None:
        self.checked.append((address, header.log_offset, message.body))


class Broker:
    """The other end: counts what the client sends, and asks the client over its own connection."""

    def __init__(self) -> None:
        self.beats: list[HeartbeatData] = []
        self.left: list[dict[str, str]] = []
        self.peer: Peer

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.peer = peer
        if request.code == RequestCode.HEART_BEAT:
            self.beats.append(HeartbeatData.from_bytes(request.body))
        if request.code == RequestCode.UNREGISTER_CLIENT:
            self.left.append(dict(request.ext))
        return Reply(request.reply())

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> bytes:
        answer = await self.peer.ask(code, ext, body, timeout_s=60)
        assert answer.code == 0, answer.remark
        return answer.body


@asynccontextmanager
async def met() -> AsyncGenerator[tuple[Broker, Instance, str]]:
    """Yield a broker, a client connected to it, and the broker's address."""
    broker = Broker()
    async with serving(broker.handle) as port, Instance("127.0.0.1:1") as instance:
        address = f"127.0.0.1:{port}"
        await instance.ask(address, RequestCode.GET_BROKER_CONFIG)
        yield broker, instance, address


def stored(body: bytes, **properties: str) -> bytes:
    message = Message("T", 1, body, encode_properties(properties), 0, 0, 1, HOST)
    return encode_record(message, encode_topic("T"), 5, 1000, stored_ms=2, store_host=HOST)


def test_producers_and_consumers_of_the_library_are_members() -> None:
    producer: ProducerMember = Producer("PG", "127.0.0.1:1")
    consumers: tuple[ConsumerMember, ...] = (PushConsumer("CG", "127.0.0.1:1"), PullConsumer("PULL", "127.0.0.1:1"))
    assert [producer.group, *(each.group for each in consumers)] == ["PG", "CG", "PULL"]


async def test_what_a_member_says_in_its_heartbeat_reaches_the_broker_until_it_leaves() -> None:
    async with met() as (broker, instance, address):
        consumer, producer = OwnConsumer(), OwnProducer()
        instance.add(consumer, consumes=True)
        instance.add(producer, consumes=False)
        await instance.heartbeat([address])
        (beat,) = broker.beats
        assert [each.group_name for each in beat.consumer_data_set] == ["CG"]
        assert "PG" in [each.group_name for each in beat.producer_data_set]
        with pytest.raises(UsageError, match="group CG is already in use"):
            instance.add(OwnConsumer(), consumes=True)
        await instance.remove(consumer, consumes=True)
        await instance.heartbeat([address])
        assert broker.beats[-1].consumer_data_set == ()


async def test_each_request_of_a_broker_reaches_the_member_whose_group_it_names() -> None:
    async with met() as (broker, instance, _):
        consumer = OwnConsumer()
        instance.add(consumer, consumes=True)
        broker.peer.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "CG"})
        named = {"topic": "T", "group": "CG", "timestamp": "0"}
        broker.peer.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, named, ResetOffset({QUEUE: 3}).to_bytes())
        status = await broker.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "CG"})
        assert ConsumerStatus.from_bytes(status).message_queue_table == {QUEUE: 7}
        assert consumer.asked == ["wake", "reset T [(1, 3)]"]
        for flag, tasks in (("true", "tasks"), ("false", None)):
            ext = {"consumerGroup": "CG", "clientId": "c", "jstackEnable": flag}
            told = ConsumerRunningInfo.from_bytes(await broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
            assert (told.properties, told.jstack) == ({"own": "yes"}, tasks)


async def test_a_member_consumes_the_one_message_that_a_tool_hands_it() -> None:
    async with met() as (broker, instance, _):
        instance.add(OwnConsumer(), consumes=True)
        ext = {"consumerGroup": "CG", "brokerName": "box-a"}
        done = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, stored(b"hello"))
        result = ConsumeDirectlyResult.from_bytes(done)
        assert (result.consume_result, result.remark) == (ConsumeResult.CR_SUCCESS, "box-a hello")


async def test_a_producer_is_asked_about_half_messages_of_its_own_group_alone() -> None:
    async with met() as (broker, instance, _):
        producer = OwnProducer()
        instance.add(producer, consumes=False)
        ext = {"tranStateTableOffset": "5", "commitLogOffset": "1000"}
        for group in ("other", "PG"):
            body = stored(group.encode(), PGROUP=group)
            broker.peer.tell(RequestCode.CHECK_TRANSACTION_STATE, ext, body)
        await until(lambda: producer.checked)
        ((address, log_offset, asked),) = producer.checked
        assert (log_offset, asked) == (1000, b"PG")
        assert address.startswith("127.0.0.1:"), "the broker that is to be answered"
