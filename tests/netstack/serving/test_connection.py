"""One connection over memory streams, with a clock that the test owns."""

import struct
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from netstack.errors import Refused
from netstack.serving.connection import ANSWER_BYTES, RECEIVE, Connection, PeerActivity
from netstack.serving.governor import Governor
from netstack.serving.limits import PARTIAL_FREE, PRESSED_S, Limits
from netstack.serving.outbox import Outbox, Unsent
from netstack.serving.peer import Peer
from netstack.testing import connected, echo, read_commands, serving
from netstack.wire.command import RemotingCommand, encode_command, request
from netstack.wire.conversation import Answer, AsyncReply, DeferredReply, Reply, Wake

LIMITS = Limits(idle_s=120, first_frame_s=10, frame_s=30, unsent_s=30)


async def test_a_silent_peer_is_overdue_for_being_idle_before_and_after_its_first_frame_which_has_less_time() -> None:
    async with connected(echo, Governor(LIMITS)) as (connection, stream):
        start = trio.current_time()
        frame = encode_command(request(34))
        assert connection.overdue(start + 119) is None  # Java 5.0 to 5.2 connects to each NameServer and asks one
        assert connection.overdue(start + 121) == "idle for 120 s"
        await stream.send_all(frame[:20])
        await trio.testing.wait_all_tasks_blocked()
        assert connection.overdue(start + 9) is None
        assert connection.overdue(start + 11) == "first frame incomplete after 10 s"
        await stream.send_all(frame[20:])
        await trio.testing.wait_all_tasks_blocked()
        assert connection.overdue(start + 100) is None
        assert connection.overdue(start + 125) == "idle for 120 s"


async def test_half_a_frame_is_overdue_by_its_own_age_not_by_the_last_byte() -> None:
    async with connected(echo, Governor(LIMITS)) as (connection, stream):
        start = trio.current_time()
        frame = encode_command(request(34))
        await stream.send_all(frame + frame[:20])
        await trio.testing.wait_all_tasks_blocked()
        assert connection.overdue(start + 29) is None
        assert connection.overdue(start + 35) == "frame incomplete after 30 s"
        await stream.send_all(frame[20:])
        await trio.testing.wait_all_tasks_blocked()
        assert connection.overdue(start + 35) is None


