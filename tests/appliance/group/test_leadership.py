"""Who leads, and waiting for it to change."""

import trio
from trio.testing import wait_all_tasks_blocked

from appliance.group.leadership import CANDIDATE, FOLLOWER, LEADER, Leadership, LeadershipState

FOLLOWING = LeadershipState(FOLLOWER, 3, "b", "10.0.0.2:10911")


def test_a_member_begins_as_follower_of_nobody() -> None:
    state = Leadership().current
    assert (state.role, state.term, state.leader, state.serves) == (FOLLOWER, 0, "", False)


def test_only_a_leader_that_is_ready_serves() -> None:
    assert not LeadershipState(LEADER, 4, "a").serves
    assert LeadershipState(LEADER, 4, "a", ready=True).serves
    assert not LeadershipState(CANDIDATE, 4, ready=True).serves


async def test_all_who_wait_get_the_newest_state() -> None:
    leadership, got = Leadership(FOLLOWING), list[LeadershipState]()

    async def wait() -> None:
        got.append(await leadership.wait_change(FOLLOWING))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        leadership.set(FOLLOWING)  # no change
        await wait_all_tasks_blocked()
        assert not got
        leadership.set(LeadershipState(CANDIDATE, 4))
        leadership.set(LeadershipState(LEADER, 4, "a"))
    assert got == [LeadershipState(LEADER, 4, "a")] * 2


async def test_a_change_from_before_is_not_missed() -> None:
    leadership = Leadership(FOLLOWING)
    leadership.set(LeadershipState(LEADER, 4, "a"))
    assert (await leadership.wait_change(FOLLOWING)).role == LEADER


async def test_waiting_for_something_to_hold_passes_over_other_changes() -> None:
    leadership, got = Leadership(FOLLOWING), list[LeadershipState]()

    async def wait() -> None:
        got.append(await leadership.wait_for(lambda state: state.serves))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        leadership.set(LeadershipState(LEADER, 4, "a"))
        await wait_all_tasks_blocked()
        assert not got
        leadership.set(LeadershipState(LEADER, 4, "a", ready=True))
    assert got[0].serves
