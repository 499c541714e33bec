"""The other end as handlers see it: asking, telling, and its end."""

import pytest
import trio

from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from netstack.testing import echo, memory_channel
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Answer, AsyncReply, Reply


async def test_a_hundred_questions_at_once_each_get_their_answer() -> None:
    async def slowly(command: RemotingCommand) -> RemotingCommand:
        for _ in range(command.opaque * 31 % 7):
            await trio.lowlevel.checkpoint()
        return command.reply(0, None, command.ext)

    def listen(command: RemotingCommand, peer: Peer) -> Answer:
        return AsyncReply(lambda: slowly(command))

    async def ask(peer: Peer, number: int) -> None:
        answer = await peer.ask(307, {"n": str(number)}, timeout_s=60)
        assert answer.ext == {"n": str(number)}

    async with memory_channel(listen=listen) as (_, peer), trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, peer, number)


async def test_a_question_without_an_answer_is_forgotten() -> None:
    async with memory_channel(listen=lambda command, peer: None) as (_, peer):
        with pytest.raises(AskTimeout, match="request code 221 within"):
            await peer.ask(221, {"topic": "T"}, timeout_s=0.01)
        assert not peer.settle(RemotingCommand(0, 1, 1))


async def test_callbacks_run_once_and_may_be_taken_back() -> None:
    ran: list[str] = []
    async with memory_channel() as (channel, peer):
        peer.on_close(lambda: ran.append("kept"))
        channel.close()
        await peer.closed.wait()
        peer.on_close(lambda: ran.append("late"))
        peer.end("again")
        assert ran == ["kept", "late"]
        assert peer.close_reason == "eof"
        with pytest.raises(ChannelClosed, match=r"connection to 10\.0\.0\.1:5 closed: eof"):
            await peer.ask(221, timeout_s=1)


async def test_tell_needs_no_answer_and_asks_still_work_beside_it() -> None:
    heard: list[tuple[int, bool]] = []

    def listen(command: RemotingCommand, peer: Peer) -> Answer:
        heard.append((command.code, command.is_oneway))
        return Reply(command.reply())

    async with memory_channel(echo, listen) as (channel, peer):
        assert peer.tell(40, {"consumerGroup": "CG"})
        assert (await peer.ask(307, timeout_s=60)).code == 0
        assert (await channel.ask(request(34, {"a": "b"}))).ext == {"a": "b"}
    assert heard == [(40, True), (307, False)]


async def test_addresses_are_shown_as_people_write_them() -> None:
    assert str(Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 6), Outbox())) == "10.0.0.1:5"
    peer = Peer(1, ("2001:db8::1", 5), ("::1", 6), Outbox())
    assert (str(peer), len(peer.born_host)) == ("[2001:db8::1]:5", 20)
