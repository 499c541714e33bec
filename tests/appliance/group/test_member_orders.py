"""Orders end the broker before the leadership moves, find the next leader by themselves, and say where they belong."""

from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.group import member_orders
from appliance.group.driver import GroupRefused
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import MANUAL, RunningMember, group
from tests.appliance.group.preferred import led_until_it_comes, prefer_after
from tests.appliance.group.test_consensus_driver import pair
from tests.appliance.group.test_elections import AUTOMATIC, led
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_openssl]


async def broker_ends_first(a: RunningMember, b: RunningMember) -> None:
    """A broker runs on a: b leads once that has ended, not before."""
    leadership = a.driver.leadership
    await until(lambda: leadership.parting)
    await trio.testing.wait_all_tasks_blocked()
    assert (leadership.current.leader, leadership.current.serves) == (a.driver.member, False)
    leadership.broker_ended()
    await until(b.leads)


async def test_the_broker_has_ended_before_another_member_that_asked_for_it_leads(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        a.driver.leadership.broker_began()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.driver.orders.promote)
            await broker_ends_first(a, b)


async def test_the_broker_has_ended_before_the_preferred_member_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with led_until_it_comes(tmp_path, monkeypatch, "c") as (leader, c):
        await leader.put_committed(b"first")
        leader.driver.leadership.broker_began()
        prefer_after(monkeypatch, 0.1)
        await broker_ends_first(leader, c)


async def test_who_hands_over_takes_the_next_box_when_the_first_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, "a", "b", "c", rules=AUTOMATIC) as made:
        await made.start("a", "b", "c")
        name, leader = await led(made)
        await leader.put_committed(b"first")
        gone, there = sorted({"a", "b", "c"} - {name})
        await until(lambda: len(leader.driver.links.statistics().linked) == 2)
        await until(lambda: all(each.synced == leader.store.end for each in leader.driver.view.members()))
        await made.stop(gone)
        monkeypatch.setattr(leader.driver.orders, "_successors", lambda: [gone, there])  # its link has not ended yet
        assert await leader.driver.orders.hand_over() == there
        await until(made.running[there].leads)
        assert await leader.driver.orders.hand_over() == ""


async def test_who_handed_over_to_one_that_is_gone_hears_that_nobody_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_orders, "PROMOTE_S", 0.1)
    async with group(tmp_path, "a", "b", rules=MANUAL) as made:
        [a] = await made.start("a")
        with pytest.raises(GroupRefused, match="this box leads no longer, and nobody does after"):
            await a.driver.orders._next_leader()


async def test_an_order_for_the_leader_says_where_it_is_to_be_given(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=MANUAL) as made:
        a, b = await made.start("a", "b")
        for order in (partial(b.driver.orders.transfer, "a"), b.driver.orders.demote, b.driver.orders.solo):
            with pytest.raises(GroupRefused, match="nobody leads this group now"):
                await order()
        await a.driver.orders.promote()
        await until(lambda: b.driver.leadership.current.leader == "a")
        for order in (partial(b.driver.orders.transfer, "a"), partial(b.driver.orders.remove, "a")):
            with pytest.raises(GroupRefused, match=r"this box does not lead: run it on a \(a:10911\)"):
                await order()
