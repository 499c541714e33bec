"""Members come and go while the group goes on: real stores, files, TLS and sockets."""

from pathlib import Path

import pytest
import trio

from appliance.group.driver import GroupRefused
from appliance.group.leadership import LEARNER
from appliance.group.membership import membership_orders
from storage_driver.consensus.rules import Rules
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import Group, RunningMember, group
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_openssl]
RULES = Rules(elections="manual", acknowledge="both", scale=0.25)


def address(made: Group, name: str) -> str:
    host, port = made.listeners[name][0].socket.getsockname()
    return f"{name}={host}:{port}"


def names(member: RunningMember) -> set[str]:
    return {each.member for each in member.driver.view.members()}


async def test_a_box_copies_the_log_then_votes_and_another_is_taken_out(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=RULES) as made:
        a, b = await made.start("a", "b")
        await a.driver.orders.promote()
        await until(a.leads)
        await a.put_committed(*(b"%d" % number for number in range(20)))
        await made.listen("c")
        [c] = await made.start("c")
        text = address(made, "c")
        with pytest.raises(GroupRefused, match=r"this box does not lead: run it on a \(a:10911\)"):
            await b.driver.orders.join(text)
        assert await a.driver.orders.join(text) == "c copies the log"
        await until(lambda: c.driver.leadership.current.role == LEARNER)
        with pytest.raises(GroupRefused, match="choose another name"):
            await a.driver.orders.join("c=127.0.0.1:9")
        await until(lambda: c.store.synced == a.store.end)
        with trio.fail_after(60):
            while await a.driver.orders.join(text):  # noqa: ASYNC110 it votes once it has been level for a while
                await trio.sleep(0.1)
        assert not any(each.learner for each in a.driver.view.members())
        await until(lambda: c.driver.leadership.current.role != LEARNER)
        await until(lambda: names(b) == {"a", "b", "c"} and c.driver.links.link("b") is not None)
        await a.driver.orders.remove("b")
        await until(lambda: names(c) == {"a", "c"} and a.driver.links.link("b") is None)
        await a.put_committed(b"with c alone")
        await made.stop("b")
        await c.driver.orders.promote()
        await until(c.leads)
        await c.put_committed(b"of c")
        await until(lambda: a.store.committed == c.store.committed)
        assert await a.bodies() == await c.bodies()


async def test_a_box_that_is_gone_for_good_is_named_and_replaced_after_an_order_to_go_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_orders, "SETTLE_S", 0.3)
    async with group(tmp_path, "a", "b", rules=RULES) as made:
        a, _ = await made.start("a", "b")
        await a.driver.orders.promote()
        await until(a.leads)
        await made.listen("c")
        await made.start("c")
        await made.stop("b")
        await until(lambda: a.driver.links.link("b") is None)
        text = address(made, "c")
        with pytest.raises(
            GroupRefused, match=r"since b cannot be reached; start b, .* `rocketbox replica solo` first"
        ):
            await a.driver.orders.join(text)
        assert "since b cannot be reached" in await a.driver.orders.join(text)
        await a.driver.orders.solo()
        with trio.fail_after(60):
            while await a.driver.orders.join(text):  # noqa: ASYNC110
                await trio.sleep(0.1)
        await a.driver.orders.remove("b")
        assert names(a) == {"a", "c"}


async def test_a_member_that_comes_back_knows_who_came_meanwhile(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=RULES) as made:
        a, _ = await made.start("a", "b")
        await a.driver.orders.promote()
        await until(a.leads)
        await made.listen("w")
        await made.start_witness("w")
        assert await a.driver.orders.join(address(made, "w") + " witness") == ""
        await until(lambda: a.driver.links.link("w") is not None)
        await made.stop("b")
        plain = made.listeners.pop("w")
        [b] = await made.start("b")  # its configuration still names two
        await until(lambda: names(b) == {"a", "b", "w"} and b.driver.links.link("w") is not None)
        made.listeners["w"] = plain
        with pytest.raises(GroupRefused, match="x is not a member"):
            await a.driver.orders.remove("x")


async def test_a_leader_that_leaves_hands_over_first(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", "c", rules=RULES._replace(elections="automatic")) as made:
        running = await made.start("a", "b", "c")
        await until(lambda: any(each.leads() for each in running))
        [leader] = [each for each in running if each.leads()]
        await leader.put_committed(b"first")
        await until(lambda: all(each.store.committed == leader.store.committed for each in running))
        others = [each for each in running if each is not leader]
        await leader.driver.orders.leave()
        await until(lambda: any(each.leads() for each in others))
        own = leader.driver.member
        await until(lambda: all(own not in names(each) for each in others))
        [now] = [each for each in others if each.leads()]
        await now.put_committed(b"without it")
        assert not leader.leads()
