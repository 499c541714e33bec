"""What brokers and tools ask of a client, through the real box that relays it."""

from pathlib import Path

import pytest
import trio

from netstack.client import (
    BrokerRefused,
    ConsumerOptions,
    Instance,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Retry,
    StartFrom,
    Verdict,
)
from netstack.client.broker_requests import pushed_reply
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.bodies import ConsumeDirectlyResult, ConsumerData, ConsumeResult, ConsumerRunningInfo, ConsumerStatus
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Answer, Reply
from netstack.wire.headers import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    PushReplyHeader,
    ResetOffsetHeader,
)
from tests.appliance.box import running_box
from tests.netstack.client.conftest import BOX_AND_LATER_APACHE, PATIENT, fill
from tests.waiting import until

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


async def consume(consumer: PushConsumer, number: int) -> None:
    for _ in range(number):
        consumer.ack(await consumer.__anext__())


def broker_of(instance: Instance) -> str:
    return next(iter(next(iter(instance.routes.values())).brokers.values()))[0]


@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE, indirect=True)
async def test_running_information_reaches_the_tool(namesrv: str, topic: str) -> None:
    async with Producer("info", namesrv, options=PATIENT) as producer:
        await fill(producer, topic, 8)
        instance = producer.instance
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            await consume(consumer, 8)
            header = ConsumerRunningInfoHeader(topic, instance.client_id, True)
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = await instance.ask_ok(broker_of(instance), code, header)
            known = ConsumerRunningInfo.from_bytes(answer.body)
            assert known.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            table = {queue: each for queue, each in known.mq_table.items() if queue.topic == topic}
            assert sum(each.commit_offset for each in table.values()) == 8
            assert "PushConsumer._persist" in (known.jstack or "")
            with pytest.raises(BrokerRefused):
                await instance.ask_ok(
                    broker_of(instance), code, ConsumerRunningInfoHeader("other", instance.client_id, False)
                )


@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE, indirect=True)
async def test_a_tool_has_one_message_consumed(namesrv: str, topic: str) -> None:
    async with Producer("direct", namesrv, options=PATIENT) as producer, trio.open_nursery() as nursery:
        instance = producer.instance
        sent = await producer.send(Message(topic, b"good"))
        bad = await producer.send(Message(topic, b"bad"))
        bodies: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            bodies.append(message.body)
            if message.body == b"bad":
                raise Retry(delay_level=18)

        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:

            async def directly(message_id: str) -> ConsumeDirectlyResult:
                header = ConsumeDirectlyHeader(topic, instance.client_id, message_id)
                answer = await instance.ask_ok(broker_of(instance), RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                return ConsumeDirectlyResult.from_bytes(answer.body)

            none = await directly(sent.offset_message_id)
            assert none.consume_result is ConsumeResult.CR_THROW_EXCEPTION
            assert "no handler" in (none.remark or "")
            nursery.start_soon(consumer.run, handle)
            await until(lambda: len(bodies) == 2)
            assert (await directly(sent.offset_message_id)).consume_result is ConsumeResult.CR_SUCCESS
            assert (await directly(bad.offset_message_id)).consume_result is ConsumeResult.CR_LATER
            assert bodies[2:] == [b"good", b"bad"]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE, indirect=True)
