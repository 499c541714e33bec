"""The server over real sockets: who is answered, in what order, and what happens at each limit."""

import socket
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.serving.channel import Channel, open_channel
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.peer import Peer
from netstack.serving.server import Brought, serve_remoting
from netstack.testing import echo, read_commands, serving
from netstack.wire.command import RemotingCommand, decode_command, encode_command, request
from netstack.wire.conversation import Answer, AsyncReply, DeferredReply, Reply
from netstack.wire.frame import FrameDecoder
from tests.waiting import until


def numbered(code: int, opaque: int, *, oneway: bool = False) -> bytes:
    command = request(code, {"n": str(opaque)}, oneway=oneway)
    command.opaque = opaque
    return encode_command(command)


async def test_frames_of_one_receive_are_answered_in_one_send() -> None:
    async with serving(echo) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(numbered(34, n) for n in range(3)))
        decoder = FrameDecoder()
        decoder.feed(await stream.receive_some(65536))
        opaques = [decode_command(frame).opaque for frame in iter(decoder.next_frame, None)]
        assert opaques == [0, 1, 2]


async def test_a_binary_request_gets_a_binary_answer_and_json_stays_json() -> None:
    async with serving(echo) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        asked = RemotingCommand(105, 7, ext={"topic": "T"}, serialize_type=1)
        await stream.send_all(encode_command(asked) + numbered(34, 8))
        answers = await read_commands(stream, 2)
        assert [(answer.opaque, answer.serialize_type) for answer in answers] == [(7, 1), (8, 0)]


async def test_oneway_requests_run_and_are_never_answered_not_even_refused() -> None:
    seen: list[int] = []

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        seen.append(command.opaque)
        if command.code == 1:
            raise Refused(1, "no")
        if command.code == 2:
            return DeferredReply(lambda _, wake: wake("failed"), 0, command.reply(), lambda why: command.reply(14, why))
        return Reply(command.reply())

    async with serving(handle) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(numbered(code, code, oneway=True) for code in (0, 1, 2)) + numbered(9, 9))
        assert [answer.opaque for answer in await read_commands(stream, 1)] == [9]
        assert seen == [0, 1, 2, 9]


async def test_a_response_without_a_request_is_dropped() -> None:
    async with serving(echo) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(encode_command(RemotingCommand(0, 5, 1)) + numbered(34, 6))
        assert [answer.opaque for answer in await read_commands(stream, 1)] == [6]


async def test_a_refusal_goes_back_with_its_code_and_remark() -> None:
    def refuse(command: RemotingCommand, peer: Peer) -> Answer:
        raise Refused(17, "no such topic")

    async with serving(refuse) as port, open_channel("127.0.0.1", port) as channel:
        answer = await channel.ask(request(105, {"topic": "T"}))
        assert (answer.code, answer.remark) == (17, "no such topic")


async def test_held_answers_leave_when_woken_and_fail_with_their_reason() -> None:
    wakes: list[Callable[[str | None], None]] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        return DeferredReply(
            lambda _, wake: wakes.append(wake), 0, command.reply(0, "stored"), lambda why: command.reply(14, why)
        )

    async with serving(hold) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(numbered(310, 1) + numbered(310, 2))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(wakes) == 2
        wakes[1](None)
        wakes[0]("disk failed")
        answers = await read_commands(stream, 2)
        assert [(a.opaque, a.code, a.remark) for a in answers] == [(2, 0, "stored"), (1, 14, "disk failed")]


async def test_a_later_answer_keeps_nobody_waiting() -> None:
    go = trio.Event()

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        async def wait() -> RemotingCommand:
            await go.wait()
            return command.reply(19)

        return AsyncReply(wait, pull=True) if command.code == 11 else Reply(command.reply())

    governor = Governor()
    async with serving(handle, governor=governor) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(numbered(11, 1) + numbered(34, 2))
        assert [a.opaque for a in await read_commands(stream, 1)] == [2]
        assert governor.statistics().parked_pulls == 1
        go.set()
        assert [(a.opaque, a.code) for a in await read_commands(stream, 1)] == [(1, 19)]
        assert governor.statistics().parked_pulls == 0


