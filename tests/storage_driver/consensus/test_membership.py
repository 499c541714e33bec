import pytest

from storage_driver.consensus.members import Members
from storage_driver.errors import ConsensusRefused
from tests.group_sim.calm import core_of, isolate, led_world, write

THREE = Members(("a", "b", "c"))


def test_a_learner_is_added_follows_becomes_a_voter_and_another_is_removed() -> None:
    world = led_world(THREE)
    leader = world.members["a"]
    with_learner = THREE._replace(learners=("d",))
    assert leader.order(lambda core: core.propose_members(leader.clock(), with_learner))
    world.add_member("d", with_learner).start()
    write(world, "a", 3)
    world.run_until(world.now + 2)
    assert world.disks["d"].log == world.disks["a"].log
    with pytest.raises(ConsensusRefused, match="votes once it is within"):
        core_of(world, "a").propose_members(leader.clock(), Members(("a", "b", "c", "d")))
    world.run_until(world.now + 11)
    assert leader.order(lambda core: core.propose_members(leader.clock(), Members(("a", "b", "c", "d"))))
    world.run_until(world.now + 1)
    assert core_of(world, "d").status.members.boxes == ("a", "b", "c", "d")
    assert leader.order(lambda core: core.propose_members(leader.clock(), Members(("a", "b", "d"))))
    world.run_until(world.now + 1)
    assert [progress.member for progress in core_of(world, "a").progress()] == ["b", "d"]


def test_one_change_is_open_at_a_time() -> None:
    world = led_world(THREE)
    leader = world.members["a"]
    isolate(world, "a")
    assert leader.order(lambda core: core.propose_members(leader.clock(), Members(("a", "b"))))
    with pytest.raises(ConsensusRefused, match="not committed yet"):
        core_of(world, "a").propose_members(leader.clock(), Members(("a",)))


def test_a_change_that_was_not_committed_goes_with_its_leader() -> None:
    world = led_world(THREE)
    leader = world.members["a"]
    isolate(world, "a")
    assert leader.order(lambda core: core.propose_members(leader.clock(), Members(("a", "b"))))
    world.run_until(world.now + 9)
    world.cuts.clear()
    world.run_until(world.now + 3)
    assert core_of(world, "a").status.members == THREE
