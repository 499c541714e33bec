"""Bytes of requests: readers stop above the limit, incomplete frames have half of it besides."""

import trio
import trio.testing

from netstack.serving.in_flight import TURN_S, BytesInFlight, OwnPartial, OwnPending
from netstack.serving.limits import PARTIAL_FREE, PARTIAL_MODEST


async def test_readers_stop_above_the_limit_and_go_on_at_three_quarters() -> None:
    held = BytesInFlight(100)
    held.take(100)
    assert not held.paused
    held.take(1)
    assert held.paused
    held.give(25)
    assert held.paused
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.wait_open)
        await trio.testing.wait_all_tasks_blocked()
        held.give(1)
    assert held.pending == 75


async def test_incomplete_frames_have_a_budget_of_their_own() -> None:
    held = BytesInFlight(100)
    for _ in range(2):  # room that was there before does not count for who waits now
        held.hold_partial(51)
        assert (held.partial_full, held.paused) == (True, False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.wait_partial)
            nursery.start_soon(held.wait_partial)
            await trio.testing.wait_all_tasks_blocked()
            held.hold_partial(-1)
        assert not held.partial_full
        held.hold_partial(-50)
    assert held.partial == 0


async def test_who_has_several_messages_has_the_turn_until_one_is_whole_or_for_a_second_while_others_want_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    room, went_on = BytesInFlight(2 * PARTIAL_FREE), list[str]()
    one, other = OwnPartial(room), OwnPartial(room)

    async def go_on(partial: OwnPartial, name: str) -> None:
        await partial.wait(lambda: True)
        went_on.append(name)

    for partial in (one, other):
        partial.note(2 * PARTIAL_FREE)
    await go_on(one, "one")
    await trio.sleep(2 * TURN_S)
    await go_on(one, "one, whom nobody waits for")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on, other, "other")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(go_on, one, "one again")
        await trio.testing.wait_all_tasks_blocked()
        assert went_on[2:] == ["other"], "its second is over"
        other.note(PARTIAL_FREE)
    assert (went_on[3:], one.has_turn) == (["one again"], True)


async def test_beginnings_of_messages_grow_in_turns_no_further_than_twice_the_room() -> None:
    room = BytesInFlight(2 * PARTIAL_MODEST)
    owns = [OwnPartial(room) for _ in range(3)]
    for own in owns:
        own.note(2 * PARTIAL_MODEST)
    for own in owns:
        with trio.move_on_after(0.01) as scope:
            await own.wait(lambda: True)
        assert (scope.cancelled_caught, own.has_turn) == (True, False)
    owns[0].note(0)
    await owns[1].wait(lambda: True)
    assert owns[1].has_turn


async def test_who_holds_little_is_read_while_all_hold_too_much_and_again_once_its_own_is_answered() -> None:
    held = BytesInFlight(1000)
    much, other = OwnPending(held), OwnPending(held)
    much.take(PARTIAL_FREE + 1)
    other.take(100)
    assert (much.is_stopped(0), other.is_stopped(0), other.is_stopped(PARTIAL_FREE)) == (True, False, True)
    other.take(PARTIAL_FREE)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.wait, 0)
            await trio.testing.wait_all_tasks_blocked()
            other.give(PARTIAL_FREE)
    assert held.paused
    much.give(PARTIAL_FREE + 1)
    assert not held.paused
