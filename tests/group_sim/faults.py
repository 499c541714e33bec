"""Faults of a schedule, each drawn from the seed: what breaks, whom it hits, how long it lasts."""

from collections.abc import Callable

from storage_driver.consensus.members import Members
from tests.group_sim.sim_member import SimMember
from tests.group_sim.world import World


def _some(world: World) -> SimMember:
    """Return any member, the leader more often than others."""
    leader = world.leader()
    if leader is not None and world.pick.random() < 0.4:
        return leader
    return world.members[world.pick.choice(sorted(world.members))]


def crash(world: World) -> None:
    """A power cut of one member, or of all."""
    hit = list(world.members.values()) if world.pick.random() < 0.15 else [_some(world)]
    for member in hit:
        if member.core is not None:
            world.note(f"power cut of {member.name}")
            member.crash()
            world.restart_later(member)


def partition(world: World) -> None:
    """Cut links: one member off, one direction, or any pairs (also non-transitive rings)."""
    names, pick = sorted(world.members), world.pick
    kind = pick.randrange(4)
    alone = _some(world).name
    pairs = [(a, b) for a in names for b in names if a != b]
    if kind == 0:
        cut = {pair for pair in pairs if alone in pair}
    elif kind == 1:
        cut = {pair for pair in pairs if pair[0] == alone}
    elif kind == 2:
        cut = {pair for pair in pairs if pair[1] == alone}
    else:
        cut = {pair for pair in pairs if pick.random() < 0.4}
    world.note(f"links cut: {sorted(cut)}")
    world.cuts |= cut
    world.at(world.now + pick.uniform(0.5, 9.0), heal, world, cut)


def heal(world: World, cut: set[tuple[str, str]]) -> None:
    """Links work again; whoever leads notices the new connections."""
    world.cuts -= cut
    leader = world.leader()
    if leader is not None and world.pick.random() < 0.5:
        for name in sorted({name for pair in cut for name in pair} - {leader.name}):
            leader.order(lambda core, name=name: core.connected(leader.clock(), name))  # type: ignore[misc]


def blink(world: World) -> None:
    """A process is killed and starts again at once: its bytes are there, what it had in mind is not."""
    member = _some(world)
    if member.core is not None:
        world.note(f"{member.name} is killed and starts again")
        member.disk.synced = len(member.disk.log)
        member.crash()
        world.restart_later(member, 0.1)


def cut_pair(world: World) -> None:
    """The leader and one other do not hear each other; both hear the rest."""
    leader = world.leader()
    others = [name for name in world.members if leader is not None and name != leader.name]
    if leader is not None and others:
        one = world.pick.choice(sorted(others))
        cut = {(one, leader.name), (leader.name, one)}
        world.note(f"links cut: {sorted(cut)}")
        world.cuts |= cut
        world.at(world.now + world.pick.uniform(2.0, 6.0), heal, world, cut)


def lonely_leader(world: World) -> None:
    """The leader is alone, and clients write to it."""
    leader = world.leader()
    if leader is None:
        return
    cut = {pair for name in world.members if name != leader.name for pair in ((name, leader.name), (leader.name, name))}
    world.note(f"{leader.name} is alone")
    world.cuts |= cut
    leader.write(world.pick.randrange(1, 3))
    world.at(world.now + world.pick.uniform(1.0, 4.0), heal, world, cut)


def stall(world: World) -> None:
    """A disk answers no sync for a while."""
    member = _some(world)
    member.stall_until = world.now + world.pick.uniform(0.5, 6.0)
    world.note(f"the disk of {member.name} stalls until {member.stall_until:.2f}")


def full(world: World) -> None:
    """A follower's disk takes nothing (ENOSPC), or bytes arrive damaged."""
    member = _some(world)
    member.fill(world.now + world.pick.uniform(0.1, 3.0))
    world.note(f"the disk of {member.name} is full until {member.full_until:.2f}")


def broken(world: World) -> None:
    """A sync fails (EIO): the member says so, and starts again some time later."""
    member = _some(world)
    if member.order(lambda core: core.disk_failed(member.clock(), "EIO")):
        world.note(f"the disk of {member.name} fails")
        world.at(world.now + world.pick.uniform(0.5, 5.0), _end, world, member, member.life)


def _end(world: World, member: SimMember, life: int) -> None:
    if member.life == life:
        member.crash()
        world.restart_later(member)


def suspend(world: World) -> None:
    """A process does not run for a while; its clock does."""
    member = _some(world)
    member.busy_until = world.now + world.pick.uniform(0.2, 6.0)
    world.note(f"{member.name} is suspended until {member.busy_until:.2f}")


