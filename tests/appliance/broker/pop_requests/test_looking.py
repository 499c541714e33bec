"""Those who only look: peek, notification, polling info."""

from functools import partial
from pathlib import Path

import trio

from netstack.wire.command import RemotingCommand
from tests.appliance.box import ask, connected, messages_of, running_box, send
from tests.appliance.broker.pop_requests.requests import bodies, pop, popped, until_waiting

QUEUE = {"consumerGroup": "CG", "topic": "T", "queueId": -1}


def notification(poll_ms: int, **more: object) -> RemotingCommand:
    return ask(200054, **QUEUE, pollTime=poll_ms, bornTime=1, **more)


async def test_a_peek_takes_nothing(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        peek = ask(200052, **QUEUE, maxMsgNums=2)
        for number in range(3):
            await channel.ask(send("T", b"%d" % number))
        for _ in range(2):
            answer = await channel.ask(peek)
            assert (answer.code, [message.body for message in messages_of(answer)]) == (0, [b"0", b"1"])
            assert answer.ext["restNum"] == "3"
        assert await bodies(channel, pop(most=1)) == [b"0"]
        assert [message.body for message in messages_of(await channel.ask(peek))] == [b"1", b"2"]
        await bodies(channel, pop())
        assert (await channel.ask(peek)).code == 19


async def test_a_notification_tells_whether_there_is_something_and_waits_for_it(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel, connected(box) as other:
        await channel.ask(send("T", b"1"))
        assert (await channel.ask(notification(0))).ext == {"hasMsg": "true", "pollingFull": "false"}
        popped(await channel.ask(pop()))
        assert (await channel.ask(notification(0))).ext == {"hasMsg": "false", "pollingFull": "false"}
        answers: list[RemotingCommand] = []

        async def wait() -> None:
            answers.append(await channel.ask(notification(60_000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until_waiting(other, 1)
            await other.ask(send("T", b"2", queue_id=1))
        assert answers[0].ext["hasMsg"] == "true"
        assert await bodies(channel, pop()) == [b"2"]


async def test_a_notification_takes_no_message_from_one_who_receives(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel, connected(box) as other:
        await channel.ask(send("T", b"1"))
        popped(await channel.ask(pop()))
        got: list[bytes] = []

        async def receive() -> None:
            got.extend(await bodies(other, pop(poll_ms=60_000)))

        async with trio.open_nursery() as nursery, connected(box) as third:
            nursery.start_soon(partial(channel.ask, notification(60_000)))
            await until_waiting(third, 1)
            nursery.start_soon(receive)
            await until_waiting(third, 2)
            await third.ask(send("T", b"2"))
        assert got == [b"2"]


async def test_too_many_that_wait_are_told_so(tmp_path: Path) -> None:
    async with running_box(tmp_path, "[limits]\nparked_pulls = 0\n") as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        popped(await channel.ask(pop()))
        assert (await channel.ask(notification(1000))).ext == {"hasMsg": "false", "pollingFull": "true"}


async def test_what_may_not_be_read_is_not_looked_at(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for code in (200052, 200054, 200055):
            fields = {**QUEUE, "maxMsgNums": 1, "pollTime": 0, "topic": "Unknown"}
            assert (await channel.ask(ask(code, **fields))).code == 17
