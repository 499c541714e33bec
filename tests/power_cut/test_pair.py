"""The power of one box of a pair fails, or of both: what both disks acknowledged is on each, under a real ext4."""

import gc
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance import admin
from netstack.serving.channel import Channel, open_channel
from netstack.wire.codes import ResponseCode
from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import QUEUES, RealMember, bodies, log_files, start, until, wait_for
from tests.power_cut import test_ext4 as ext4
from tests.waiting import until_it

pytestmark = [*ext4.pytestmark, pytest.mark.soak, needs_openssl]
MESSAGES, CUTS = 150, 8


def body_of(number: int) -> bytes:
    return random.Random(number).randbytes(100 + number * 40)


async def acknowledged(channel: Channel, number: int) -> bool:
    """Send a message; a disk that is recorded may be slower than a send waits, and then it is sent again."""
    answer = await channel.ask(send("T", body_of(number), queue_id=number % QUEUES), 30)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE), answer.remark
    return answer.code == ResponseCode.SUCCESS


async def record(works: tuple[Path, Path], seed: int) -> tuple[RealMember, RealMember]:
    """Let a pair acknowledge messages on two recorded disks; each recorder is told of each, after the answer."""
    dice = random.Random(seed)
    with ext4.recorded_ext4(works[0]) as at_a, ext4.recorded_ext4(works[1]) as at_b:
        a, b = RealMember(at_a / "a"), RealMember(at_b / "b")
        for each in (a, b):
            each.configure([a, b])
        marks = [os.open(work / "fuse" / "mark", os.O_WRONLY) for work in works]
        try:
            await start(a, b)
            await a.ask("group.promote")
            await wait_for(a, serves=True)
            async with open_channel("127.0.0.1", a.broker_port) as channel:
                for number in range(MESSAGES):
                    await until_it(partial(acknowledged, channel, number), 120)
                    for mark in marks:
                        os.pwrite(mark, b"%d" % number, 0)
                    if dice.random() < 0.1:
                        await trio.sleep(dice.uniform(0, 0.2))
        finally:
            for mark in marks:
                os.close(mark)
            for each in (a, b):
                if each.running:
                    each.kill()
    return a, b


class Disk:
    """What a power cut leaves of one recorded disk."""

    def __init__(self, work: Path, member: RealMember, others: list[RealMember]) -> None:
        self.work, self.member, self._others = work, member, others
        self.log = ext4.events(work / "log")
        self.marks = [at for at, event in enumerate(self.log) if event[0] == b"M"]

    def cut(self, at: int, dice: random.Random) -> set[int]:
        """Mount what is there after a cut; return which messages were acknowledged before."""
        image, mount = self.work / "cut.img", self.work / "mount"
        known = ext4.device_after(self.work / "base.img", image, self.log[:at], dice)
        ext4.mend_and_mount(image, mount)
        self.member.configure(self._others)
        return set(map(int, known))  # type: ignore[arg-type]

    def leave(self) -> None:
        if self.member.running:
            self.member.kill()
        gc.collect()
        ext4.run("umount", str(self.work / "mount"))


async def missing_at(member: RealMember, acknowledged: set[int]) -> list[int]:
    found = set(await bodies(member))
    return [number for number in sorted(acknowledged) if body_of(number) not in found]


@asynccontextmanager
async def disks(folder: Path, seed: int) -> AsyncIterator[tuple[Disk, Disk]]:
    works = folder / "of-a", folder / "of-b"
    for work in works:
        work.mkdir()
    a, b = await record(works, seed)
    made = Disk(works[0], a, [a, b]), Disk(works[1], b, [a, b])
    assert [len(disk.marks) for disk in made] == [MESSAGES, MESSAGES]
    yield made


async def lead(members: list[RealMember], **how: object) -> RealMember:
    """Have one of the members lead, the first that may."""
    refused = list[str]()
    for member in members:
        try:
            await member.ask("group.promote", **how)
        except admin.AdminRefused as exc:
            refused.append(str(exc))
        else:
            await wait_for(member, serves=True)
            return member
    raise AssertionError(refused)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_either_disk_alone_has_what_was_acknowledged_before_the_power_failed(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with disks(tmp_path, seed) as made:
        for _ in range(CUTS):
            disk = dice.choice(made)
            at = dice.randrange(disk.marks[0], len(disk.log))
            try:
                acknowledged = disk.cut(at, dice)
                await start(disk.member)
                await lead([disk.member], accept_loss=True)
                missing = await missing_at(disk.member, acknowledged)
            finally:
                disk.leave()
            print(f"seed {seed}: {disk.member.name} cut at {at}, {len(acknowledged)} acknowledged, {missing} missing")
            assert missing == []


@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_a_pair_whose_power_fails_together_goes_on_with_all_and_with_equal_logs(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    async with disks(tmp_path, seed) as made:
        for _ in range(CUTS // 2):
            number = dice.randrange(MESSAGES - 1)
            try:
                for disk in made:  # some time between this acknowledgement and the next
                    acknowledged = disk.cut(dice.randrange(disk.marks[number] + 1, disk.marks[number + 1] + 1), dice)
                members = [disk.member for disk in made]
                await start(*members)
                leader = await lead(members)
                await until(lambda members=members: log_files(members[0]) == log_files(members[1]))  # type: ignore[misc]
                missing = await missing_at(leader, acknowledged)
            finally:
                for disk in made:
                    disk.leave()
            print(f"seed {seed}: both cut behind message {number}, {leader.name} leads, {missing} missing")
            assert missing == []
