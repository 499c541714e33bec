"""The gRPC server over real sockets: who is answered, what waits, what is refused, and that others go on."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio
import trio.testing

from netstack.grpc import connection
from netstack.grpc.calls import Answer, AnswerTask, Call, Deferred, Service, Streaming, Unary
from netstack.grpc.frame_gate import PING, PREFACE, RST_STREAM, SETTINGS, frame_bytes
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.link_state import PONG_PAUSE_S
from netstack.grpc.status import CallFailed, GrpcStatus
from netstack.grpc.testing import GrpcTestClient, enveloped, grpc_client, grpc_serving
from netstack.serving.governor import Governor
from netstack.serving.limits import Limits

MIB = 1 << 20


def echo(call: Call, message: bytes) -> Answer:
    return message


async def stream_back(call: Call) -> None:
    while (message := await call.receive()) is not None:
        await call.send(message)


ECHO: Service = {b"/s/Echo": Unary(echo), b"/s/Stream": Streaming(stream_back)}


async def test_a_unary_call_is_answered() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as client:
        for size in (0, 5, 70_000, 3 * MIB):
            found = await client.call("/s/Echo", bytes(size))
            assert (found.status, found.messages) == (0, [bytes(size)])


async def test_many_calls_of_one_connection_are_answered_side_by_side() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as client:
        found = list[bytes]()

        async def ask(number: int) -> None:
            found.extend((await client.call("/s/Echo", b"%d" % number)).messages)

        async with trio.open_nursery() as nursery:
            for number in range(90):
                nursery.start_soon(ask, number)
        assert sorted(found, key=int) == [b"%d" % number for number in range(90)]


async def test_an_unknown_method_is_unimplemented_and_a_wrong_timeout_invalid() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as client:
        assert (await client.call("/s/None", b"")).status == GrpcStatus.UNIMPLEMENTED
        assert (await client.call("/s/Echo", b"", {"grpc-timeout": "soon"})).status == GrpcStatus.INVALID_ARGUMENT


async def test_a_streaming_call_goes_both_ways_and_ends_with_its_handler() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as client:
        number = await client.begin("/s/Stream")
        await client.send(number, enveloped(b"one") + enveloped(b"two")[:4])
        await client.send(number, enveloped(b"two")[4:], end=True)
        outcome = client.calls[number]
        await outcome.ended.wait()
        assert (outcome.messages, outcome.status) == ([b"one", b"two"], 0)


async def test_answers_that_wait_for_a_mark_leave_when_it_is_reached_or_say_why_not() -> None:
    wakes: list[tuple[int, Callable[[str | None], None]]] = []

    def when(mark: int, wake: Callable[[str | None], None]) -> None:
        wakes.append((mark, wake))

    def hold(call: Call, message: bytes) -> Answer:
        return Deferred(when, int(message), b"stored " + message, lambda reason: reason.encode())

    async with grpc_serving({b"/s/Hold": Unary(hold)}) as port, grpc_client(port) as client:
        found: dict[str, list[bytes]] = {}

        async def ask(name: str) -> None:
            found[name] = (await client.call("/s/Hold", name.encode())).messages

        for reason in (None, "the disk failed"):
            found.clear()
            wakes.clear()
            async with trio.open_nursery() as nursery:
                for name in ("1", "2"):
                    nursery.start_soon(ask, name)
                while not wakes or max(mark for mark, _ in wakes) < 2:
                    await trio.testing.wait_all_tasks_blocked()
                assert found == {}
                for _, wake in wakes:
                    wake(reason)
            answered = {name: [b"stored " + name.encode()] for name in ("1", "2")}
            assert found == (answered if reason is None else {name: [b"the disk failed"] for name in answered})


async def test_who_has_large_requests_waiting_is_read_no_further_while_all_have_too_many_and_others_go_on() -> None:
    wakes: list[Callable[[str | None], None]] = []

    def hold(call: Call, message: bytes) -> Answer:
        return Deferred(lambda mark, wake: wakes.append(wake), 1, b"stored", lambda reason: reason.encode())

    governor = Governor(Limits(bytes_in_flight=100_000))
    service = {**ECHO, b"/s/Hold": Unary(hold)}
    async with grpc_serving(service, governor=governor) as port, grpc_client(port) as heavy, grpc_client(port) as other:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(heavy.call, "/s/Hold", bytes(60_000))
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert governor.in_flight.paused
            assert len(wakes) == 2, "what the requests had counts, not what is answered"
            assert (await other.call("/s/Echo", b"small")).messages == [b"small"]
            while len(wakes) < 3:
                wakes[0](None)
                wakes[0] = lambda reason: None
                await trio.testing.wait_all_tasks_blocked(0.05)
            wakes[1](None)
            wakes[2](None)
        assert governor.in_flight.pending == 0


async def test_an_answer_of_a_task_ends_at_the_deadline_of_its_call() -> None:
    def wait(call: Call, message: bytes) -> Answer:
        return AnswerTask(forever if message else at_once)

    async def forever() -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async def at_once() -> bytes:
        await trio.lowlevel.checkpoint()
        return b"now"

    async with grpc_serving({b"/s/Wait": Unary(wait)}) as port, grpc_client(port) as client:
        assert (await client.call("/s/Wait", b"")).messages == [b"now"]
        late = await client.call("/s/Wait", b"x", {"grpc-timeout": "10m"})
        assert late.status == GrpcStatus.DEADLINE_EXCEEDED


async def test_a_call_that_the_client_takes_back_is_cancelled() -> None:
    began, over = trio.Event(), trio.Event()

    async def wait(call: Call) -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            over.set()

    async with grpc_serving({b"/s/Wait": Streaming(wait)}) as port, grpc_client(port) as client:
        number = await client.begin("/s/Wait")
        await began.wait()
        client.h2.reset_stream(number)
        await client.flush()
        await over.wait()


async def test_a_handler_hears_of_a_client_that_did_not_wait_for_the_end_of_its_answer() -> None:
    told: list[str] = []

    async def answer(call: Call) -> None:
        name = call.text(b"name")
        call.taken_back = partial(told.append, name)
        await call.send(name.encode(), last=True)

    async with grpc_serving({**ECHO, b"/s/Answer": Streaming(answer)}) as port, grpc_client(port) as client:
        for name, code in (("cancelled", 8), ("content", 0)):  # resets that cross the end of the answer
            number = await client.begin("/s/Answer", {"name": name})
            await client.send(number, enveloped(b""), end=True)
            await client.calls[number].ended.wait()
            await client.send_frame(frame_bytes(RST_STREAM, 0, number, code.to_bytes(4, "big")))
        assert (await client.call("/s/Echo", b"fine")).messages == [b"fine"]
        assert told == ["cancelled"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_fails_ends_its_call_and_no_other(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call, message: bytes) -> Answer:
        if message == b"refuse":
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, "too much")
        if waits:
            return AnswerTask(later)
        raise ValueError("planted")

    async def later() -> bytes:
        raise ValueError("planted")

    async with grpc_serving({b"/s/Fail": Unary(fail), **ECHO}) as port, grpc_client(port) as client:
        failed = await client.call("/s/Fail", b"")
        assert (failed.status, failed.text) == (GrpcStatus.INTERNAL, "ValueError: planted")
        assert (await client.call("/s/Fail", b"refuse")).status == GrpcStatus.RESOURCE_EXHAUSTED
        assert (await client.call("/s/Echo", b"fine")).messages == [b"fine"]
    assert "event=call_failed path=/s/Fail" in caplog.text
    assert caplog.records[-1].exc_info is not None


async def test_a_disk_that_fails_is_a_line_of_the_log_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call, message: bytes) -> Answer:
        raise OSError(5, "Input/output error")

    async with grpc_serving({b"/s/Fail": Unary(fail)}) as port, grpc_client(port) as client:
        for _ in range(3):  # one line in ten seconds
            assert (await client.call("/s/Fail", b"")).text == "OSError: [Errno 5] Input/output error"
    [line] = [each for each in caplog.records if "event=call_failed" in each.message]
    assert "reason='OSError: [Errno 5] Input/output error'" in line.message
    assert line.exc_info is None


async def test_a_streaming_answer_waits_for_a_client_that_reads_late() -> None:
    sent: list[int] = []

    async def many(call: Call) -> None:
        for number in range(8):
            await call.send(bytes(30_000))
            sent.append(number)

    async with (
        grpc_serving({b"/s/Many": Streaming(many)}) as port,
        grpc_client(port, acknowledging=False) as client,
    ):
        number = await client.begin("/s/Many")
        await client.send(number, enveloped(b""), end=True)
        while len(client.calls[number].body) < 65_535:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(sent) == 2, "the third message waits, and no fourth is made"
        for stream in (None, number):
            client.h2.increment_flow_control_window(400_000, stream)
        await client.flush()
        await client.calls[number].ended.wait()
        assert len(client.calls[number].messages) == 8


async def closed_with(client: GrpcTestClient) -> str:
    await client.closed.wait()
    assert client.goodbye is not None
    return (client.goodbye.additional_data or b"").decode()


async def test_rapid_reset_ends_its_connection_and_others_are_served() -> None:
    limits = GrpcLimits(resets_burst=20, resets_per_s=0)
    async with grpc_serving(ECHO, limits) as port, grpc_client(port) as good, grpc_client(port) as bad:
        for _ in range(30):
            if bad.goodbye is None:
                number = await bad.begin("/s/Stream")
            if bad.goodbye is None:
                bad.h2.reset_stream(number)
        await bad.flush()
        assert "rapid reset" in await closed_with(bad)
        assert (await good.call("/s/Echo", b"fine")).messages == [b"fine"]


async def test_a_flood_of_pings_ends_its_connection_and_others_are_served() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as good, grpc_client(port) as bad:
        for _ in range(1000):
            bad.h2.ping(b"12345678")
        await bad.flush()
        assert "carry nothing" in await closed_with(bad)
        assert (await good.call("/s/Echo", b"fine")).messages == [b"fine"]


async def test_each_ping_is_answered_though_not_each_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with grpc_serving(ECHO) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(PREFACE + frame_bytes(SETTINGS, 0, 0, b""))
        for number in range(3):
            began, told = trio.current_time(), b""
            await stream.send_all(frame_bytes(PING, 0, 0, b"ping...%d" % number))
            while b"ping...%d" % number not in told:
                told += await stream.receive_some(1000)
            assert trio.current_time() - began >= (PONG_PAUSE_S - 0.001 if number else 0)


async def test_what_is_no_http2_is_closed_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with grpc_serving(ECHO) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"\x00\x00\x00\x2a\x00\x00\x00\x26" + bytes(30))
        while await stream.receive_some(1000):
            pass
    assert "event=protocol_error" in caplog.text


async def test_a_message_that_never_ends_is_closed_after_its_time(autojump_clock: trio.testing.MockClock) -> None:
    limits = GrpcLimits(partial_s=30.0)
    async with grpc_serving(ECHO, limits, shared=Limits(idle_s=1000.0)) as port, grpc_client(port) as client:
        number = await client.begin("/s/Echo")
        await client.send(number, enveloped(bytes(100))[:50])
        began = trio.current_time()
        await client.closed.wait()
        assert 30 <= trio.current_time() - began < 35


async def test_a_silent_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with grpc_serving(ECHO, shared=Limits(idle_s=120.0)) as port, grpc_client(port) as client:
        await client.call("/s/Echo", b"")
        began = trio.current_time()
        await client.closed.wait()
        assert 119 <= trio.current_time() - began < 125


async def test_what_a_connection_held_is_given_back_when_it_breaks() -> None:
    governor = Governor()
    async with grpc_serving(ECHO, governor=governor) as port:
        async with grpc_client(port) as client:
            number = await client.begin("/s/Echo")
            await client.send(number, enveloped(bytes(50_000))[:40_000])
            while governor.in_flight.partial < 40_000:
                await trio.testing.wait_all_tasks_blocked(0.01)
        while governor.in_flight.partial:
            await trio.testing.wait_all_tasks_blocked(0.01)
        while governor.statistics().connections:
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_second_message_of_a_unary_call_is_refused_as_is_none() -> None:
    async with grpc_serving(ECHO) as port, grpc_client(port) as client:
        two = await client.begin("/s/Echo")
        await client.send(two, enveloped(b"1") + enveloped(b"2"), end=True)
        await client.calls[two].ended.wait()
        none = await client.begin("/s/Echo")
        client.h2.end_stream(none)
        await client.flush()
        await client.calls[none].ended.wait()
        assert [client.calls[each].status for each in (two, none)] == [3, 3]


async def test_whole_messages_of_calls_that_do_not_end_are_counted_and_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    governor, most = Governor(Limits(idle_s=1000.0)), 0
    async with grpc_serving(ECHO, GrpcLimits(partial_s=30.0), governor=governor) as port, grpc_client(port) as client:
        for _ in range(3):
            await client.send(await client.begin("/s/Echo"), enveloped(bytes(MIB // 4)))
        began = trio.current_time()
        while not client.closed.is_set():
            most = max(most, governor.in_flight.partial)
            await trio.sleep(1)
        assert 30 <= trio.current_time() - began < 35
        assert most == 3 * MIB // 4


async def test_a_large_message_that_has_got_its_room_goes_on_while_the_beginnings_of_others_are_too_many(
    autojump_clock: trio.testing.MockClock,
) -> None:
    governor = Governor(Limits(idle_s=2000.0, bytes_in_flight=256 << 10))
    found = list[int]()
    async with (
        grpc_serving(ECHO, GrpcLimits(uploads_bytes=200_000), governor=governor) as port,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(grpc_client(port)) for _ in range(6)]

        async def call(client: GrpcTestClient) -> None:
            found.append(len((await client.call("/s/Echo", bytes(200_000))).messages[0]))

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(call, client)
        assert found == [200_000] * 6
    assert governor.in_flight.partial == 0


async def test_a_large_message_that_does_not_go_on_gives_its_room_to_who_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = GrpcLimits(uploads_bytes=4 * MIB, partial_s=1000.0)
    async with (
        grpc_serving(ECHO, limits, shared=Limits(idle_s=2000.0)) as port,
        grpc_client(port) as greedy,
        grpc_client(port) as modest,
    ):
        await greedy.send(await greedy.begin("/s/Echo"), enveloped(bytes(4 * MIB))[:60_000])
        await trio.sleep(20)
        assert not greedy.closed.is_set(), "nobody waits"
        began = trio.current_time()
        found = await modest.call("/s/Echo", bytes(MIB))
        assert (found.status, trio.current_time() - began < 500) == (0, True)
        assert greedy.closed.is_set()


async def test_halves_of_messages_have_little_time_while_others_wait_for_their_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits, governor = GrpcLimits(partial_s=1000.0), Governor(Limits(idle_s=2000.0, bytes_in_flight=MIB // 4))
    async with grpc_serving(ECHO, limits, governor=governor) as port, grpc_client(port) as greedy:
        for _ in range(3):
            await greedy.send(await greedy.begin("/s/Echo"), enveloped(bytes(60_000))[:50_000])
        began = trio.current_time()
        await greedy.closed.wait()
        assert trio.current_time() - began < 500


async def test_messages_of_many_that_do_not_fit_together_come_one_after_the_other() -> None:
    governor = Governor(Limits(bytes_in_flight=256 << 10))
    message, found = enveloped(bytes(60_000)), list[int]()
    async with grpc_serving(ECHO, governor=governor) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(grpc_client(port)) for _ in range(8)]
        numbers = [await client.begin("/s/Echo") for client in clients]
        for part, end in ((message[:20_000], False), (message[20_000:40_000], False), (message[40_000:], True)):
            for client, number in zip(clients, numbers, strict=True):
                await client.send(number, part, end=end)
            await trio.testing.wait_all_tasks_blocked(0.02)
        with trio.move_on_after(20):  # they would be closed after 30
            for client, number in zip(clients, numbers, strict=True):
                await client.calls[number].ended.wait()
                found += [len(each) for each in client.calls[number].messages]
        assert (found, governor.in_flight.partial) == ([60_000] * 8, 0)


async def test_who_waits_for_the_grant_of_a_large_message_leaves_the_turn_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have room for it only once they have gone on."""
    monkeypatch.setattr(connection, "PRESSED_S", 1e9)  # nobody is closed for it
    governor = Governor(Limits(bytes_in_flight=100 << 10))
    async with (
        grpc_serving(ECHO, GrpcLimits(uploads_bytes=200_000), governor=governor) as port,
        grpc_client(port) as first,
        grpc_client(port) as second,
    ):
        large = enveloped(bytes(200_000))
        granted, beside = await first.begin("/s/Echo"), await first.begin("/s/Echo")
        await first.send(granted, large[:70_000])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.call, "/s/Echo", bytes(200_000))
            await trio.testing.wait_all_tasks_blocked(0.02)
            await first.send(beside, enveloped(bytes(50_000))[:40_000])
            await trio.testing.wait_all_tasks_blocked(0.02)
            with trio.move_on_after(20) as scope:
                await first.send(granted, large[70_000:], end=True)
                await first.calls[granted].ended.wait()
            nursery.cancel_scope.cancel()
        assert (scope.cancelled_caught, first.calls[granted].status) == (False, 0)
