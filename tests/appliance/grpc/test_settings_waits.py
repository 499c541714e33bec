"""Calls wait for the settings of their own client, no longer than allowed, and no more of them than allowed."""

import trio
import trio.testing

from appliance.grpc.settings_waits import SettingsWaits


async def test_calls_go_on_when_their_client_has_told_and_others_when_their_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waits, ended = SettingsWaits(), list[tuple[str, float]]()

    async def call(client: str, seconds: float) -> None:
        await waits.wait(client, seconds)
        ended.append((client, trio.current_time() - began))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "a", 1.0)
        nursery.start_soon(call, "a", 3.0)  # the end of the first one's wait is not that of the second
        nursery.start_soon(call, "b", 3.0)
        await trio.sleep(2)
        waits.told("a")
    assert sorted(ended) == [("a", 1.0), ("a", 2.0), ("b", 3.0)]
    waits.told("a")  # nobody waits any more


async def test_above_the_most_a_call_does_not_wait(autojump_clock: trio.testing.MockClock) -> None:
    waits, began = SettingsWaits(2), trio.current_time()
    async with trio.open_nursery() as nursery:
        for client in "ab":
            nursery.start_soon(waits.wait, client)
        await trio.testing.wait_all_tasks_blocked()
        await waits.wait("c")
        assert trio.current_time() == began
    await waits.wait("c")
    assert trio.current_time() == began + 6
