"""From a seed to a group, its faults and its end: `play(seed)` raises Fault when an invariant does not hold."""

from typing import NamedTuple

from storage_driver.consensus.members import Members
from storage_driver.consensus.rules import Rules
from tests.group_sim import faults
from tests.group_sim.records import Fault
from tests.group_sim.sim_member import SimMember
from tests.group_sim.world import World

THREE = Members(("a", "b", "c"))
WITNESS = Members(("a", "b"), ("w",))
PAIR = Members(("a", "b"))


class Shape(NamedTuple):
    """A kind of group and what may happen to it."""

    name: str
    members: Members
    rules: Rules
    faults: tuple[faults.Fault, ...]
    strict: bool = True
    lives: bool = True  # once all is well, somebody leads and everybody follows
    may_lack: bool = False  # not while a disk is new: another may have had the only copy, or the newest members


_FAST = Rules(scale=0.5)
SHAPES = (
    Shape("three boxes", THREE, _FAST, faults.MORE),
    Shape("three boxes, members change", THREE, _FAST, (*faults.MORE, *[faults.change_members] * 6), may_lack=True),
    Shape("two boxes and a witness", WITNESS, _FAST, faults.MORE),
    Shape("two boxes and a witness, one copy", WITNESS, _FAST._replace(copies=1), faults.MORE, may_lack=True),
    Shape("a pair, by hand", PAIR, _FAST._replace(elections="manual", acknowledge="both"), faults.MORE, lives=False),
    Shape(
        "a pair, by hand and by force",
        PAIR,
        _FAST._replace(elections="manual", acknowledge="one"),
        (*faults.MORE, *[faults.force] * 3, faults.force_both),
        strict=False,
        lives=False,
    ),
)
LOCAL = Shape(
    "three boxes, each for itself, alone by order",
    THREE,
    _FAST._replace(acknowledge="local"),
    (*faults.MORE, *[faults.solo] * 4),
    strict=False,
    lives=False,  # what one has committed for itself is not cut but by a person's will
)
FIRST_LOCAL = 1 << 40  # seeds from here on are of that shape
DAMAGED = tuple(each._replace(name=f"{each.name}, damaged votes", faults=faults.DAMAGED) for each in SHAPES[:5])
FIRST_DAMAGED = 1 << 41  # and from here on of these


def shape_of(seed: int) -> Shape:
    """Return the kind of group of a seed."""
    if seed >= FIRST_DAMAGED:
        return DAMAGED[seed % len(DAMAGED)]
    return SHAPES[seed % len(SHAPES)] if seed < FIRST_LOCAL else LOCAL


class Played(NamedTuple):
    """What a seed did."""

    shape: str
    steps: int
    faults: int
    terms: int
    writes: int
    committed: int


def make(seed: int, *, trace: bool = False) -> tuple[World, Shape]:
    """Return the group of a seed, started."""
    shape = shape_of(seed)
    world = World(seed, shape.members, shape.rules, strict=shape.strict, trace=trace)
    pick = world.pick
    world.loss, world.doubled, world.slow = pick.choice(((0, 0, 0), (0.02, 0.02, 0.05), (0.15, 0.05, 0.2)))
    world.cut_chance = pick.choice((0, 0, 0.001, 0.005))
    for member in world.members.values():
        world.at(pick.uniform(0, 0.5), _start, member, member.life)
    return world, shape


def _start(member: SimMember, life: int) -> None:
    if member.life == life and member.core is None:
        member.start()


def _write(world: World) -> None:
    leader = world.leader()
    if leader is not None:
        leader.write(world.pick.randrange(1, 4))
    world.at(world.now + world.pick.expovariate(2.5), _write, world)


def play(seed: int, *, trace: list[str] | None = None) -> Played:
    """Play one seed to its end. Raises Fault."""
    world, shape = make(seed, trace=trace is not None)
    if trace is not None:
        world.trace = trace
    pick, count = world.pick, 0
    if shape.rules.manual:
        world.at(1.2, faults.campaign, world)
    _write(world)
    world.run_until(pick.uniform(2.0, 3.0))
    stormy = seed // len(SHAPES) % 4 == 3
    for _ in range(pick.randrange(6, 14) if stormy else pick.randrange(2, 7)):
        pick.choice((*shape.faults, *faults.STORM) if stormy else shape.faults)(world)
        count += 1
        world.run_until(world.now + pick.choice((0.02, 0.1, 0.5, 1.0, 1.5, 2.5)))
    if seed // len(SHAPES) % 2:
        _calm_down(world)
        filling = world.replaced or any(disk.hard.filling for disk in world.disks.values())
        if shape.lives and not (filling and shape.may_lack):
            _check_alive(world)
    committed = len(world.invariants.committed)
    return Played(shape.name, world.steps, count, len(world.invariants.leaders), world.writes, committed)


def _calm_down(world: World) -> None:
    """All faults end."""
    world.calm = True
    world.cuts.clear()
    for member in world.members.values():
        member.stall_until = member.full_until = 0.0
        member.note_full()
        if member.core is None:
            world.restart_later(member)
    world.note("all is well again")
    world.run_until(world.now + 5.0)


def _check_alive(world: World) -> None:
    """Somebody serves, and who belongs to the group has everything."""
    for _ in range(12):
        leader = world.leader()
        if leader is not None and leader.core is not None and leader.core.status.ready and _is_level(world):
            return
        world.run_until(world.now + 1.5)
    raise Fault(f"nobody serves, or somebody does not follow: {world.roles}")


def _is_level(world: World) -> bool:
    leader = world.leader()
    assert leader is not None
    assert leader.core is not None
    for progress in leader.core.progress():
        if progress.member not in leader.core.status.members.witnesses:
            disk = world.disks[progress.member]
            behind = len(leader.disk.log) - len(disk.log)
            if not 0 <= behind <= 12 or (disk.log and leader.disk.log[len(disk.log) - 1] != disk.log[-1]):
                return False
    return True
