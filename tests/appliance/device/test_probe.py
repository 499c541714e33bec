"""The proof that ports answer: only a working answer of both counts, whatever else is there."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from appliance.device.probe import LocalCredentials, OwnPortSilent, Probe, answered
from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply


def saying(code: int, asked: list[int] | None = None) -> object:
    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        if asked is not None:
            asked.append(command.code)
        return Reply(command.reply(code, None))

    return handle


@pytest.mark.parametrize(("code", "well"), [(0, True), (17, True), (1, False), (2, False), (3, False), (16, False)])
async def test_only_codes_of_a_working_box_count(code: int, well: bool) -> None:
    async with serving(saying(code)) as port:  # type: ignore[arg-type]
        assert await answered("127.0.0.1", port, RemotingCommand(105)) == well


async def test_both_ports_are_asked_and_both_must_answer() -> None:
    broker, namesrv = list[int](), list[int]()
    async with serving(saying(0, broker)) as one, serving(saying(17, namesrv)) as two:  # type: ignore[arg-type]
        assert await Probe("127.0.0.1", one, two)()
        assert (broker, namesrv) == ([31], [105])
        async with serving(saying(1)) as ill:  # type: ignore[arg-type]
            assert not await Probe("127.0.0.1", one, ill)()
            assert not await Probe("127.0.0.1", ill, two)()
    assert len(namesrv) == 1  # a broker that is ill is enough


async def test_a_port_that_is_closed_or_hangs_up_is_no_answer_and_no_error() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert not await answered("127.0.0.1", nobody.getsockname()[1], RemotingCommand(105))

    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async def babble(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    for serve in (hang_up, babble):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            with trio.fail_after(25):
                assert not await answered("127.0.0.1", listeners[0].socket.getsockname()[1], RemotingCommand(105))
            nursery.cancel_scope.cancel()


async def test_requests_are_signed_where_the_box_asks_for_it() -> None:
    seen = list[dict[str, str]]()

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        seen.append(dict(command.ext or {}))
        return Reply(command.reply(0, None))

    def sign(command: RemotingCommand) -> RemotingCommand:
        command.ext = {**(command.ext or {}), "Signature": "s"}
        return command

    async with serving(handle) as port:
        assert await answered("127.0.0.1", port, RemotingCommand(105, ext={"topic": "x"}), LocalCredentials(sign))
    assert seen[0]["Signature"] == "s"


async def test_a_request_of_the_box_itself_is_answered_or_says_that_the_port_is_silent() -> None:
    async with serving(saying(17)) as port:  # type: ignore[arg-type]
        probe = Probe("127.0.0.1", port, port)
        assert (await probe.ask(RemotingCommand(105))).code == 17
    with pytest.raises(OwnPortSilent, match="did not answer"):
        await probe.ask(RemotingCommand(105))
