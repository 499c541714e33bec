"""When brokers hear of a client."""

import trio
import trio.testing

from netstack.client.greetings import HEARTBEAT_EVERY_S, Greetings


async def test_all_brokers_hear_in_turn_and_new_ones_at_once(autojump_clock: trio.testing.MockClock) -> None:
    greetings = Greetings()
    greetings.begin()
    assert await greetings.next() is None
    greetings.add("a:1")
    began = trio.current_time()
    assert (await greetings.next(), trio.current_time()) == ({"a:1"}, began)
    assert (await greetings.next(), trio.current_time()) == (None, began + HEARTBEAT_EVERY_S)


async def test_a_broker_that_has_answered_hears_again_only_of_a_new_group(
    autojump_clock: trio.testing.MockClock,
) -> None:
    greetings = Greetings()
    greetings.begin()
    assert await greetings.next() is None
    greetings.greeted(["a:1"])
    greetings.add_new(["a:1", "b:1"])
    assert await greetings.next() == {"b:1"}
    greetings.renew()
    greetings.add_new(["a:1"])
    assert await greetings.next() == {"a:1"}
