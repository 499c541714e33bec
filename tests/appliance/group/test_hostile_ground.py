"""Cables are pulled, disks stall and fill, boxes are killed: what was acknowledged is on either disk that is left."""

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
from tests.appliance.box import messages_of, pull, send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.hostile_ground import GroundMember, can_make_ground, ground
from tests.appliance.group.real_group import QUEUES, log_files, start, wait_for
from tests.appliance.group.test_real_pair import LOST
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    needs_openssl,
    pytest.mark.skipif(not can_make_ground(), reason="needs root, network namespaces and loop devices"),
]
SEEDS, SLOW_SEEDS, FAULTS = range(100, 140), range(200, 205), 5


async def send_always(members: list[GroundMember], acknowledged: set[bytes], dice: random.Random) -> None:
    """Send to whoever takes messages until cancelled; note those that were acknowledged."""
    while True:
        for member in members:
            try:
                async with open_channel(member.host, member.broker_port) as channel:
                    while True:
                        body = b"%d/%d " % (len(acknowledged), dice.getrandbits(40)) + bytes(dice.choice([10, 9000]))
                        answer = await channel.ask(send("T", body, queue_id=len(acknowledged) % QUEUES), 5)
                        if answer.code:
                            break
                        acknowledged.add(body)
            except* LOST:
                pass
        await trio.sleep(0.05)


async def bodies(member: GroundMember) -> set[bytes]:
    """Return every message that a member gives to consumers."""
    found = set[bytes]()
    async with open_channel(member.host, member.broker_port) as channel:
        for queue_id in range(QUEUES):
            at = 0
            while (answer := await channel.ask(pull("T", at, queue_id), 10)).code == 0:
                found |= {message.body for message in messages_of(answer)}
                at = int(answer.ext["nextBeginOffset"])
    return found


async def killed(member: GroundMember, rest_s: float) -> None:
    await trio.to_thread.run_sync(member.kill)
    await trio.sleep(rest_s / 4)
    await start(member)


async def cable_pulled(member: GroundMember, rest_s: float) -> None:
    member.pull()
    await trio.sleep(rest_s)
    member.plug()


async def one_way(member: GroundMember, rest_s: float) -> None:
    member.lose_outgoing()
    await trio.sleep(rest_s)
    member.plug()


async def disk_stalled(member: GroundMember, rest_s: float) -> None:
    with member.disk.frozen():
        await trio.sleep(rest_s / 2)


async def disk_full(member: GroundMember, rest_s: float) -> None:
    with member.disk.full():
        await trio.sleep(rest_s / 2)


async def suspended(member: GroundMember, rest_s: float) -> None:
    os.kill(member.pid, signal.SIGSTOP)
    await trio.sleep(rest_s / 2)
    os.kill(member.pid, signal.SIGCONT)


async def switched(member: GroundMember, rest_s: float) -> None:
    try:
        await member.ask("group.promote")
    except (OSError, admin.AdminRefused, admin.AdminSilent):
        pass


Fault = Callable[[GroundMember, float], Awaitable[None]]
KINDS: tuple[Fault, ...] = (killed, killed, cable_pulled, one_way, disk_stalled, disk_full, suspended, switched)


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_acknowledged_message_is_lost_whatever_fails_and_whichever_disk_is_destroyed(
    tmp_path: Path, seed: int
) -> None:
    await rounds(tmp_path, seed)


@pytest.mark.parametrize("seed", SLOW_SEEDS)
async def test_nor_over_a_link_of_300_ms(tmp_path: Path, seed: int) -> None:
    await rounds(tmp_path, seed, delay_s=0.3)


async def rounds(folder: Path, seed: int, *, delay_s: float = 0) -> None:
    """Let faults happen while messages are sent; then destroy one disk and look at the other."""
    dice, acknowledged = random.Random(seed), set[bytes]()
    with ground(folder, delay_s=delay_s) as (a, b):
        await start(a, b)
        await a.ask("group.promote")
        await wait_for(a, serves=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_always, [a, b], acknowledged, dice)
            for _ in range(FAULTS):
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) > before + 5)  # type: ignore[misc]
                kind, member = dice.choice(KINDS), dice.choice([a, b])
                print(f"seed {seed}: {kind.__name__} {member.name}")
                await kind(member, dice.uniform(1, 8))
                for each in (a, b):
                    if not each.running:  # a failed disk ends the process, and systemd starts it again
                        await start(each)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 5)
            nursery.cancel_scope.cancel()
        await until(lambda: log_files(a) == log_files(b))
        lost, kept = dice.sample([a, b], 2)
        for member in (a, b):
            await trio.to_thread.run_sync(member.kill)
        await trio.to_thread.run_sync(shutil.rmtree, lost.data)
        await start(kept)
        await kept.ask("group.promote", accept_loss=True)
        await wait_for(kept, serves=True)
        missing = acknowledged - await bodies(kept)
        print(f"seed {seed}: {len(acknowledged)} acknowledged, {len(missing)} missing, {lost.name} destroyed")
        assert not missing, f"seed {seed}: {len(missing)} of {len(acknowledged)} acknowledged messages are gone"
