"""Places for those who are being greeted: strangers take them from one another, not from members."""

import pytest
import trio
import trio.testing

from appliance.group.links.greeting_places import GreetingPlaces
from appliance.group.links.link import LinkEnded


async def test_one_too_many_takes_the_place_of_the_oldest_of_whoever_has_the_most() -> None:
    places, ended = GreetingPlaces(), list[str]()

    async def greet(name: str, address: str) -> None:
        try:
            with places.place(address, 3):
                await trio.sleep_forever()
        except LinkEnded as exc:
            ended.append(f"{name} {exc.reason}")

    async with trio.open_nursery() as nursery:
        for name, address in (
            *(("stranger 1", "10.0.0.1"), ("stranger 2", "10.0.0.1"), ("other", "10.0.0.2")),
            *(("member", "10.0.0.3"), ("stranger 3", "10.0.0.1")),
        ):
            nursery.start_soon(greet, name, address)
            await trio.testing.wait_all_tasks_blocked()
        assert ended == ["stranger 1 places", "stranger 2 places"]
        nursery.cancel_scope.cancel()


async def test_who_has_as_many_as_all_others_gets_no_place_of_theirs() -> None:
    places = GreetingPlaces()
    with (
        places.place("10.0.0.1", 2),
        places.place("10.0.0.2", 2),
        pytest.raises(LinkEnded, match="2 connections are being greeted"),
        places.place("10.0.0.2", 2),
    ):
        pass
    with places.place("10.0.0.2", 2):
        await trio.lowlevel.checkpoint()
