"""A connection in the hands of threads: bytes come whole and in order, ends are told, who waits can be cancelled."""

import ssl

import pytest
import trio

from appliance.group.links.thread_stream import ThreadStream
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.links.test_link_stream import MUCH, connected

pytestmark = [pytest.mark.slow, needs_openssl]


def received(stream: ThreadStream, count: int) -> bytes:
    data = bytearray(count)
    with memoryview(data) as view:
        stream.receive_into(view)
    return bytes(data)


async def test_bytes_come_whole_and_in_order_behind_what_came_before() -> None:
    async with connected() as (one, other):
        await one.send_all(b"greeting")
        assert await other.receive_some(3) == b"gre"
        found = list[bytes]()

        def receive(stream: ThreadStream) -> None:
            found.append(received(stream, 5))
            found.append(received(stream, len(MUCH) + 4))

        with trio.fail_after(60), one.in_thread(30) as sends, other.in_thread(30) as takes:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, receive, takes)
                await trio.to_thread.run_sync(sends.send, b"head", MUCH)
        assert found == [b"eting", b"head" + MUCH]


async def test_the_end_of_a_connection_is_told_to_who_sends_and_to_who_receives() -> None:
    for call in (lambda stream: stream.send(MUCH), lambda stream: received(stream, 10)):
        async with connected() as (one, other):
            await other.aclose()
            with trio.fail_after(60), one.in_thread(30) as stream, pytest.raises((ConnectionError, ssl.SSLError)):
                await trio.to_thread.run_sync(call, stream)


async def test_silence_has_a_bound() -> None:
    async with connected() as (one, _):
        with trio.fail_after(60), one.in_thread(0.1) as stream, pytest.raises(TimeoutError, match="nothing moved"):
            await trio.to_thread.run_sync(received, stream, 10)


async def test_who_waits_can_be_cancelled() -> None:
    async with connected() as (one, _):
        with trio.fail_after(60), one.in_thread(3600) as stream:
            with trio.move_on_after(0.1) as scope:
                await trio.to_thread.run_sync(received, stream, 10)
            assert scope.cancelled_caught
