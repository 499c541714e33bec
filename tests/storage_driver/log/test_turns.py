"""When the log's thread gets its next call."""

import outcome
import trio
import trio.testing

from storage_driver.log.turns import Turns


async def test_a_budget_is_waited_for_before_each_batch(autojump_clock: trio.testing.MockClock) -> None:
    turns = Turns(0.5)
    began = trio.current_time()
    await turns.due(waiting=True)
    assert (turns.rested, trio.current_time() - began) == (True, 0.5)
    turns.begin_batch(lambda ended: None)
    assert (turns.rested, turns.under_way) == (False, True)


async def test_without_work_nothing_is_due_until_somebody_asks(autojump_clock: trio.testing.MockClock) -> None:
    turns, due = Turns(0.0), False
    with trio.move_on_after(5):
        await turns.due(waiting=False)
        due = True
    assert not due
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.due, False)
        await trio.testing.wait_all_tasks_blocked()
        turns.ask()


def test_the_ends_of_calls_are_heard_in_their_order() -> None:
    turns, heard = Turns(0.0), list[str]()
    turns.begin_batch(lambda ended: heard.append(f"batch {ended.unwrap()}"))
    turns.begin_cut(lambda ended: heard.append(f"cut {ended.unwrap()}"))
    turns.ended(outcome.Value(1))
    turns.ended(outcome.Value(2))
    assert (heard, turns.under_way) == (["batch 1", "cut 2"], False)