def transfer(world: World) -> None:
    """A person hands the leadership over."""
    leader = world.leader()
    if leader is not None:
        to = world.pick.choice(sorted(world.members))
        if leader.order(lambda core: core.transfer(leader.clock(), to)):
            world.note(f"{leader.name} hands over to {to}")


def campaign(world: World) -> None:
    """A person lets a member campaign."""
    member = _some(world)
    if member.order(lambda core: core.campaign(member.clock())):
        world.note(f"{member.name} campaigns by hand")


def reconnect(world: World) -> None:
    """A link of the leader breaks and comes back."""
    leader = world.leader()
    if leader is not None:
        name = world.pick.choice(sorted(world.members))
        leader.order(lambda core: core.connected(leader.clock(), name))


def change_members(world: World) -> None:
    """One voter or learner comes or goes."""
    leader = world.leader()
    if leader is None or leader.core is None:
        return
    now, pick = leader.core.status.members, world.pick
    others = [name for name in now.boxes if name != leader.name]
    kind = pick.randrange(3)
    if kind == 0 and len(now.all) < 5:
        name = f"n{len(world.members)}"
        new = now._replace(learners=(*now.learners, name))
        if leader.order(lambda core: core.propose_members(leader.clock(), new)):
            world.note(f"{name} joins as a learner")
            world.add_member(name, Members(now.boxes, now.witnesses, (*now.learners, name))).start()
    elif kind == 1 and now.learners:
        name = now.learners[0]
        new = now._replace(boxes=(*now.boxes, name), learners=now.learners[1:])
        if leader.order(lambda core: core.propose_members(leader.clock(), new)):
            world.note(f"{name} becomes a voter")
    elif kind == 2 and len(now.boxes) > 2:
        gone = pick.choice(others)
        new = now._replace(boxes=tuple(name for name in now.boxes if name != gone))
        if leader.order(lambda core: core.propose_members(leader.clock(), new)):
            world.note(f"{gone} is removed")


def force(world: World) -> None:
    """A person lets a member lead without votes, whatever is lost."""
    member = _some(world)
    if member.order(lambda core: core.campaign(member.clock(), forced=True)):
        world.note(f"{member.name} leads by force")


def solo(world: World) -> None:
    """A person lets the leader go on alone."""
    leader = world.leader()
    if leader is not None and leader.order(lambda core: core.solo(leader.clock())):
        world.note(f"{leader.name} goes on alone")


def replace_disk(world: World) -> None:
    """One member's disk is replaced by an empty one; it comes back under its own name. Once in a schedule."""
    status = world.leader()
    voters = [name for name in world.first_members.voters if not world.disks[name].hard.filling]
    if status is None or world.replaced or len(voters) < len(world.first_members.voters):
        return
    member = world.members[world.pick.choice(sorted(voters))]
    world.replaced = True
    world.note(f"{member.name} gets a new disk")
    member.crash()
    world.replace_disk(member)
    world.restart_later(member)


def damage_votes(world: World) -> None:
    """One member's file of votes is damaged, in one slot or both; its log is there. Once in a schedule."""
    voters = [name for name in world.first_members.voters if not world.disks[name].hard.filling]
    if world.leader() is None or world.replaced or len(voters) < len(world.first_members.voters):
        return
    member = world.members[world.pick.choice(sorted(voters))]
    world.replaced = True
    world.note(f"{member.name} starts with damaged votes")
    member.crash()
    member.disk.damage_vote(world.pick.choice((0, 1, None)))
    world.restart_later(member)


def force_both(world: World) -> None:
    """Two persons do so at once."""
    for member in world.members.values():
        member.order(lambda core, member=member: core.campaign(member.clock(), forced=True))  # type: ignore[misc]


Fault = Callable[[World], None]
ALWAYS: tuple[Fault, ...] = (crash, crash, partition, partition, partition, stall, full, broken, suspend, transfer)
MORE: tuple[Fault, ...] = (*ALWAYS, reconnect, campaign, blink, cut_pair)
DAMAGED: tuple[Fault, ...] = (*MORE, *[damage_votes] * 4, *[crash] * 3, *[lonely_leader] * 4, *[cut_pair] * 2)
STORM: tuple[Fault, ...] = (
    *(replace_disk, replace_disk, cut_pair, cut_pair, full, full, stall),
    *[lonely_leader] * 4,
    *[crash] * 3,
    *[blink] * 3,
)
