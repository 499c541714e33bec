"""One writer: what is ready leaves in one call, in order, and progress is seen."""

import socket
from functools import partial

import pytest
import trio
import trio.testing

from netstack.serving.outbox import CHUNK, SHARE, Outbox, OutboxOwner, Unsent


class Sink(trio.abc.SendStream):
    """Keeps each call's bytes; blocks while `gate` is closed."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.gate = trio.Event()
        self.gate.set()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.gate.wait()
        self.calls.append(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.gate.wait()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_frames_that_are_ready_together_leave_in_one_call() -> None:
    outbox, sink = Outbox(), Sink()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, sink)
        await trio.testing.wait_all_tasks_blocked()
        for frame in (b"a", b"b", b"c"):
            outbox.put(frame)
        await trio.testing.wait_all_tasks_blocked()
        outbox.put(b"d")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sink.calls == [b"abc", b"d"]
    assert (outbox.unsent_bytes, outbox.sent_bytes) == (0, 4)


async def test_what_a_free_socket_takes_leaves_before_any_task_has_a_turn() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outbox, sink = Outbox(socket_fd=ours.fileno()), Sink()
        outbox.send([b"early"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run, sink)
            await trio.testing.wait_all_tasks_blocked()
            outbox.send([b"a", b"b"])
            assert theirs.recv(10) == b"ab"
            assert (outbox.unsent_bytes, outbox.sent_bytes) == (0, 7)
            outbox.put(b"c")
            outbox.send([b"d"])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        outbox.send([b"the writer is gone"])
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    assert sink.calls == [b"early", b"cd"], "in order, and never two writers"


async def test_what_the_socket_does_not_take_is_the_writers() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        outbox, sink = Outbox(socket_fd=ours.fileno()), Sink()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run, sink)
            await trio.testing.wait_all_tasks_blocked()
            outbox.send([bytes(range(256)) * 8192])
            sent = outbox.sent_bytes
            assert 0 < sent < 1 << 21
            outbox.send([b"z"])
            await trio.testing.wait_all_tasks_blocked()
            theirs.close()
            outbox.send([b"gone"])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert b"".join(sink.calls) == (bytes(range(256)) * 8192)[sent:] + b"zgone"


async def test_large_frames_leave_together_without_being_joined_and_what_is_left_in_order() -> None:
    for count in (3, 2000):
        frames = [bytes((number % 251,)) * 300_000 if number < 3 else b"%d" % number for number in range(count)]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            outbox, sink = Outbox(socket_fd=ours.fileno()), Sink()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outbox.run, sink)
                await trio.testing.wait_all_tasks_blocked()
                outbox.send(frames)
                sent = outbox.sent_bytes
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            taken = bytearray()
            while len(taken) < sent:
                taken += theirs.recv(1 << 20)
        assert bytes(taken) + b"".join(sink.calls) == b"".join(frames)
        assert 0 < sent < len(b"".join(frames))


async def test_what_is_larger_than_a_chunk_leaves_in_pieces() -> None:
    outbox, sink = Outbox(), Sink()
    outbox.put(bytes(CHUNK))
    outbox.put(b"tail")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, sink)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [len(call) for call in sink.calls] == [CHUNK, 4]


async def test_a_full_outbox_says_so_until_enough_has_left() -> None:
    outbox, sink = Outbox(limit_bytes=10), Sink()
    sink.gate = trio.Event()
    outbox.put(bytes(11))
    assert outbox.full
    outbox.drained = drained = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, sink)
        await trio.testing.wait_all_tasks_blocked()
        assert not drained.is_set()
        sink.gate.set()
        await drained.wait()
        assert not outbox.full
        nursery.cancel_scope.cancel()


def test_progress_counts_from_the_first_unsent_frame() -> None:
    async def scene() -> None:
        outbox = Outbox()
        await trio.sleep(50)
        outbox.put(b"x")
        first = trio.current_time()
        await trio.sleep(5)
        outbox.put(b"y")
        assert outbox.progress_at == pytest.approx(first)

    trio.run(scene, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_closed_outbox_keeps_nothing() -> None:
    outbox = Outbox()
    outbox.put(b"x")
    outbox.close()
    outbox.put(b"y")
    assert outbox.unsent_bytes == 0


async def test_an_answer_waits_until_the_peer_has_read_enough() -> None:
    outbox, sink, made = Outbox(limit_bytes=100), Sink(), list[int]()
    sink.gate = trio.Event()

    async def answer(number: int) -> None:
        await outbox.reserve(40)
        made.append(number)
        outbox.give_back(40)
        outbox.put(bytes(60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, sink)
        for number in range(10):
            nursery.start_soon(answer, number)
        await trio.testing.wait_all_tasks_blocked()
        assert len(made) == 2, "the third would find more than 100 bytes unread"
        sink.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (sorted(made), outbox.unsent_bytes) == (list(range(10)), 0)


async def test_what_is_reserved_counts_as_unread() -> None:
    outbox = Outbox(limit_bytes=100)
    await outbox.reserve(60)
    await outbox.reserve(60)
    assert outbox.full
    outbox.give_back(60)
    assert not outbox.full


async def test_while_all_together_leave_too_much_each_has_a_share() -> None:
    together = Unsent(most=3 * SHARE)
    greedy = [Outbox(together=together) for _ in range(2)]
    for outbox in greedy:
        outbox.put(bytes(2 * SHARE))
    modest = Outbox(together=together)
    modest.put(bytes(1000))
    assert [outbox.full for outbox in (*greedy, modest)] == [True, True, False]
    greedy[0].close()
    assert (together.bytes, greedy[1].full) == (2 * SHARE + 1000, False)


async def test_who_waits_for_room_is_told_when_what_was_reserved_is_given_back_without_an_answer() -> None:
    outbox = Outbox(limit_bytes=10)
    await outbox.reserve(20)
    room = outbox.drained = trio.Event()
    outbox.give_back(20)
    assert room.is_set()


async def test_above_the_limit_of_all_whoever_took_nothing_for_longest_is_given_up(autojump_clock: object) -> None:
    together, ended = Unsent(limit=1000), list[int]()
    outboxes = [Outbox(together=together) for _ in range(4)]
    for number, outbox in enumerate(outboxes):
        outbox.end = partial(ended.append, number)
        outbox.put(bytes(300))
        await trio.sleep(1)
    assert (ended, together.bytes, outboxes[0].unsent_bytes) == ([0], 900, 0)
    outboxes[3].put(bytes(5000))
    assert ended == [0, 1, 2]
    assert (together.bytes, outboxes[3].unsent_bytes) == (5300, 5300)
    for outbox in outboxes:
        outbox.close()
    assert together.bytes == 0


async def test_what_a_given_up_peer_takes_after_all_is_not_counted_twice() -> None:
    together, sink = Unsent(limit=1000), Sink()
    first, second = Outbox(together=together), Outbox(together=together)
    sink.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, sink)
        first.put(bytes(900))
        await trio.testing.wait_all_tasks_blocked()
        second.put(bytes(200))
        sink.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert together.bytes == 200
        nursery.cancel_scope.cancel()


async def test_who_pauses_over_an_ordinary_answer_outlives_who_has_much_and_reads_it_slowly(
    autojump_clock: object,
) -> None:
    together, ended = Unsent(limit=8 * SHARE), list[str]()

    def opened(name: str) -> Outbox:
        outbox = Outbox(together=together)
        outbox.end = partial(ended.append, name)
        return outbox

    good, first, second = opened("good"), opened("first"), opened("second")
    good.put(bytes(SHARE))
    for outbox in (first, second):
        await trio.sleep(1)
        outbox.put(bytes(2 * SHARE))
    second.put(bytes(4 * SHARE))
    assert (ended, good.unsent_bytes) == (["first"], SHARE)


async def test_one_answer_of_an_address_outlives_many_connections_of_another_with_an_ordinary_one_each(
    autojump_clock: object,
) -> None:
    together, ended = Unsent(limit=16 * SHARE), list[str]()
    good = Outbox(together=together, owner=OutboxOwner("10.0.0.1", 1))
    good.end = partial(ended.append, "good")
    good.put(bytes(2 * SHARE))
    for number in range(15):
        await trio.sleep(1)
        outbox = Outbox(together=together, owner=OutboxOwner("10.0.0.2", 2 + number))
        outbox.end = partial(ended.append, f"greedy {number}")
        outbox.put(bytes(SHARE))
    assert ended == ["greedy 0"]


async def test_where_many_addresses_leave_little_each_the_newest_connection_is_given_up(
    autojump_clock: object,
) -> None:
    together, ended = Unsent(limit=16 * SHARE), list[int]()
    outboxes = [Outbox(together=together, owner=OutboxOwner(f"10.0.0.{number}", number)) for number in range(20)]
    for number, outbox in enumerate(outboxes):
        outbox.end = partial(ended.append, number)
        await trio.sleep(1)
        outbox.put(bytes(2 * SHARE if number == 0 else SHARE))
    assert ended == [14, 15, 16, 17, 18]


async def test_who_has_much_already_is_given_up_also_when_nobody_else_has_anything() -> None:
    together, ended = Unsent(limit=4 * SHARE), list[str]()
    outbox = Outbox(together=together)
    outbox.end = partial(ended.append, "greedy")
    outbox.put(bytes(8 * SHARE))
    assert (ended, together.bytes) == ([], 8 * SHARE), "one answer, however large"
    outbox.put(bytes(8 * SHARE))
    assert (ended, together.bytes, outbox.unsent_bytes) == (["greedy"], 0, 0)
