"""Attempts of a send, against brokers that misbehave on purpose."""

from functools import partial
from typing import Any

import pytest
import trio

from netstack.client import (
    ClientError,
    Message,
    Producer,
    ProducerOptions,
    TimedOut,
)
from netstack.serving.governor import Governor
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners, serve_remoting
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"},'
    b'{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},'
    b'{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
)
ONE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
)
STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "1", "queueOffset": "5"}


def broker(code: int, seen: list[int]) -> Any:
    """Return a broker that answers every send with one code, 1000 = not at all."""

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
        if request.code != 310:
            return Reply(request.reply())
        seen.append(code)
        return None if code == 1000 else Reply(request.reply(code, "on purpose", STORED))

    return handle


async def both(code: int, options: ProducerOptions, number: int, *, piped: bool) -> tuple[int, int, list[ClientError]]:
    """Send to a broker that answers `code` and one that works; return how often each was asked, and the failures."""
    seen: list[int] = []
    async with serving(broker(code, seen)) as bad, serving(broker(0, seen)) as good:
        route = ROUTE % (bad, good)
        async with (
            serving(lambda request, peer: Reply(request.reply(body=route))) as names,
            Producer("two", f"127.0.0.1:{names}", options=options) as producer,
        ):
            failures = []
            for _ in range(number):
                try:
                    if piped:
                        await (await producer.submit(Message("T", b"x"))).wait()
                    else:
                        await producer.send(Message("T", b"x"))
                except ClientError as error:
                    failures.append(error)
            return seen.count(code), seen.count(0), failures


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
async def test_some_refusals_send_the_message_to_another_broker(code: int, piped: bool) -> None:
    bad, good, failures = await both(code, ProducerOptions(), 8, piped=piped)
    assert (bad > 0, good, failures) == (True, 8, [])


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("code", [2, 13])
async def test_other_refusals_are_raised_at_once(code: int, piped: bool) -> None:
    bad, good, failures = await both(code, ProducerOptions(), 8, piped=piped)
    assert bad + good == 8
    assert {error.code for error in failures} == {code}
    assert len(failures) == bad > 0


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
async def test_a_silent_broker_costs_the_whole_time_and_then_says_which(piped: bool) -> None:
    bad, good, failures = await both(1000, ProducerOptions(timeout_s=1.5), 3, piped=piped)  # of a, a, b, b
    assert len(failures) == bad > 0
    assert bad + good == 3
    assert all("no answer within 1.5 s" in str(error) for error in failures)


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
async def test_a_send_outlives_a_restart_of_the_only_broker(piped: bool) -> None:
    seen: list[int] = []
    async with serving(broker(0, seen)) as first:
        port = first
    route = ONE % port  # nobody listens there any more
    async with (
        serving(lambda request, peer: Reply(request.reply(body=route))) as names,
        Producer("one", f"127.0.0.1:{names}", options=ProducerOptions(timeout_s=6)) as producer,
        trio.open_nursery() as nursery,
    ):
        stored = trio.Event()

        async def send() -> None:
            if piped:
                await (await producer.submit(Message("T", b"x"))).wait()
            else:
                await producer.send(Message("T", b"x"))
            stored.set()

        nursery.start_soon(send)
        await trio.sleep(0.3)
        assert not stored.is_set()
        listeners = await open_listeners("127.0.0.1", port)
        nursery.start_soon(partial(serve_remoting, listeners, broker(0, seen), governor=Governor()))
        await stored.wait()
        nursery.cancel_scope.cancel()
    assert seen == [0]


async def test_an_attempt_whose_time_was_over_before_it_began_is_one_that_timed_out() -> None:
    async with serving(broker(1000, [])) as bad:
        route = ROUTE % (bad, bad)
        async with (
            serving(lambda request, peer: Reply(request.reply(body=route))) as names,
            Producer("late", f"127.0.0.1:{names}") as producer,
        ):
            sender, queue = producer._sender, (await producer.queues("T"))[0]
            with pytest.raises(TimedOut):
                await sender.attempt(sender.make(Message("T", b"x")), queue, trio.current_time() - 0.01)


async def test_a_slow_or_failing_broker_is_avoided_when_asked_for() -> None:
    bad, good, failures = await both(14, ProducerOptions(avoid_slow_brokers=True), 20, piped=False)
    assert (bad, good, failures) == (1, 20, [])


async def test_stored_with_a_reservation_is_a_result_unless_another_broker_is_wanted() -> None:
    bad, good, failures = await both(10, ProducerOptions(), 8, piped=False)
    assert (bad + good, failures) == (8, [])
    bad, good, failures = await both(10, ProducerOptions(retry_when_not_stored=True), 8, piped=False)
    assert (good, failures) == (8, [])
