"""A copy that clients wait for is sent at once, any other with what comes within a few milliseconds."""

import trio
import trio.testing

from appliance.group.copies.ship_pace import MOST_TOGETHER, TOGETHER_S, ShipPace


async def test_what_nobody_waits_for_goes_together_soon(autojump_clock: trio.testing.MockClock) -> None:
    shipped, waited_for = list[float](), False
    pace = ShipPace(lambda: shipped.append(trio.current_time()), waited_for=lambda: waited_for)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pace.run)
        began = trio.current_time()
        for end in range(100, 500, 100):
            pace.appended(end)
            await trio.sleep(TOGETHER_S / 5)
        assert not shipped
        await trio.sleep(TOGETHER_S)
        assert len(shipped) == 1
        assert shipped[0] - began <= TOGETHER_S * 1.01
        await trio.sleep(1)
        assert len(shipped) == 1, "there is nothing more"
        waited_for = True
        pace.appended(500)
        assert len(shipped) == 2, "at once"
        waited_for = False
        pace.appended(500 + MOST_TOGETHER)
        assert len(shipped) == 2
        pace.appended(501 + MOST_TOGETHER)
        assert len(shipped) == 3, "so much waits for nothing"
        nursery.cancel_scope.cancel()
