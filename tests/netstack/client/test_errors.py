"""What an error of the client says."""

import pytest

from netstack.client import Instance, Message, MessageQueue, Producer, ProducerOptions, PullConsumer
from netstack.client.admin import Admin, Broker
from netstack.client.errors import BadAnswer, BrokerRefused, SendFailed, TimedOut, Unreachable
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.codes import RequestCode, ResponseCode, names_of
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply
from tests.netstack.client.small_cluster import ROUTE


def test_a_refusal_that_was_met_three_times_is_told_once() -> None:
    refused = BrokerRefused("box (10.0.0.1:10911)", 14, "the disk is full", "message for T")
    failed = SendFailed("T", [("box", refused)] * 3, 0.5)
    assert str(failed) == (
        "message for T not sent after 3 attempts at 1 broker in 0.50 s: 3 times at box: box (10.0.0.1:10911) refused "
        "the message for T, code 14: the disk is full; try again later, or cure what the remark names"
    )
    assert (failed.code, len(failed.attempts)) == (14, 3)


def test_what_differs_is_told_each_with_its_brokers() -> None:
    refused = [(name, BrokerRefused(f"{name} ({name}:1)", 14, "full")) for name in ("a", "b")]
    timed_out = [("a", TimedOut("sending to T", seconds)) for seconds in (2.0, 1.5)]
    text = str(SendFailed("T", [*refused, *timed_out, ("c", Unreachable("c:1", "refused"))], 3))
    assert "5 attempts at 3 brokers" in text
    assert text.count("code 14") == text.count("no answer within") == 1
    for part in (
        "2 times at a, b: b (b:1) refused",
        "2 times at a: sending to T: no answer within 1.5 s",
        "; at c: c:1",
    ):
        assert part in text


def test_every_refusal_names_who_what_code_remark_and_a_next_step() -> None:
    for code in (*names_of(ResponseCode), 9999):
        refused = BrokerRefused("box (10.0.0.1:10911)", code, " why ", "pull of T")
        what, _, step = str(refused).partition("; ")
        assert what == f"box (10.0.0.1:10911) refused the pull of T, code {code}: why"
        assert len(step) > 10, code
        assert (refused.server, refused.code, refused.remark) == ("box (10.0.0.1:10911)", code, " why ")


class Nonsense:
    """A NameServer and broker whose answers are good in form and make no sense."""

    def __init__(self) -> None:
        self.port, self.route_too = 0, False

    def answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        route = request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and not self.route_too
        body = ROUTE % (self.port, 1, 1) if route else b"{nonsense"
        return Reply(request.reply(0, None, {"queueOffset": "?", "offset": "?"}, body))


async def test_answers_that_make_no_sense_are_told_as_such_with_who_gave_them() -> None:
    nonsense, queue = Nonsense(), MessageQueue("T", "b", 0)
    async with serving(nonsense.answer) as nonsense.port, Instance(f"127.0.0.1:{nonsense.port}") as instance:
        broker, patient = rf"^b \(127\.0\.0\.1:{nonsense.port}\) answered the ", ProducerOptions(timeout_s=60)
        async with Producer("g", instance=instance, options=patient) as producer:
            with pytest.raises(BadAnswer, match=broker + "message for T with"):
                await producer.send(Message("T", b"x"))
            with pytest.raises(BadAnswer, match=broker + "message for T with"):
                await (await producer.submit(Message("T", b"x"))).wait()
        async with PullConsumer("g", instance=instance) as consumer:
            with pytest.raises(BadAnswer, match=broker + "pull of T with"):
                await consumer.pull(queue, 0)
            with pytest.raises(BadAnswer, match=broker + "question for an offset of T with"):
                await consumer.ends(queue)
        admin, address = Admin(instance), f"127.0.0.1:{nonsense.port}"
        for ask in (admin.brokers, admin.topic_names, lambda: admin.runtime(Broker("b", "C", address))):
            with pytest.raises(BadAnswer, match=f"{address} answered the administration"):
                await ask()
        nonsense.route_too = True
        with pytest.raises(BadAnswer, match=f"^NameServer {address} answered the route of T") as raised:
            await instance.refresh("T")
        assert raised.value.code == 10008
