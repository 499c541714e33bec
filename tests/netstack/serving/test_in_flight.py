"""Bytes of requests: readers stop above the limit, incomplete frames have half of it besides."""

import trio
import trio.testing

from netstack.serving.in_flight import BytesInFlight


async def test_readers_stop_above_the_limit_and_go_on_at_three_quarters() -> None:
    held = BytesInFlight(100)
    held.take(100)
    assert not held.paused
    held.take(1)
    assert held.paused
    held.give(25)
    assert held.paused
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.wait_open)
        await trio.testing.wait_all_tasks_blocked()
        held.give(1)
    assert held.pending == 75


async def test_incomplete_frames_have_a_budget_of_their_own() -> None:
    held = BytesInFlight(100)
    for _ in range(2):  # room that was there before does not count for who waits now
        held.hold_partial(51)
        assert (held.partial_full, held.paused) == (True, False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.wait_partial)
            nursery.start_soon(held.wait_partial)
            await trio.testing.wait_all_tasks_blocked()
            held.hold_partial(-1)
        assert not held.partial_full
        held.hold_partial(-50)
    assert held.partial == 0