async def test_more_is_received_at_once_while_large_frames_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(echo, Governor(LIMITS)) as (connection, stream):
        asked: list[int] = []
        receive = connection._receive

        async def noted(most: int) -> bytes | bytearray:
            asked.append(most)
            return await receive(most)

        monkeypatch.setattr(connection, "_receive", noted)
        for body, largest in ((50_000, 4 * RECEIVE), (500, RECEIVE), (9 * RECEIVE, RECEIVE)):
            asked.clear()
            await stream.send_all(encode_command(request(34, None, bytes(body))) * (8 * RECEIVE // body + 1))
            await trio.testing.wait_all_tasks_blocked()
            assert max(asked) == largest


async def test_a_peer_that_takes_nothing_is_overdue() -> None:
    async with connected(echo, Governor(LIMITS)) as (connection, stream):
        await stream.send_all(encode_command(request(34)))
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        outbox = connection._outbox
        outbox.unsent_bytes = 100
        outbox.progress_at = start
        assert connection.overdue(start + 29) is None
        assert connection.overdue(start + 40) == "unsent: 100 bytes, nothing read for 30 s"


def test_time_in_which_the_reader_was_stopped_is_not_the_peers() -> None:
    pace = PeerActivity(0.0)
    pace.received(1, 5.0, incomplete=True)
    pace.received(0, 6.0, incomplete=True)
    assert pace.frame_since == 5.0
    pace.resumed(60.0)
    assert (pace.frame_since, pace.read_at, pace.stopped) == (60.0, 60.0, False)
    pace.received(1, 61.0, incomplete=False)
    assert pace.frames == 2
    assert pace.frame_since is None


async def test_oneway_requests_in_flight_count_until_they_are_durable() -> None:
    wakes: list[Wake] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        return DeferredReply(lambda _, wake: wakes.append(wake), 0, command.reply(), lambda why: command.reply(14, why))

    governor = Governor(Limits(requests_in_flight=2))
    async with connected(hold, governor) as (_, stream):
        await stream.send_all(encode_command(request(310, None, b"x" * 10, oneway=True)) * 3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(wakes) == 2
        wakes[0](None)
        await trio.testing.wait_all_tasks_blocked()
        assert len(wakes) == 3
        for wake in wakes[1:]:
            wake("failed")
        assert governor.statistics().bytes_in_flight == 0


async def test_answers_of_one_pass_that_wait_for_the_same_wait_once_for_the_highest_mark() -> None:
    waits: list[tuple[str, int, Wake]] = []

    def log(mark: int, wake: Wake) -> None:
        waits.append(("log", mark, wake))

    def table(mark: int, wake: Wake) -> None:
        waits.append(("table", mark, wake))

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        mark = int(command.ext["mark"])
        return DeferredReply(
            table if mark > 100 else log, mark, command.reply(), lambda why: command.reply(14, f"{why} {mark}")
        )

    governor = Governor()
    async with connected(hold, governor) as (_, stream):
        await stream.send_all(b"".join(encode_command(request(310, {"mark": str(n)})) for n in (7, 9, 8, 101, 10)))
        await trio.testing.wait_all_tasks_blocked()
        assert [(what, mark) for what, mark, _ in waits] == [("log", 9), ("table", 101), ("log", 10)]
        assert governor.statistics().bytes_in_flight > 0
        waits[0][2](None)
        waits[2][2]("disk failed")
        await trio.testing.wait_all_tasks_blocked()
        answers = await read_commands(stream, 4)
        assert [(answer.code, answer.remark) for answer in answers] == [*[(0, None)] * 3, (14, "disk failed 10")]
        waits[1][2](None)
        assert governor.statistics().bytes_in_flight == 0


async def test_what_ends_a_connection_gives_back_all_it_had_counted() -> None:
    started = trio.Event()

    async def forever() -> None:
        started.set()
        await trio.sleep_forever()

    governor = Governor()
    async with connected(lambda command, peer: AsyncReply(forever), governor) as (connection, stream):
        await stream.send_all(encode_command(request(12, None, b"x" * 10)) + b"\x00\x00")
        await started.wait()
        assert governor.statistics().bytes_in_flight > 10
        assert governor.statistics().partial_bytes == 2
        connection.finish("test")
        await connection.peer.closed.wait()
        await trio.testing.wait_all_tasks_blocked()
        figures = governor.statistics()
        assert (figures.bytes_in_flight, figures.partial_bytes, connection.peer.close_reason) == (0, 0, "test")


async def test_a_refusal_inside_a_later_answer_is_an_answer() -> None:
    async def refuse() -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        raise Refused(17, "gone meanwhile")

    async with connected(lambda command, peer: AsyncReply(refuse), Governor()) as (_, stream):
        await stream.send_all(encode_command(request(12)))
        answer = bytes(await stream.receive_some(1000))
        assert b'"code":17' in answer
        assert b"gone meanwhile" in answer


async def test_a_wake_after_the_end_changes_nothing() -> None:
    wakes: list[Wake] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        return DeferredReply(lambda _, wake: wakes.append(wake), 0, command.reply(), lambda why: command.reply(14, why))

    governor = Governor()
    async with connected(hold, governor) as (connection, stream):
        await stream.send_all(encode_command(request(310)))
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()
        await connection.peer.closed.wait()
        wakes[0](None)
        assert governor.statistics().bytes_in_flight == 0
        assert not connection.peer.tell(40, {"consumerGroup": "CG"})


@pytest.mark.parametrize("count", [1, 3])
async def test_tell_drops_when_the_peer_does_not_read(count: int) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()  # takes nothing until it is read
    outbox = Outbox(1000)
    peer = Peer(1, ("::1", 5), ("::1", 10911), outbox)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Connection(theirs, peer, outbox, echo, Governor()).run)
        assert peer.tell(40, {"consumerGroup": "CG"}, bytes(2000))
        assert [peer.tell(40, {"consumerGroup": "CG"}) for _ in range(count)] == [False] * count
        assert str(peer) == "[::1]:5"
        nursery.cancel_scope.cancel()
    await ours.aclose()


async def test_a_pass_ends_when_the_outbox_is_full_however_many_requests_came_at_once() -> None:
    asked = 0

    def large(command: RemotingCommand, peer: Peer) -> Answer:
        nonlocal asked
        asked += 1
        return Reply(command.reply(body=bytes(1 << 20)))

    governor = Governor(LIMITS)
    async with serving(large, governor=governor) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(encode_command(request(21)) * 500)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert governor.unsent.bytes < 10 << 20
        assert asked < 40, "some lie in the socket, nothing has been read"
        commands = await read_commands(stream, 500)
        assert (len(commands), asked) == (500, 500)


async def test_a_pass_gives_its_turn_away_when_its_answers_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = 0.0, list[str]()
    monkeypatch.setattr("netstack.serving.connection.time.perf_counter", lambda: now)

    def slow(command: RemotingCommand, peer: Peer) -> Answer:
        nonlocal now
        now += 0.003
        order.append("slow")
        return Reply(command.reply())

    async with connected(slow, Governor(LIMITS)) as (_, stream), trio.open_nursery() as nursery:

        async def other() -> None:
            while True:
                await trio.lowlevel.checkpoint()
                if not order or order[-1] != "other":
                    order.append("other")

        nursery.start_soon(other)
        await stream.send_all(encode_command(request(34)) * 20)
        await read_commands(stream, 20)
        nursery.cancel_scope.cancel()
    longest = max(map(len, "".join("s" if name == "slow" else " " for name in order).split()))
    assert longest <= 6, "each pass has two, and passes may follow one another"


async def test_answers_that_take_a_while_are_not_made_faster_than_they_are_read() -> None:
    running = most = done = 0

    def later(command: RemotingCommand, peer: Peer) -> Answer:
        async def run() -> RemotingCommand:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await trio.lowlevel.checkpoint()
            running, done = running - 1, done + 1
            return command.reply(body=bytes(ANSWER_BYTES))

        return AsyncReply(run)

    governor = Governor(LIMITS)
    async with serving(later, governor=governor) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(encode_command(request(12)) * 300)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert most <= 33
        assert governor.unsent.bytes < 10 << 20
        assert done < 150, "some lie in the socket, nothing has been read"
        assert len(await read_commands(stream, 300)) == 300


async def test_halves_of_frames_are_received_no_further_than_all_together_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    governor = Governor(LIMITS._replace(bytes_in_flight=8 * RECEIVE))
    start = encode_command(request(34, None, bytes(60_000))) + struct.pack(">II", 15 << 20, 100)
    async with AsyncExitStack() as stack:
        for _ in range(20):
            _, stream = await stack.enter_async_context(connected(lambda command, peer: None, governor))
            await stream.send_all(start + bytes(10 * RECEIVE))
            await trio.testing.wait_all_tasks_blocked()
        assert governor.statistics().partial_bytes <= 4 * RECEIVE + 20 * RECEIVE


async def test_large_frames_of_many_that_do_not_fit_together_come_one_after_the_other() -> None:
    governor = Governor(LIMITS._replace(bytes_in_flight=8 * RECEIVE))
    frame, answered = encode_command(request(34, None, bytes(3 * RECEIVE))), list[int]()
    async with AsyncExitStack() as stack:
        streams = [(await stack.enter_async_context(connected(echo, governor)))[1] for _ in range(10)]

        async def send(stream: trio.abc.Stream) -> None:
            await stream.send_all(frame)
            answered.append(len(await read_commands(stream, 1)))

        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(send, stream)
        assert (len(answered), governor.statistics().partial_bytes) == (10, 0)


async def test_who_has_the_turn_and_does_not_go_on_leaves_it_to_the_next() -> None:
    governor = Governor(LIMITS._replace(bytes_in_flight=2 * PARTIAL_FREE))
    frame = encode_command(request(34, None, bytes(2 * PARTIAL_FREE)))
    async with connected(echo, governor) as (mute, first), connected(echo, governor) as (good, second):
        for stream in (first, second):
            await stream.send_all(frame[: PARTIAL_FREE + 10])
            await trio.testing.wait_all_tasks_blocked()
        await second.send_all(frame[PARTIAL_FREE + 10 :])
        await trio.testing.wait_all_tasks_blocked()
        later = trio.current_time() + PRESSED_S + 1
        assert (mute.overdue(later), good.overdue(later)) == ("frame incomplete after 3 s", None)
        mute.finish("overdue")
        assert [len(found.body) for found in await read_commands(second, 1)] == [2 * PARTIAL_FREE]
        assert not governor.in_flight.has_turn(good)


async def test_a_peer_that_is_given_up_for_what_it_left_unread_is_told_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor = Governor(LIMITS)
    governor.unsent = Unsent(limit=RECEIVE)
    async with connected(echo, governor) as (first, _), connected(echo, governor) as (second, _):
        first._outbox.put(bytes(RECEIVE))
        second._outbox.put(bytes(RECEIVE))
        await first.peer.closed.wait()
        assert first.peer.close_reason.startswith("unsent: unread replies of all peers")
        assert not second.peer.closed.is_set()
    assert "unread replies of all peers exceed the limit" in caplog.text


async def told(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(part) async for part in stream])


async def test_a_browser_is_told_what_the_port_is_and_where_to_look_and_so_is_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor = Governor(LIMITS, http_hint=lambda address: f"The page: http://{address}:8080/\n")
    async with connected(echo, governor) as (connection, stream):
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: box\r\n\r\n")
        head, _, body = (await told(stream)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"RocketMQ clients connect to this port" in body
        assert body.endswith(b"The page: http://10.0.0.2:8080/\n")
        assert connection.peer.close_reason == "protocol"
    assert "an HTTP request" in caplog.text


async def test_a_peer_that_has_spoken_the_protocol_gets_no_answer_in_another_one() -> None:
    async with connected(echo, Governor(LIMITS)) as (_, stream):
        await stream.send_all(encode_command(request(34)) + b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await told(stream)


async def test_a_browser_that_takes_nothing_keeps_no_connection(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()  # a send ends when it has been read
    governor, outbox = Governor(LIMITS), Outbox()
    connection = Connection(theirs, Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 10911), outbox), outbox, echo, governor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, b"GET / HTTP/1.1\r\n\r\n")
        assert await connection.run() == "protocol"


async def test_half_a_frame_has_little_time_while_others_wait_for_its_room() -> None:
    governor = Governor(LIMITS._replace(bytes_in_flight=8 * RECEIVE))
    begun = struct.pack(">II", 15 << 20, 100)
    async with (
        connected(echo, governor) as (greedy, large),
        connected(echo, governor) as (modest, small),
    ):
        await small.send_all(encode_command(request(34)) + encode_command(request(34, None, bytes(60_000)))[:16_000])
        await large.send_all(encode_command(request(34)) + begun + bytes(3 * RECEIVE))
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        assert greedy.overdue(start + 20) is None, "nobody waits"
        await large.send_all(bytes(3 * RECEIVE))
        await trio.testing.wait_all_tasks_blocked()
        assert greedy.overdue(start + 2) is None
        assert greedy.overdue(start + 5) == "frame incomplete after 3 s"
        assert modest.overdue(start + 20) is None, "what is never held back is in nobody's way"
        async with connected(echo, governor) as (good, other):
            await other.send_all(encode_command(request(34)) + encode_command(request(34, None, bytes(3 * RECEIVE))))
            await trio.testing.wait_all_tasks_blocked()
            assert good.overdue(start + 20) is None, "it waits for others"
            greedy.finish("frame incomplete after 3 s")
            assert len(await read_commands(other, 2)) == 2


async def test_who_reads_no_answers_and_holds_up_all_readers_with_large_requests_is_overdue() -> None:
    async def answer() -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return request(12).reply()

    governor = Governor(LIMITS._replace(bytes_in_flight=8 * RECEIVE))
    handle = lambda command, peer: AsyncReply(answer)  # noqa: E731
    frame = encode_command(request(12, None, bytes(3 * RECEIVE)))
    async with AsyncExitStack() as stack:
        mute = list[Connection]()
        good, other = await stack.enter_async_context(connected(handle, governor))
        await other.send_all(encode_command(request(12)))
        for _ in range(3):
            connection, stream = await stack.enter_async_context(connected(handle, governor))
            await stream.send_all(frame[:-1])
            await trio.testing.wait_all_tasks_blocked()
            connection._outbox.unsent_bytes = 9 << 20  # what it asked for before
            await stream.send_all(frame[-1:])
            await trio.testing.wait_all_tasks_blocked()
            mute.append(connection)
        start = trio.current_time()
        assert governor.statistics().readers_paused
        for connection in mute:
            connection._outbox.progress_at = start + 5  # it reads a little now and then
            assert connection.overdue(start + 2) is None
            assert str(connection.overdue(start + 5)).startswith("unsent: ")
        assert good.overdue(start + 5) is None
