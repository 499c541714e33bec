"""What was read ahead of a client comes first, whole and once, and never more than was asked for."""

import trio.testing

from appliance.group.relay.begun_stream import BegunStream


async def test_what_was_read_ahead_is_received_first() -> None:
    client, own = trio.testing.memory_stream_pair()
    begun = BegunStream(own)
    await client.send_all(b"abcdef")
    assert await begun.read_ahead(4)
    assert begun.begun == 4
    assert [await begun.receive_some(3), begun.begun, await begun.receive_some(3)] == [b"abc", 1, b"d"]
    assert await begun.receive_some() == b"ef", "what was not read yet"
    await begun.send_all(b"said")
    assert await client.receive_some() == b"said"


async def test_the_end_of_a_client_that_said_something_is_noticed_and_what_it_said_is_there() -> None:
    client, own = trio.testing.memory_stream_pair()
    begun = BegunStream(own)
    await client.send_all(b"abc")
    assert await begun.read_ahead(8)
    await client.aclose()
    assert not await begun.read_ahead(8)
    assert [await begun.receive_some(), await begun.receive_some()] == [b"abc", b""]
