"""PageTurns: one at a time, in the order they were asked for, with a rest after each."""

import pytest
import trio
import trio.testing

from netstack.web.page_turns import PageTurns


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


def test_each_has_its_turn_after_the_rest_of_the_one_before(clock: trio.testing.MockClock) -> None:
    began = list[tuple[str, float]]()

    async def look(turns: PageTurns, name: str, takes_s: float) -> None:
        async with turns.turn():
            began.append((name, trio.current_time()))
            await trio.sleep(takes_s)

    async def main() -> None:
        turns, start = PageTurns(), trio.current_time()
        async with trio.open_nursery() as nursery:
            for name, takes_s in (("a", 0.1), ("b", 10.0), ("c", 0.0), ("d", 0.0)):
                nursery.start_soon(look, turns, name, takes_s)
                await trio.testing.wait_all_tasks_blocked()
        assert [(name, round(at_s - start, 3)) for name, at_s in began] == [
            ("a", 0.0),
            ("b", 0.3),
            ("c", 11.3),
            ("d", 11.3),
        ]

    trio.run(main, clock=clock)


def test_who_goes_while_it_looks_leaves_the_turn_to_the_next(clock: trio.testing.MockClock) -> None:
    async def main() -> None:
        turns = PageTurns()
        with trio.move_on_after(1):
            async with turns.turn():
                await trio.sleep_forever()
        with trio.fail_after(3):
            async with turns.turn():
                pass

    trio.run(main, clock=clock)
