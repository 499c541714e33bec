"""Rare sequences, written out: each is without a fault, and has one when a certain line of safety is removed.

A script returns whether it came to its point; chance (delays) decides, so that it is played with several seeds.
"""

from collections.abc import Callable

from storage_driver.consensus.members import Members
from tests.group_sim.calm import crash, isolate, led_world, write
from tests.group_sim.world import World

THREE = Members(("a", "b", "c"))


def run_while(world: World, holds: Callable[[], bool], most_s: float) -> bool:
    """Run in steps of a millisecond as long as something holds; return whether it ended."""
    end = world.now + most_s
    while holds() and world.now < end:
        world.run_until(world.now + 0.001)
    return not holds()


def _leads(world: World, name: str) -> bool:
    status = world.roles.get(name)
    return status is not None and status.role == "leader"


def _campaign(world: World, name: str) -> bool:
    """Let a member campaign as soon as the others would vote for it."""
    world.run_until(world.now + 2.1)
    member = world.members[name]
    for _ in range(3):  # the first may only learn a newer term
        member.order(lambda core: core.campaign(member.clock()))
        if run_while(world, lambda: not _leads(world, name), 0.2):
            return True
    return False


def _alone_with_a_record(seed: int) -> World:
    """Return a group in which a led, has one more record than the others, and is down."""
    world = led_world(THREE, seed=seed)
    world.run_until(world.now + 0.6)
    isolate(world, "a")
    write(world, "a")
    world.run_until(world.now + 0.1)
    crash(world.members["a"], keep=True)
    world.roles.pop("a")
    world.cuts.clear()
    return world


def figure_8(seed: int) -> bool:
    """Raft paper, figure 8: a record of an old term is on a majority, and overwritten by the leader of a later one."""
    world = _alone_with_a_record(seed)
    if not _campaign(world, "b"):
        return False
    isolate(world, "b")
    world.run_until(world.now + 0.1)
    crash(world.members["b"], keep=True)
    world.roles.pop("b")
    world.cuts.clear()
    old_end, second = world.disks["a"].end, world.members["c"]
    if world.disks["c"].end >= old_end:
        return False
    world.members["a"].start()
    if not _campaign(world, "a") or not run_while(world, lambda: second.disk.end < old_end, 0.5):
        return False
    second.full_until = world.now + 60
    world.run_until(world.now + 0.3)
    if second.disk.end != old_end:
        return False
    crash(world.members["a"])
    world.roles.pop("a")
    world.members["b"].start()
    return _campaign(world, "b")


def restart_within_a_lease(seed: int) -> bool:
    """A voter that restarts has just promised the leader not to vote for another."""
    world = led_world(THREE, seed=seed)
    world.cuts |= {("a", "c"), ("c", "a")}
    world.run_until(world.now + 2.1)
    voter = world.members["b"]
    crash(voter, keep=True)
    voter.start()
    member = world.members["c"]
    came = member.order(lambda core: core.campaign(member.clock()))
    world.run_until(world.now + 0.4)
    return came


def two_open_changes(seed: int) -> bool:
    """A leader that nobody hears removes one voter after the other until it is alone, and commits."""
    world = led_world(THREE, seed=seed)
    leader = world.members["a"]
    isolate(world, "a")
    for left in (("a", "b"), ("a",)):
        leader.order(lambda core, left=left: core.propose_members(leader.clock(), Members(left)))  # type: ignore[misc]
    write(world, "a")
    world.run_until(world.now + 1)
    return _campaign(world, "b")


def row_without_bytes(seed: int) -> bool:
    """A follower notes a term, never gets its bytes, and goes on in the term before."""
    world = _alone_with_a_record(seed)
    world.members["b"].stall_until = world.now + 60
    world.members["c"].full_until = world.now + 60
    old_end, second = world.disks["a"].end, world.members["c"]
    rows = len(second.disk.table.rows)
    if not _campaign(world, "b") or not run_while(world, lambda: len(second.disk.table.rows) == rows, 1.5):
        return False
    crash(world.members["b"])
    world.roles.pop("b")
    second.full_until = 0
    world.members["a"].start()
    if not _campaign(world, "a") or not run_while(world, lambda: second.disk.end < old_end, 0.5):
        return False
    if second.disk.end != old_end:
        return False
    crash(second, keep=True)
    second.start()
    return True


def vote_that_was_damaged(seed: int) -> bool:
    """A voter has elected a leader, and its file of votes is damaged: another asks for its vote in the same term."""
    world = led_world(THREE, seed=seed)
    voter, second = world.members["a"], world.members["c"]
    world.cuts |= {("b", "c"), ("c", "b")}
    crash(voter, keep=True)
    world.roles.pop("a")
    voter.start()
    if not _campaign(world, "b"):
        return False
    isolate(world, "b")
    crash(voter, keep=True)
    if voter.disk.end > second.disk.end or voter.disk.hard.voted_for != "b":
        return False
    voter.disk.damage_vote(None)
    voter.start()
    _campaign(world, "c")
    return True