async def test_both_sides_may_ask_with_the_same_number_at_the_same_time() -> None:
    async def ask_back(command: RemotingCommand, peer: Peer) -> RemotingCommand:
        answer = await peer.ask(307, {"consumerGroup": "CG"}, timeout_s=60)
        return command.reply(0, None, None, answer.body)

    def serve(command: RemotingCommand, peer: Peer) -> Answer:
        return AsyncReply(lambda: ask_back(command, peer))

    def client(command: RemotingCommand, peer: Peer) -> Answer:
        return Reply(command.reply(0, None, None, b"opaque %d" % command.opaque))

    async with serving(serve) as port, open_channel("127.0.0.1", port, handle=client) as channel:
        asked = request(307)
        answer = await channel.ask(asked)
        assert (asked.opaque, answer.body) == (1, b"opaque 1")


async def test_who_asks_a_silent_or_vanishing_peer_is_told_which() -> None:
    def silent(command: RemotingCommand, peer: Peer) -> Answer:
        return None

    async with serving(silent) as port, open_channel("127.0.0.1", port) as channel:
        with pytest.raises(AskTimeout, match=r"did not answer request code 34 within 0.01 s"):
            await channel.ask(request(34), timeout_s=0.01)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_closed, channel)
            await trio.testing.wait_all_tasks_blocked()
            channel.close()
        with pytest.raises(ChannelClosed):
            await channel.ask(request(34))
        assert not channel.tell(request(15, oneway=True))


async def expect_closed(channel: Channel) -> None:
    with pytest.raises(ChannelClosed, match="closed here"):
        await channel.ask(request(34), timeout_s=5)


async def test_close_callbacks_run_once_with_the_end_of_the_connection() -> None:
    ended = trio.Event()

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        peer.on_close(ended.set)
        return Reply(command.reply())

    async with serving(handle) as port:
        async with open_channel("127.0.0.1", port) as channel:
            await channel.ask(request(34))
            assert not ended.is_set()
        with trio.fail_after(25):
            await ended.wait()


async def test_the_reader_stops_at_the_limit_in_flight_and_goes_on_below_it() -> None:
    wakes: list[Callable[[str | None], None]] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        return DeferredReply(lambda _, wake: wakes.append(wake), 0, command.reply(), lambda why: command.reply(14, why))

    async with serving(hold, Limits(requests_in_flight=3)) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(numbered(310, n) for n in range(8)))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(wakes) == 3
        for wake in wakes[:2]:
            wake(None)
        await read_commands(stream, 2)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(wakes) == 5


async def test_who_holds_much_is_read_no_further_while_all_hold_too_much_and_others_go_on() -> None:
    wakes: list[Callable[[str | None], None]] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        if command.code == 34:
            return Reply(command.reply())
        return DeferredReply(lambda _, wake: wakes.append(wake), 0, command.reply(), lambda why: command.reply(14, why))

    governor = Governor(Limits(bytes_in_flight=20_000))
    async with serving(hold, governor=governor) as port, open_channel("127.0.0.1", port) as other:
        heavy = await trio.open_tcp_stream("127.0.0.1", port)
        await heavy.send_all(encode_command(request(310, None, bytes(30_000))))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert governor.statistics().readers_paused
        await heavy.send_all(numbered(34, 1))
        for _ in range(3):
            assert (await other.ask(request(34))).code == 0
        large = await trio.open_tcp_stream("127.0.0.1", port)
        await large.send_all(encode_command(request(310, None, bytes(30_000))))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(wakes) == 1, "a large request waits"
        wakes[0](None)
        assert [a.opaque for a in await read_commands(heavy, 2)] == [0, 1]
        await trio.testing.wait_all_tasks_blocked(0.05)
        wakes[1](None)
        assert governor.statistics().bytes_in_flight == 0


async def test_a_connection_over_the_limit_is_closed_at_once_and_counted() -> None:
    governor = Governor(Limits(connections=1))
    async with serving(echo, governor=governor) as port, open_channel("127.0.0.1", port) as channel:
        await channel.ask(request(34))
        refused = await trio.open_tcp_stream("127.0.0.1", port)
        with trio.fail_after(25):
            assert await refused.receive_some(1) == b""
        assert governor.statistics().counted["refused_limits.connections"] == 1
        assert (await channel.ask(request(34))).code == 0


async def test_a_newcomer_gets_the_place_of_an_address_that_holds_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["10.0.0.1"] * 6 + ["10.0.0.2"]
    monkeypatch.setattr("netstack.serving.server._ends", lambda sock: ((addresses.pop(0), 5), ("10.0.0.9", 10911)))
    governor = Governor(Limits(connections=4, reserved_for_loopback=0))
    async with serving(echo, governor=governor) as port:
        greedy = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(6)]
        for stream in greedy[1:4]:
            await stream.send_all(numbered(34, 1))
            await read_commands(stream, 1)
        async with open_channel("127.0.0.1", port) as channel:
            assert (await channel.ask(request(34))).code == 0
        assert await greedy[0].receive_some(1) == b"", "it was silent longest"
        counted = governor.statistics().counted
        assert (counted["evicted"], counted["refused_limits.connections"]) == (1, 2)


