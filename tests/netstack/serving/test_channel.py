"""The asking side: what a caller sees when there is no server, a slow one, or one that asks back."""

import socket
from functools import partial

import pytest
import trio

from netstack.errors import AskTimeout
from netstack.serving.channel import open_channel
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners
from netstack.serving.tls import client_context
from netstack.testing import serving
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Answer, AsyncReply, Reply


async def test_no_server_is_an_os_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="connect"):
        async with open_channel("127.0.0.1", port):
            pass


async def test_a_server_that_does_not_shake_hands_is_a_timeout() -> None:
    listeners = await open_listeners("127.0.0.1", 0)
    with pytest.raises(TimeoutError, match=r"no connection to 127\.0\.0\.1:\d+ within 0\.05 s"):
        async with open_channel(
            "127.0.0.1", listeners[0].socket.getsockname()[1], tls=client_context(), connect_timeout_s=0.05
        ):
            pass
    await listeners[0].aclose()


async def test_after_a_timeout_the_channel_still_serves_and_the_late_answer_is_dropped() -> None:
    held = trio.Event()

    async def slow(command: RemotingCommand) -> RemotingCommand:
        await held.wait()
        return command.reply(0, None, {"code": "late"})

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        if command.code == 11:
            return AsyncReply(partial(slow, command))
        held.set()
        return Reply(command.reply(0, None, {"code": str(command.code)}))

    async with serving(handle) as port, open_channel("127.0.0.1", port) as channel:
        with pytest.raises(AskTimeout):
            await channel.ask(request(11), timeout_s=0.02)
        for code in (34, 35):
            assert (await channel.ask(request(code))).ext == {"code": str(code)}
        assert not channel.closed.is_set()
        assert channel.peer.remote == ("127.0.0.1", port)


async def test_a_servers_one_way_request_reaches_the_handler() -> None:
    told = trio.Event()

    def serve(command: RemotingCommand, peer: Peer) -> Answer:
        assert peer.tell(40, {"consumerGroup": "CG"})
        return Reply(command.reply())

    def listen(command: RemotingCommand, peer: Peer) -> Answer:
        assert (command.code, command.is_oneway, command.ext) == (40, True, {"consumerGroup": "CG"})
        told.set()
        return None

    async with serving(serve) as port, open_channel("127.0.0.1", port, handle=listen) as channel:
        await channel.ask(request(34))
        with trio.fail_after(25):
            await told.wait()


async def test_what_the_caller_raises_inside_comes_out_as_it_is() -> None:
    async with serving(lambda command, peer: None) as port:
        with pytest.raises(AskTimeout):
            async with open_channel("127.0.0.1", port) as channel:
                await channel.ask(request(11), timeout_s=0.02)
        with trio.move_on_after(0.05) as scope:
            async with open_channel("127.0.0.1", port) as channel:
                await channel.ask(request(11), timeout_s=5)
        assert scope.cancelled_caught


async def test_the_answer_to_the_longest_batch_is_read() -> None:
    ids = ",".join(f"{number:032X}" for number in range(32_768))

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
        return Reply(request.reply(ext={"msgId": ids}))

    async with serving(handle) as port, open_channel("127.0.0.1", port) as channel:
        answer = await channel.ask(request(320), 10)
        assert answer.ext["msgId"] == ids
