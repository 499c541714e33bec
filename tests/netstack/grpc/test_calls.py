"""A call as its handler sees it: what came, what may be sent, when it waits."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from netstack.grpc.calls import MOST_UNREAD, MOST_UNREAD_BYTES, Call
from netstack.grpc.status import CallFailed
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer


def call(taken: list[bytes] | None = None, *, room: bool = True, outbox: Outbox | None = None) -> Call:
    def send(messages: Sequence[bytes], now: bool) -> bool:
        (taken if taken is not None else []).extend(messages)
        return room

    peer = Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 8081), outbox or Outbox())
    return Call(peer, {b"x-mq-client-id": "ü".encode()}, send, 0.0)


async def test_messages_come_in_order_and_then_the_end() -> None:
    one = call()
    one.arrived(b"1")
    one.arrived(b"2")
    one.half_closed()
    assert [await one.receive(), await one.receive(), await one.receive()] == [b"1", b"2", None]


async def test_who_waits_for_a_message_gets_it() -> None:
    one, found = call(), list[bytes | None]()

    async def wait() -> None:
        found.append(await one.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        one.arrived(b"late")
    assert found == [b"late"]


async def test_a_stream_of_messages_that_nobody_reads_ends() -> None:
    one = call()
    for _ in range(MOST_UNREAD):
        one.arrived(b"x")
    with pytest.raises(CallFailed):
        one.arrived(b"x")


async def test_a_send_waits_until_the_windows_have_taken_it() -> None:
    one, done = call(room=False), trio.Event()

    async def send() -> None:
        await one.send(b"x")
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        one.drained()


async def test_what_is_posted_to_a_client_that_does_not_read_is_dropped() -> None:
    taken: list[bytes] = []
    one = call(taken, room=False)
    assert [one.post(b"1"), one.post(b"2")] == [True, False]
    one.drained()
    assert one.post(b"3")
    assert taken == [b"1", b"3"]


async def test_metadata_is_text() -> None:
    assert (call().text(b"x-mq-client-id"), call().text(b"absent")) == ("ü", "")


async def test_few_large_messages_that_nobody_reads_end_the_stream_too() -> None:
    one = call()
    one.arrived(bytes(MOST_UNREAD_BYTES))
    assert await one.receive()
    one.arrived(bytes(MOST_UNREAD_BYTES))
    with pytest.raises(CallFailed, match="bytes of this call"):
        one.arrived(b"x")


async def test_wide_windows_of_a_client_that_reads_nothing_let_it_have_no_more() -> None:
    outbox, done = Outbox(limit_bytes=10), trio.Event()
    one = call(outbox=outbox)
    outbox.put(bytes(11))

    async def send() -> None:
        await one.send(b"x")
        done.set()

    theirs, ours = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        assert not one.post(b"dropped")
        nursery.start_soon(outbox.run, ours)
        await theirs.receive_some()
        await done.wait()
        assert one.post(b"now")
        nursery.cancel_scope.cancel()


async def test_a_large_message_is_taken_by_who_waits_for_it() -> None:
    one = call()
    got: list[bytes | None] = []

    async def take() -> None:
        got.append(await one.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        one.arrived(bytes(2 * MOST_UNREAD_BYTES))
        with pytest.raises(CallFailed):
            one.arrived(bytes(MOST_UNREAD_BYTES))
    assert [len(each or b"") for each in got] == [2 * MOST_UNREAD_BYTES]
