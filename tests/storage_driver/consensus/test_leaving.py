import pytest

from storage_driver.consensus.members import Members
from storage_driver.consensus.rules import Rules
from storage_driver.errors import ConsensusRefused
from tests.group_sim.calm import core_of, crash, isolate, led_world, write
from tests.group_sim.world import World

THREE = Members(("a", "b", "c"))


def lead(world: World) -> str:
    leader = world.leader()
    assert leader is not None
    return leader.name


def test_a_transfer_ends_with_the_other_leading_and_everything_there() -> None:
    world = led_world(THREE)
    end = write(world, "a", 5)
    leader = world.members["a"]
    assert leader.order(lambda core: core.transfer(leader.clock(), "c"))
    world.run_until(world.now + 1.5)
    assert (lead(world), core_of(world, "c").status.ready) == ("c", True)
    assert core_of(world, "c").committed > end


def test_a_leader_without_a_majority_steps_down_and_has_no_lease_before() -> None:
    world = led_world(THREE)
    core = core_of(world, "a")
    assert core.lease_held(world.members["a"].clock())
    isolate(world, "a")
    world.run_until(world.now + 1.7)
    assert not core.lease_held(world.members["a"].clock())
    assert core_of(world, "a").status.role == "leader"
    world.run_until(world.now + 1.0)
    assert core_of(world, "a").status.role == "follower"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_leader_alone_by_order_needs_a_majority_again_once_another_disk_is_close(name: str) -> None:
    world = led_world(THREE, Rules(acknowledge="local"))
    world.invariants.strict = False  # what one disk has acknowledged alone may go
    member = world.members[name]
    forced = name != "a"
    assert member.order(
        lambda core: core.campaign(member.clock(), forced=True) if forced else core.solo(member.clock())
    )
    write(world, name, 5)
    world.run_until(world.now + 2)
    assert (lead(world), core_of(world, name).alone) == (name, False)
    isolate(world, name)
    world.run_until(world.now + 2.7)
    assert not core_of(world, name).lease_held(member.clock())
    assert core_of(world, name).status.role == "follower"


def test_a_leader_that_goes_on_alone_by_order_does_so_without_a_majority() -> None:
    world = led_world(THREE, Rules(acknowledge="local"))
    world.invariants.strict = False  # what one disk has acknowledged alone may go
    member = world.members["a"]
    isolate(world, "a")
    assert member.order(lambda core: core.solo(member.clock()))
    write(world, "a", 5)
    world.run_until(world.now + 10)
    assert core_of(world, "a").status.role == "leader"
    assert core_of(world, "a").committed == world.disks["a"].end


def test_a_leader_whose_disk_stalls_hands_over() -> None:
    world = led_world(THREE)
    world.members["a"].stall_until = world.now + 60
    write(world, "a")
    world.run_until(world.now + 6)
    assert lead(world) != "a"


def test_a_leader_whose_disk_fails_hands_over_at_once() -> None:
    world = led_world(THREE)
    world.run_until(world.now + 1)
    member = world.members["a"]
    assert member.order(lambda core: core.disk_failed(member.clock(), "EIO"))
    world.run_until(world.now + 0.5)
    assert lead(world) != "a"
    world.run_until(world.now + 9)
    with pytest.raises(ConsensusRefused, match="EIO"):
        core_of(world, "a").campaign(member.clock(), forced=True)


@pytest.mark.slow
def test_the_preferred_member_leads_again_once_it_is_level_for_long() -> None:
    world = led_world(THREE, Rules(preferred="b", scale=0.5))
    world.run_until(world.now + 100)
    assert lead(world) == "a"
    world.run_until(world.now + 80)
    assert lead(world) == "b"


def test_after_a_transfer_that_nobody_took_a_lease_needs_a_new_term() -> None:
    world = led_world(THREE)
    term = core_of(world, "a").status.term
    leader = world.members["a"]
    crash(world.members["b"])
    world.cuts.add(("a", "b"))
    assert leader.order(lambda core: core.transfer(leader.clock(), "b"))
    world.run_until(world.now + 0.2)
    assert not core_of(world, "a").lease_held(leader.clock())
    world.run_until(world.now + 2.5)
    assert core_of(world, "a").status.term == term + 1
    assert core_of(world, "a").lease_held(leader.clock())
