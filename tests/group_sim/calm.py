"""A group without faults, for tests that cause theirs themselves."""

from random import Random

from storage_driver.consensus.core import Core
from storage_driver.consensus.members import Members
from storage_driver.consensus.rules import Rules
from tests.group_sim.sim_member import SimMember
from tests.group_sim.world import World


def calm_world(members: Members, rules: Rules | None = None, *, strict: bool = True, seed: int = 7) -> World:
    """Return a group whose members have just started, with clocks that agree in rate."""
    world = World(seed, members, rules or Rules(), strict=strict)
    world.calm = True
    for member in world.members.values():
        member.rate = 1.0
        member.start()
    return world


def led_world(members: Members, rules: Rules | None = None, *, leader: str = "a", seed: int = 7) -> World:
    """Return a group that `leader` leads, its first record committed everywhere."""
    world = calm_world(members, rules, seed=seed)
    world.run_until(2.0 * world.rules.scale)  # what a start refuses is over
    member = world.members[leader]
    assert member.order(lambda core: core.campaign(member.clock()))
    world.run_until(world.now + 1.2)
    assert core_of(world, leader).status.ready
    return world


def core_of(world: World, name: str) -> Core:
    """Return the core of a member that runs."""
    core = world.members[name].core
    assert core is not None
    return core


def isolate(world: World, *names: str) -> None:
    """Cut members off from all others."""
    others = set(world.members) - set(names)
    world.cuts |= {pair for name in names for other in others for pair in ((name, other), (other, name))}


def write(world: World, name: str, count: int = 1) -> int:
    """Let clients send records to a member; return its end."""
    world.members[name].write(count)
    return world.disks[name].end


def ends(world: World) -> dict[str, int]:
    """Return where everybody's log ends."""
    return {name: disk.end for name, disk in world.disks.items()}


def crash(member: SimMember, *, keep: bool = False) -> None:
    """Cut a member's power; `keep`: unsynced bytes happen to survive."""
    member.core = None
    member.life += 1
    if keep:
        member.disk.synced = len(member.disk.log)
    member.disk.power_cut(_Nothing(0))


class _Nothing(Random):
    """Loses everything that is not synced."""

    def random(self) -> float:
        return 1.0
