"""The window of a pipelined producer, and what becomes of sends whose answer does not come."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from netstack.client import Message, Pending, Producer, ProducerOptions, Unreachable, UsageError
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, AsyncReply, Reply
from tests.waiting import until

STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "0", "queueOffset": "5"}
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


class Broker:
    """Answers sends when it is let go."""

    def __init__(self) -> None:
        self.port, self.seen = 0, 0
        self.go = trio.Event()
        self.peers: list[Peer] = []

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        if request.code == 105:
            return Reply(request.reply(body=ROUTE % self.port))
        if request.code != 310:
            return Reply(request.reply())
        self.seen += 1
        self.peers.append(peer)

        async def answer() -> RemotingCommand:
            await self.go.wait()
            return request.reply(0, None, STORED)

        return AsyncReply(answer)


@asynccontextmanager
async def opened(options: ProducerOptions) -> AsyncGenerator[tuple[Broker, Producer]]:
    broker = Broker()
    async with (
        serving(broker.handle) as broker.port,
        Producer("g", f"127.0.0.1:{broker.port}", options=options) as producer,
    ):
        yield broker, producer


async def test_no_more_than_the_window_is_under_way() -> None:
    async with opened(ProducerOptions(window=5)) as (broker, producer), trio.open_nursery() as nursery:
        under_way: list[Pending] = []

        async def submit() -> None:
            for _ in range(12):
                under_way.append(await producer.submit(Message("T", b"x")))

        nursery.start_soon(submit)
        await until(lambda: broker.seen == 5)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert (len(under_way), broker.seen) == (5, 5)
        assert not under_way[0].done
        broker.go.set()
        await until(lambda: len(under_way) == 12)
        with trio.fail_after(60):
            await producer.wait_sent()
        assert all(pending.done for pending in under_way)
        assert {(await pending.wait()).queue_offset for pending in under_way} == {5}


async def test_tasks_that_wait_side_by_side_all_go_on() -> None:
    sent: list[Pending] = []
    ended: list[str] = []
    async with opened(ProducerOptions(window=1)) as (broker, producer), trio.open_nursery() as nursery:

        async def submit() -> None:  # the later two wait for room
            sent.append(await producer.submit(Message("T", b"x")))
            await sent[-1].wait()

        async def wait(what: str) -> None:
            await (first.wait() if what == "answer" else producer.wait_sent())
            ended.append(what)

        first = await producer.submit(Message("T", b"first"))
        with trio.move_on_after(0.01):
            await first.wait()
        with trio.move_on_after(0.01):
            await producer.wait_sent()
        for _ in range(2):
            nursery.start_soon(submit)
            nursery.start_soon(wait, "answer")
            nursery.start_soon(wait, "all")
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert (sent, ended) == ([], [])
        broker.go.set()
        await until(lambda: len(ended) == 4)
    assert [pending.done for pending in sent] == [True, True]


async def test_the_first_sends_of_a_window_leave_while_it_is_filled() -> None:
    async with opened(ProducerOptions(window=1000)) as (broker, producer):
        await producer.instance.route("T")
        await producer.submit(Message("T", b"x"))
        await until(lambda: broker.seen == 1)  # from here on there is a connection
        submitted = 0
        while broker.seen == 1:
            await producer.submit(Message("T", bytes(1024)))
            submitted += 1
            assert submitted < 999, "a full window would have let the broker have its turn"
        broker.go.set()


async def test_large_bodies_count_by_their_bytes() -> None:
    options = ProducerOptions(window_bytes=2000, compress_from=1 << 20)
    async with opened(options) as (broker, producer), trio.open_nursery() as nursery:
        under_way: list[Pending] = []

        async def submit() -> None:
            for _ in range(3):
                under_way.append(await producer.submit(Message("T", bytes(1500))))

        nursery.start_soon(submit)
        await until(lambda: broker.seen == 2)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert (len(under_way), broker.seen) == (2, 2)  # the third has to wait
        broker.go.set()
        await until(lambda: len(under_way) == 3)


async def test_a_lost_connection_fails_a_send_without_retries_and_a_late_answer_is_ignored() -> None:
    async with opened(ProducerOptions(retries=0, timeout_s=60)) as (broker, producer):
        await producer.instance.route("T")
        pending = await producer.submit(Message("T", b"x"), timeout_s=0.15)
        with pytest.raises(Exception, match=r"no answer within 0\.15 s"):
            await pending.wait()
        broker.go.set()
        await producer.send(Message("T", b"x"))  # the connection is as good as before
        broker.go = trio.Event()
        pending = await producer.submit(Message("T", b"x"))
        producer.instance._links.drop(f"127.0.0.1:{broker.port}")
        with pytest.raises(Unreachable, match="ended before the answer"):
            await pending.wait()
        broker.go.set()


async def test_a_producer_that_is_left_by_an_error_settles_what_is_under_way() -> None:
    pending: list[Pending] = []
    broker = Broker()

    async def fail_inside(producer: Producer) -> None:
        async with producer:
            await producer.instance.route("T")
            pending.append(await producer.submit(Message("T", b"x")))
            pending.append(await producer.submit(Message("T", b"x"), timeout_s=100))
            await trio.testing.wait_all_tasks_blocked(0.02)
            raise ZeroDivisionError

    async with serving(broker.handle) as broker.port:
        with pytest.raises(ZeroDivisionError):
            await fail_inside(Producer("g", f"127.0.0.1:{broker.port}"))
    for each in pending:
        with pytest.raises(UsageError, match="closed before"):
            await each.wait()


async def test_a_send_that_waits_for_room_when_its_producer_ends_is_told_so() -> None:
    errors: list[UsageError] = []
    async with trio.open_nursery() as nursery, opened(ProducerOptions(window=1)) as (broker, producer):

        async def submit() -> None:
            try:
                await producer.submit(Message("T", b"second"))
            except UsageError as error:
                errors.append(error)

        first = await producer.submit(Message("T", b"first"))
        nursery.start_soon(submit)
        await trio.testing.wait_all_tasks_blocked(0.02)
        producer._require_open().close()
        assert first.done
        with trio.fail_after(60):
            while not errors:  # noqa: ASYNC110
                await trio.sleep(0.005)
        broker.go.set()
    assert "closed before" in str(errors[0])