async def test_a_tool_resets_the_offsets_and_sees_them(namesrv: str, topic: str) -> None:
    async with Producer("reset", namesrv, options=PATIENT) as producer:
        instance = producer.instance
        await fill(producer, topic, 20)
        async with PushConsumer(topic, instance=instance, options=FIRST, topics={topic: "*"}) as consumer:
            await consume(consumer, 20)
            await consumer.commit()
            header = ConsumerStatusHeader(topic, topic)
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = await instance.ask_ok(broker_of(instance), code, header)
            table = ConsumerStatus.from_bytes(answer.body).consumer_table[instance.client_id]
            assert sum(table.values()) == 20
            reset = ResetOffsetHeader(topic, topic, 0, True)
            await instance.ask_ok(broker_of(instance), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
            with trio.fail_after(60):
                await consume(consumer, 20)


async def undecided(message: Message, message_id: str) -> None:
    raise ZeroDivisionError("the application failed")


async def check_half_messages(namesrv: str, topic: str) -> None:
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> Verdict:
        asked.append(message.message_id)
        return Verdict.COMMIT if message.body == b"commit me" else Verdict.ROLLBACK

    async with (
        Producer(f"{topic}_checked", namesrv, check=check, options=PATIENT) as producer,
        PushConsumer(topic, instance=producer.instance, options=FIRST, topics={topic: "*"}) as consumer,
    ):
        wanted, verdict = await producer.send_in_transaction(Message(topic, b"commit me"), undecided)
        assert verdict is Verdict.UNKNOWN
        other, _ = await producer.send_in_transaction(Message(topic, b"roll me back"), undecided)
        with trio.fail_after(60):
            message = await consumer.__anext__()
        assert (message.body, message.message_id) == (b"commit me", wanted.message_id)
        assert message.transaction_id == wanted.message_id
        await until(lambda: set(asked) == {wanted.message_id, other.message_id}, 60)


@pytest.mark.slow
async def test_the_broker_asks_about_a_half_message_and_the_answer_decides(tmp_path: Path, topic: str) -> None:
    toml = "[broker]\ntransaction_timeout_s = 1\ntransaction_check_s = 1\n"
    async with running_box(tmp_path / "data", toml) as box:
        await check_half_messages(f"127.0.0.1:{box.namesrv_port}", topic)


@pytest.mark.parametrize("namesrv", BOX_AND_LATER_APACHE[1:], indirect=True)
async def test_apaches_broker_asks_as_well(namesrv: str, topic: str) -> None:
    await check_half_messages(namesrv, topic)


async def test_what_is_not_for_clients_is_refused_and_a_group_change_wakes_only_its_consumer() -> None:
    peers: list[Peer] = []

    def broker(command: RemotingCommand, peer: Peer) -> Answer:
        peers.append(peer)
        return Reply(command.reply())

    woken: list[str] = []

    class Consumer:
        topics = ()

        def __init__(self, group: str) -> None:
            self.group = group

        def wake(self) -> None:
            woken.append(self.group)

        def heartbeat(self) -> ConsumerData:
            return ConsumerData(self.group)

    async with serving(broker) as port, Instance("127.0.0.1:1") as instance:
        instance.consumers.update({"a": Consumer("a"), "b": Consumer("b")})  # type: ignore[dict-item]
        await instance.ask(f"127.0.0.1:{port}", 34)
        assert (await peers[0].ask(9999, timeout_s=60)).code == 3
        peers[0].tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "b"})
        missing = await peers[0].ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "c"}, timeout_s=60)
        assert missing.code == 1
        garbage = await peers[0].ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "a"}, b"xy", timeout_s=60)
        assert garbage.code == 1
        assert woken == ["b"]
        instance.consumers.clear()


def test_a_pushed_reply_is_a_message_with_its_arrival() -> None:
    header = PushReplyHeader("g", "C_REPLY_TOPIC", "TBW102", 4, 0, 0, 5, 0, "1.2.3.4:5", "6.7.8.9:1", 7, "K\x01V")
    message = pushed_reply(header, b"body", 99)
    assert (message.body, message.properties) == (b"body", {"K": "V", "ARRIVE_TIME": "99"})
    assert message.topic == "C_REPLY_TOPIC"


def test_requests_are_marked_as_pythons_and_signed_when_there_is_an_account() -> None:
    from netstack.client import Credentials
    from netstack.wire.acl import verify

    signed = Instance("x:1", credentials=Credentials("me", "secret")).request(105, {"topic": "T"})
    assert (signed.language, signed.ext["AccessKey"]) == ("PYTHON", "me")
    assert verify(signed, "secret")
    assert request(105).language == "JAVA"
