"""A group of real processes under faults: what clients were told of messages, ends, offsets and locks has one order.

Clients ask any box, also one that is cut off from its group. Porcupine looks for the order.
"""

import os
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from appliance import admin
from netstack.serving.channel import open_channel
from tests.appliance.box import send
from tests.appliance.group.bridge import (
    BridgedMember,
    BridgedWitness,
    Plugged,
    boxes,
    bridged,
    can_bridge,
    cut,
    heal,
    listed_as,
)
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.hostile_ground import can_make_ground
from tests.appliance.group.real_group import start
from tests.appliance.group.test_real_pair import LOST
from tests.appliance.group.wall_clock import WallClock
from tests.histories.clients import KINDS, QUEUES, TOPIC, Recorder, note_content
from tests.histories.history import verdicts
from tests.waiting import until, until_it

pytestmark = [pytest.mark.slow, needs_openssl]
SPARE = QUEUES  # a queue of the topic that no history is about
ANSWERED = 60  # operations between two faults
DAY_S = 86_400
FIRST_SEED, SEEDS = int(os.environ.get("HISTORY_SEED", "1")), 5


class Ground:
    """A group under test and who of it leads. `clocks`: of its boxes, by name."""

    def __init__(self, members: list[Plugged], dice: random.Random, clocks: dict[str, WallClock] | None = None) -> None:
        self.members, self.dice, self.clocks = members, dice, clocks or {}
        self.boxes = boxes(members)

    async def leader(self) -> BridgedMember:
        """Return the box that takes messages, once one says so."""
        found: list[BridgedMember] = []

        async def led() -> bool:
            found[:] = [each for each in self.boxes if await each.serves()]
            return len(found) == 1

        await until_it(led, 120)
        return found[0]

    async def follower(self) -> BridgedMember:
        """Return a box that does not lead."""
        leader = await self.leader()
        return self.dice.choice([each for each in self.boxes if each is not leader])

    async def revived(self) -> None:
        """Start who has ended: a disk that fails ends the process, and systemd starts it again."""
        for each in self.members:
            if not each.running:
                await trio.to_thread.run_sync(each.start)

    async def level(self) -> None:
        """Return once every box has everything, and votes."""

        async def all_have() -> bool:
            told = (await (await self.leader()).status()).get("members", ())
            return len(told) == len(self.members) and all(
                each["connected"] and not each["learner"] and each["behind_bytes"] == 0 for each in told
            )

        await until_it(all_have, 120)

    async def ready(self) -> None:
        """Return once a message was taken."""

        async def taken() -> bool:
            leader = await self.leader()
            try:
                async with open_channel(leader.host, leader.broker_port) as channel:
                    return (await channel.ask(send(TOPIC, b"0", queue_id=SPARE), 5)).code == 0
            except* LOST:
                pass
            return False

        await until_it(taken, 120)


Fault = Callable[[Ground], Awaitable[None]]


async def killed(ground: Ground) -> None:
    """The leader dies, and comes back after another one took over, or before."""
    leader = await ground.leader()
    await trio.to_thread.run_sync(leader.kill)
    await trio.sleep(ground.dice.uniform(0, 4))
    await start(leader)


async def follower_killed(ground: Ground) -> None:
    leader = await ground.leader()
    other = ground.dice.choice([each for each in ground.members if each is not leader])
    await trio.to_thread.run_sync(other.kill)
    await trio.sleep(ground.dice.uniform(0, 2))
    await trio.to_thread.run_sync(other.start)


async def paused(ground: Ground) -> None:
    """The leader stands still for longer than its lease; when it goes on it believes that it leads."""
    leader = await ground.leader()
    os.kill(leader.pid, signal.SIGSTOP)
    await trio.sleep(ground.dice.uniform(1.5, 5))
    os.kill(leader.pid, signal.SIGCONT)


async def cut_off(ground: Ground) -> None:
    """The leader loses both others; clients still reach it."""
    leader = await ground.leader()
    cut(ground.members, [[leader], [each for each in ground.members if each is not leader]])
    await trio.sleep(ground.dice.uniform(1, 5))
    heal(ground.members)


async def mute(ground: Ground) -> None:
    """Nothing of the leader reaches the others; it hears them."""
    leader = await ground.leader()
    cut(ground.members, [[leader]], one_way=True)
    await trio.sleep(ground.dice.uniform(1, 5))
    heal(ground.members)


async def in_halves(ground: Ground) -> None:
    """A member is alone, whichever."""
    alone = ground.dice.choice(ground.members)
    cut(ground.members, [[alone], [each for each in ground.members if each is not alone]])
    await trio.sleep(ground.dice.uniform(1, 5))
    heal(ground.members)


async def bridge_of_one(ground: Ground) -> None:
    """Two members reach the third alone, as in a ring of majorities."""
    one, other = ground.dice.sample(ground.members, 2)
    one.outlet.lose([other.outlet])
    other.outlet.lose([one.outlet])
    await trio.sleep(ground.dice.uniform(1, 5))
    heal(ground.members)


