import threading
from collections.abc import Callable

import outcome
import pytest
import trio

from storage_driver.log.sync_thread import SyncThread, open_sync_thread


class Script:
    """Gives calls and keeps how they ended."""

    def __init__(self, *calls: Callable[[], int]) -> None:
        self.calls, self.ended = list(calls), list[outcome.Outcome[int]]()

    def take(self) -> Callable[[], int] | None:
        return self.calls.pop(0) if self.calls else None

    def done(self, ended: outcome.Outcome[int]) -> None:
        self.ended.append(ended)

    @property
    def values(self) -> list[int]:
        return [ended.value for ended in self.ended if isinstance(ended, outcome.Value)]


async def test_one_other_thread_does_all_calls_and_their_ends_are_heard_in_the_loop() -> None:
    heard: list[int] = []
    script = Script(threading.get_ident, lambda: 1 // 0, threading.get_ident)

    def done(ended: outcome.Outcome[int]) -> None:
        heard.append(threading.get_ident())
        script.done(ended)

    async with open_sync_thread(script.take, done) as thread:
        await thread.do_all()
        assert [type(ended) for ended in script.ended] == [outcome.Value, outcome.Error, outcome.Value]
        await thread.do_all()
        assert len(script.ended) == 3, "nothing to do"
        script.calls.append(threading.get_ident)
        await thread.do_all()
    assert set(script.values) != {threading.get_ident()}
    assert len(set(script.values)) == 1
    assert heard == [threading.get_ident()] * 4


async def test_the_next_call_begins_before_the_last_one_is_heard_and_before_any_task_has_a_turn() -> None:
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

    async with open_sync_thread(take, done) as thread:
        await thread.do_all()
        await trio.testing.wait_all_tasks_blocked()
    assert turns[:3] == ["asked", "asked", "heard 1"]
    assert turns.index("heard 1") < turns.index("task")
    assert turns.count("task") == 2


async def test_what_comes_up_while_an_end_is_heard_is_begun_together_behind_it() -> None:
    script, thread_of = Script(lambda: 1), list[SyncThread]()

    def done(ended: outcome.Outcome[int]) -> None:
        script.done(ended)
        if len(script.ended) == 1:
            script.calls.append(lambda: 2)
            thread_of[0].nudge()
            assert script.calls, "more may come up while the others are told"

    async with open_sync_thread(script.take, done) as thread:
        thread_of.append(thread)
        await thread.do_all()
    assert script.values == [1, 2]


async def test_after_a_call_that_failed_nothing_begins_before_that_is_heard() -> None:
    turns: list[str] = []
    script = Script(lambda: 1 // 0, lambda: 2)

    def take() -> Callable[[], int] | None:
        turns.append("asked")
        return script.take()

    def done(ended: outcome.Outcome[int]) -> None:
        turns.append("heard")

    async with open_sync_thread(take, done) as thread:
        await thread.do_all()
    assert turns[:3] == ["asked", "heard", "asked"]


async def test_a_nudge_has_an_idle_thread_begin_at_once_and_a_busy_one_go_on() -> None:
    begun, finish = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        finish.wait(60)
        return 7

    script = Script(call, lambda: 8)
    async with open_sync_thread(script.take, script.done) as thread:
        thread.nudge()
        assert begun.wait(60), "without a turn of the loop"
        thread.nudge()
        assert len(script.calls) == 1, "one call at a time"
        finish.set()
        await thread.do_all()
        assert script.values == [7, 8]
        thread.nudge()
        await thread.do_all()
        assert script.values == [7, 8], "nothing to begin"


async def test_a_call_that_has_begun_is_finished_and_heard_before_a_cancellation_counts() -> None:
    begun, finish = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def call() -> int:
        token.run_sync_soon(begun.set)
        finish.wait(60)
        return 7

    script = Script(call, lambda: 8)

    async def caller(nudged: bool) -> None:
        async with open_sync_thread(script.take, script.done) as thread:
            if nudged:
                thread.nudge()
                await trio.sleep_forever()
            await thread.do_all()

    for nudged in (False, True):
        script.calls, script.ended, begun = [call, lambda: 8], [], trio.Event()
        finish.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller, nudged)
            await begun.wait()
            nursery.cancel_scope.cancel()
            token.run_sync_soon(finish.set)
        assert script.ended == [outcome.Value(7)]


async def test_what_hears_and_fails_ends_the_one_who_asked() -> None:
    script = Script(int, int, int, int)
    failing = True

    def done(ended: outcome.Outcome[int]) -> None:
        script.done(ended)
        if failing:
            raise KeyError("mine")

    async with open_sync_thread(script.take, done) as thread:
        with pytest.raises(KeyError, match="mine"):
            await thread.do_all()
        thread.nudge()
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert len(script.ended) == 4
        with pytest.raises(KeyError, match="mine"):
            await thread.do_all()
        failing = False
        script.calls.append(int)
        await thread.do_all()
        assert script.values == [0] * 5, "and the thread serves on"


async def test_the_thread_has_ended_when_the_context_is_left() -> None:
    def there() -> int:
        return sum(each.name == "log sync" for each in threading.enumerate())  # others' threads end when they like

    before = there()
    async with open_sync_thread(Script().take, Script().done):
        assert there() == before + 1
    assert there() == before
