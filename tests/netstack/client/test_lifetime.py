"""Tasks end with their object; shared work runs once and survives a cancelled asker."""

import pytest
import trio
import trio.lowlevel

from netstack.client.errors import NoRoute, UsageError
from netstack.client.lifetime import Lifetime, Shared


async def test_tasks_end_with_the_lifetime_and_it_opens_once() -> None:
    lifetime = Lifetime("thing")
    with pytest.raises(UsageError, match="thing"):
        _ = lifetime.nursery
    nursery = await lifetime.begin()
    nursery.start_soon(trio.sleep_forever)
    await lifetime.end()
    await lifetime.end()
    assert not lifetime.open
    with pytest.raises(UsageError, match="twice"):
        await lifetime.begin()


async def test_many_askers_share_one_run_and_its_failure() -> None:
    runs = 0

    async def work(key: str) -> str:
        nonlocal runs
        runs += 1
        await trio.lowlevel.checkpoint()
        if key == "bad":
            raise NoRoute(key)
        return key.upper()

    shared = Shared(work)
    async with trio.open_nursery() as outer:
        results: list[str] = []

        async def ask(key: str) -> None:
            try:
                results.append(await shared.get(key, outer))
            except NoRoute as error:
                results.append(str(error)[:8])

        for _ in range(5):
            outer.start_soon(ask, "good")
            outer.start_soon(ask, "bad")
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(results) == ["GOOD"] * 5 + ["no route"] * 5
    assert runs == 2


async def test_a_cancelled_asker_does_not_disturb_the_others() -> None:
    go = trio.Event()

    async def work(key: int) -> int:
        await go.wait()
        return key + 1

    shared = Shared(work)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            scope.cancel()
            await shared.get(1, nursery)
        go.set()
        assert await shared.get(1, nursery) == 2