async def handed_over(ground: Ground) -> None:
    leader = await ground.leader()
    to = ground.dice.choice([each for each in ground.boxes if each is not leader])
    try:
        await leader.ask("group.transfer", to=to.name)
    except (OSError, admin.AdminRefused, admin.AdminSilent):
        pass


async def disk_stalled(ground: Ground) -> None:
    """No write of the leader comes back for a while."""
    leader = await ground.leader()
    assert leader.disk is not None
    with leader.disk.frozen():
        await trio.sleep(ground.dice.uniform(1, 5))


async def disk_full(ground: Ground) -> None:
    """The leader has no space; where another box has some, it is to lead."""
    leader = await ground.leader()
    assert leader.disk is not None
    with leader.disk.full():
        await trio.sleep(ground.dice.uniform(1, 6))


async def clock_jumped(ground: Ground) -> None:
    """The wall clock of a box is wrong, then right again."""
    clock = ground.clocks[ground.dice.choice(ground.boxes).name]
    clock.jump(ground.dice.choice((-2 * DAY_S, -3600, -30, 30, 3600, 2 * DAY_S)))
    await trio.sleep(ground.dice.uniform(1, 5))
    clock.jump(0)


async def disk_replaced(ground: Ground) -> None:
    """A follower comes back with an empty disk, under its name."""
    box = await ground.follower()
    await trio.to_thread.run_sync(box.kill)
    await trio.to_thread.run_sync(shutil.rmtree, box.data / "store")
    await start(box)
    await ground.level()


async def member_replaced(ground: Ground) -> None:
    """A box is taken out, and let in again with an empty disk while the leader changes."""
    await ground.level()
    box = await ground.follower()
    await trio.to_thread.run_sync(box.kill)
    await ordered(ground, "group.remove", member=box.name)
    await trio.to_thread.run_sync(shutil.rmtree, box.data / "store")
    await start(box)
    await ordered(ground, "group.join", member=listed_as(box))
    await killed(ground)
    await ordered(ground, "group.join", member=listed_as(box))
    await ground.level()


async def ordered(ground: Ground, do: str, **values: object) -> None:
    """Have the leader do something, and all that it waits for."""

    async def done() -> bool:
        try:
            return not (await (await ground.leader()).ask(do, **values)).get("waits")
        except admin.AdminRefused as exc:
            return "not a member" in str(exc)
        except (OSError, admin.AdminSilent):
            return False

    await until_it(done, 120)


async def votes_lost(ground: Ground) -> None:
    """The witness comes back without its votes."""
    [witness] = [each for each in ground.members if isinstance(each, BridgedWitness)]
    await trio.to_thread.run_sync(witness.kill)
    await trio.to_thread.run_sync(shutil.rmtree, witness.data)
    await trio.to_thread.run_sync(witness.start)


FAULTS: tuple[Fault, ...] = (
    *(killed, paused, cut_off, mute, handed_over),
    *(follower_killed, in_halves, bridge_of_one),
    *(disk_stalled, disk_full, clock_jumped, disk_replaced),
)


async def play(ground: Ground, faults: list[Fault]) -> Recorder:
    """Let clients ask while faults happen; return what they were told."""
    recorder = Recorder(lambda: [(each.host, each.broker_port) for each in ground.boxes], ground.dice)
    await ground.ready()
    async with trio.open_nursery() as nursery:
        for kind in KINDS:
            nursery.start_soon(recorder.run, kind)
        for fault in faults:
            await more(recorder)
            print(f"{recorder.answered} answered; {fault.__name__}", flush=True)
            await fault(ground)
            await ground.revived()
            recorder.phase += 1
        await more(recorder)
        nursery.cancel_scope.cancel()
    await ground.ready()
    leader = await ground.leader()
    await note_content(recorder, leader, leader.host)
    return recorder


async def more(recorder: Recorder) -> None:
    enough = recorder.answered + ANSWERED
    await until(lambda: recorder.answered >= enough, 120)


def check(program: Path, recorder: Recorder) -> None:
    told = verdicts(program, recorder.histories.values())
    for key, history in sorted(recorder.histories.items()):
        known = sum(each.known for each in history.operations)
        print(f"{key}: {len(history.operations)} operations, {known} answered: {told[key]}")
    assert set(told.values()) == {"Ok"}


@pytest.mark.soak
@pytest.mark.skipif(not (can_bridge() and can_make_ground()), reason="needs root, `ip` and file systems of its own")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize("witness", [False, True], ids=["three boxes", "two and a witness"])
async def test_a_group_under_faults_is_linearizable(tmp_path: Path, program: Path, seed: int, witness: bool) -> None:
    dice = random.Random(seed)
    kinds = (*FAULTS, votes_lost if witness else member_replaced)
    faults = [*kinds, *dice.choices(kinds, k=8)]
    dice.shuffle(faults)
    print(f"seed {seed}: {len(faults)} faults")
    clocks = {name: WallClock(tmp_path / f"{name}.clock") for name in ("a", "b", "c")}
    preloaded = {name: clock.environment for name, clock in clocks.items()}
    more = "copies = 1\n" if witness else ""
    with bridged(tmp_path, more, witness=witness, disks=True, environments=preloaded) as members:
        check(program, await play(Ground(members, dice, clocks), faults))
