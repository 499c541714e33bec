"""Wishes are granted in order, none twice, and no more wait than a group can have."""

import trio

from appliance.group.wishes import LEAD, LEAVE, MOST_WISHES, Wish, Wishes


async def test_the_oldest_wish_comes_first_and_the_same_one_waits_once() -> None:
    wishes, found = Wishes(), list[Wish]()

    async def take() -> None:
        found.append(await wishes.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        wishes.add(Wish(LEAD, "b"))
    wishes.add(Wish(LEAD, "c"))
    wishes.add(Wish(LEAVE, "b"))
    wishes.add(Wish(LEAD, "c"))
    assert (found, [await wishes.next(), await wishes.next()]) == (
        [Wish(LEAD, "b")],
        [Wish(LEAD, "c"), Wish(LEAVE, "b")],
    )


async def test_more_than_a_group_can_wish_is_not_kept() -> None:
    wishes = Wishes()
    for number in range(100):
        wishes.add(Wish(LEAD, str(number)))
    assert len(wishes._waiting) == MOST_WISHES
    await trio.lowlevel.checkpoint()