async def test_a_bug_before_a_connection_is_served_ends_that_one_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        """Fails at the first connection."""

        asked = 0

        async def secure(self, stream: trio.SocketStream) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            self.asked += 1
            if self.asked == 1:
                raise OSError(107, "not connected")
            return stream

    governor = Governor()
    async with serving(echo, governor=governor, tls=Broken()) as port:
        first = await trio.open_tcp_stream("127.0.0.1", port)
        assert await first.receive_some(1) == b""
        async with open_channel("127.0.0.1", port) as channel:
            assert (await channel.ask(request(34))).code == 0
            assert governor.statistics().connections == 1
    assert "event=connection_failed" in caplog.text


async def test_a_thousand_shuffled_requests_each_get_one_answer() -> None:
    async def wait(command: RemotingCommand) -> RemotingCommand:
        for _ in range(command.opaque * 7919 % 13):
            await trio.lowlevel.checkpoint()
        return command.reply()

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        return AsyncReply(lambda: wait(command))

    async with serving(handle) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(numbered(310, n) for n in range(1000)))
        answers = [answer.opaque for answer in await read_commands(stream, 1000)]
    assert sorted(answers) == list(range(1000))
    assert answers != sorted(answers)


async def test_a_bug_in_a_handler_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        if command.code == 1:
            raise ZeroDivisionError
        return Reply(command.reply())

    async with serving(handle) as port, open_channel("127.0.0.1", port) as other:
        async with open_channel("127.0.0.1", port) as failing:
            with pytest.raises(ChannelClosed):
                await failing.ask(request(1))
        assert (await other.ask(request(34))).code == 0
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_handler_may_end_the_connection_also_later_and_once_it_is_over() -> None:
    peers: list[Peer] = []

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        peers.append(peer)
        return Reply(command.reply())

    async with serving(handle) as port, open_channel("127.0.0.1", port) as channel:
        await channel.ask(request(34))
        peers[0].close("silent")
        peers[0].close("again")
        with trio.fail_after(25):
            await channel.closed.wait()
            await peers[0].closed.wait()
        peers[0].close("too late")
        assert peers[0].close_reason == "silent"


async def test_that_the_other_side_hung_up_is_known_before_its_end_is_read() -> None:
    seen: list[tuple[bool, bool]] = []

    def handle(command: RemotingCommand, peer: Peer) -> Answer:
        seen.append((peer.hung_up, peer.listens))
        return Reply(command.reply())

    async with serving(handle) as port, open_channel("127.0.0.1", port) as channel:
        await channel.ask(request(34))
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(numbered(34, 1))
        await until(lambda: len(seen) == 2)
        await channel.ask(request(34))
    assert sorted(seen) == [(False, True), (False, True), (True, True)]


async def test_a_connection_brought_another_way_is_served_within_the_limits_and_ends_with_the_server() -> None:
    governor, ended = Governor(Limits(connections_per_address=1)), list[str]()
    peers = list[Peer]()

    def note(command: RemotingCommand, peer: Peer) -> Answer:
        peers.append(peer)
        return echo(command, peer)

    async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
        serve = await nursery.start(partial(serve_remoting, (), note, governor=governor))

        async def bring() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            brought = Brought(theirs, ("10.0.0.7", 5), ("10.0.0.2", 8081), True, 9)

            async def run() -> None:
                await serve(brought)
                ended.append("it")

            callers.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            return ours

        first, second = await bring(), await bring()
        await first.send_all(numbered(1, 7))
        assert [each.opaque for each in await read_commands(first, 1)] == [7]
        ends = [(peer.remote, peer.local, peer.tls) for peer in peers]
        assert ends == [(("10.0.0.7", 5), ("10.0.0.2", 8081), True)]
        assert await second.receive_some() == b"", "its address has one"
        assert (governor.counted["refused_limits.connections_per_address"], ended) == (1, ["it"])
        assert governor.statistics().connections == 1
        peers[0].elsewhere = True
        assert governor.slots.elsewhere() == 1
        nursery.cancel_scope.cancel()
    assert await first.receive_some() == b""
    assert (ended, governor.statistics().connections) == (["it"] * 2, 0)
