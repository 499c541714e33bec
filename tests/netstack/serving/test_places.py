"""Places: strangers take them from one another, not from others."""

import trio
import trio.testing

from netstack.serving.places import Places


async def ended_of(most: int, *comers: tuple[str, str]) -> list[str]:
    """Return whose places were given away when these come, a name and an address each, in this order."""
    places, ended = Places(most), list[str]()

    async def come(name: str, address: str) -> None:
        with places.place(address) as scope:
            await trio.sleep_forever()
        if scope.cancelled_caught:
            ended.append(name)

    async with trio.open_nursery() as nursery:
        for name, address in comers:
            nursery.start_soon(come, name, address)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return ended


async def test_one_too_many_takes_the_place_of_the_oldest_of_whoever_has_the_most() -> None:
    strangers = ("stranger 1", "10.0.0.1"), ("stranger 2", "10.0.0.1"), ("other", "10.0.0.2")
    assert await ended_of(3, *strangers, ("member", "10.0.0.3"), ("stranger 3", "10.0.0.1")) == [
        "stranger 1",
        "stranger 2",
    ]


async def test_who_has_as_many_as_all_others_gives_up_its_own() -> None:
    assert await ended_of(2, ("one", "10.0.0.1"), ("two", "10.0.0.2"), ("two again", "10.0.0.2")) == ["two"]


async def test_a_place_is_free_again_at_its_end() -> None:
    places = Places(1)
    for _ in range(3):
        with places.place("10.0.0.1") as scope:
            await trio.lowlevel.checkpoint()
        assert not scope.cancelled_caught
