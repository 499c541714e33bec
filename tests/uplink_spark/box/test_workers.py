"""What blocks runs one at a time, and what takes minutes beside it."""

from __future__ import annotations

import threading

import trio

from uplink_spark.box.workers import Workers


async def test_what_takes_minutes_holds_up_nothing_but_its_like() -> None:
    workers, may_end, order = Workers(), threading.Event(), list[str]()

    def long(name: str) -> None:
        may_end.wait(10)
        order.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.in_background, long, "one")
        nursery.start_soon(workers.in_background, long, "another")
        assert await workers.in_thread(lambda: list(order)) == []
        may_end.set()
    assert sorted(order) == ["another", "one"]


async def test_one_call_runs_at_a_time() -> None:
    workers, lock = Workers(), threading.Lock()

    def call() -> bool:
        alone = lock.acquire(blocking=False)
        threading.Event().wait(0.005)
        if alone:
            lock.release()
        return alone

    seen = list[bool]()

    async def ask() -> None:
        seen.append(await workers.in_thread(call))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert seen == [True] * 5
