"""Who waits to connect goes on at a wake, from before too, or after the back-off."""

from __future__ import annotations

import trio
import trio.testing

from uplink_spark.box.wakes import Wakes


async def test_a_wake_ends_the_back_off_and_holds_for_one_wait(autojump_clock: trio.testing.MockClock) -> None:
    wakes, began = Wakes(), trio.current_time()
    wakes.ship_now(700)
    await wakes.wait_connect()
    assert (trio.current_time(), wakes.ship_now_to, wakes.changed.is_set()) == (began, 700, True)
    await wakes.wait_connect(30)
    assert trio.current_time() == began + 30, "a wake counts once"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakes.wait_connect)
        await trio.sleep(1)
        wakes.both()
    assert trio.current_time() == began + 31
