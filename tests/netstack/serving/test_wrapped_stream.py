"""A stream that changes nothing of the one in it."""

import pytest
import trio
from trio.testing import memory_stream_pair

from netstack.serving.wrapped_stream import WrappedStream


async def test_bytes_pass_in_both_directions_and_no_more_than_asked_for() -> None:
    inner, far = memory_stream_pair()
    stream = WrappedStream(inner)
    await stream.send_all(b"there")
    await far.send_all(b"and back")

    assert await far.receive_some() == b"there"
    assert await stream.receive_some(3) == b"and"
    assert await stream.receive_some() == b" back"


async def test_waits_for_room_as_the_stream_in_it_does() -> None:
    inner, _ = memory_stream_pair()
    waited: list[str] = []

    async def full() -> None:
        waited.append("asked")

    inner.send_stream.wait_send_all_might_not_block_hook = full
    await WrappedStream(inner).wait_send_all_might_not_block()

    assert waited == ["asked"]


async def test_a_close_ends_the_stream_in_it() -> None:
    inner, far = memory_stream_pair()
    stream = WrappedStream(inner)
    await stream.aclose()

    assert await far.receive_some() == b""
    with pytest.raises(trio.ClosedResourceError):
        await inner.send_all(b"late")


async def test_errors_of_the_stream_in_it_stay_theirs() -> None:
    inner, far = memory_stream_pair()
    stream = WrappedStream(inner)
    await far.aclose()

    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"to nobody")
