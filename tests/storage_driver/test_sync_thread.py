import threading
from collections.abc import Callable

import outcome
import pytest
import trio

from storage_driver.sync_thread import SyncThread, open_sync_thread


class Script:
    """Gives calls and keeps how they ended."""

    def __init__(self, *calls: Callable[[], int]) -> None:
        self.calls, self.ended = list(calls), list[outcome.Outcome[int]]()

    def take(self) -> Callable[[], int] | None:
        return self.calls.pop(0) if self.calls else None

    async def run(self, thread: SyncThread) -> list[int]:
        await thread.do_all(self.take, self.ended.append)
        return [ended.value for ended in self.ended if isinstance(ended, outcome.Value)]


async def test_one_other_thread_does_all_calls_and_their_ends_are_heard_in_the_loop() -> None:
    heard: list[int] = []
    async with open_sync_thread() as thread:
        script = Script(threading.get_ident, lambda: 1 // 0, threading.get_ident)
        first, last = await script.run(thread)
        assert [type(ended) for ended in script.ended] == [outcome.Value, outcome.Error, outcome.Value]
        await thread.do_all(Script(int).take, lambda ended: heard.append(threading.get_ident()))
        assert await Script().run(thread) == [], "nothing to do"
    assert first == last != threading.get_ident()
    assert heard == [threading.get_ident()]


async def test_the_next_call_begins_before_any_task_has_a_turn() -> None:
    turns: list[str] = []
    script = Script(lambda: 1, lambda: 2)

    def done(ended: outcome.Outcome[int]) -> None:
        turns.append(f"heard {ended.unwrap()}")
        trio.lowlevel.spawn_system_task(turn)

    def take() -> Callable[[], int] | None:
        turns.append("asked")
        return script.take()

    async def turn() -> None:
        turns.append("task")

    async with open_sync_thread() as thread:
        await thread.do_all(take, done)
        await trio.testing.wait_all_tasks_blocked()
    assert turns[:3] == ["asked", "heard 1", "asked"]
    assert turns.count("task") == 2


async def test_a_call_that_has_begun_is_finished_and_heard_before_a_cancellation_counts() -> None:
    begun, finish = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def call() -> int:
        token.run_sync_soon(begun.set)
        finish.wait(60)
        return 7

    script = Script(call, lambda: 8)

    async def caller() -> None:
        async with open_sync_thread() as thread:
            await script.run(thread)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await begun.wait()
        nursery.cancel_scope.cancel()
        token.run_sync_soon(finish.set)
    assert script.ended == [outcome.Value(7)]


async def test_what_hears_and_fails_ends_the_one_who_asked() -> None:
    def done(ended: outcome.Outcome[int]) -> None:
        raise KeyError("mine")

    async with open_sync_thread() as thread:
        with pytest.raises(KeyError, match="mine"):
            await thread.do_all(Script(int, int).take, done)
        assert await Script(int).run(thread) == [0], "and the thread serves on"


async def test_the_thread_has_ended_when_the_context_is_left() -> None:
    before = threading.active_count()
    async with open_sync_thread() as thread:
        await Script(int).run(thread)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
