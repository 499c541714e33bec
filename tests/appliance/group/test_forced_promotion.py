"""A box takes over by force while the other one, cut off, goes on: what was acknowledged is there, or kept and told."""

import json
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.serving.channel import open_channel
from storage_driver.log.clock import wall_ms
from storage_driver.record import encode_host
from storage_driver.store import StoreConfig, open_store
from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import QUEUES, RealMember, bodies, log_files, pair_of, start, wait_for
from tests.appliance.group.test_group_uplink import gaps_in, lead, ranges
from tests.appliance.group.test_real_pair import LOST, topics
from tests.interop.box import Child, Gateway
from tests.ports import apache_port
from tests.soak.site import landed
from tests.storage_driver.test_store import bodies as stored_bodies
from tests.waiting import until, until_it

pytestmark = [pytest.mark.slow, pytest.mark.soak, needs_openssl]
SEEDS = range(400, 412)
TOPICS = ("T", "quick")  # with the policy of the boxes, which is `both`; with `one`


class Cable:
    """What the second box reaches the first one by; the first never dials."""

    def __init__(self, folder: Path, first: RealMember) -> None:
        self.port, script = apache_port() + 1, str(Path(__file__).with_name("slow_cable.py"))
        self._child = Child([script, str(self.port), "127.0.0.1", str(first.broker_port + 1), "0"], folder / "cable")

    async def cut(self, *, silently: bool) -> None:
        """Let nothing through: silently, as a pulled cable, or with the end of all connections."""
        if silently:
            os.kill(self._child.pid, signal.SIGSTOP)
        else:
            await trio.to_thread.run_sync(self._child.kill)

    async def heal(self) -> None:
        if self._child.running:
            os.kill(self._child.pid, signal.SIGCONT)
        else:
            await trio.to_thread.run_sync(self._child.start)

    def end(self) -> None:
        if self._child.running:
            self._child.kill()


class Senders:
    """Sends each message once, to either box."""

    def __init__(self, members: tuple[RealMember, ...]) -> None:
        self._members, self.sent = members, 0
        self.acknowledged: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}

    async def run(self) -> None:
        """Send until cancelled."""
        async with trio.open_nursery() as nursery:
            for member in self._members:
                for topic in TOPICS:
                    nursery.start_soon(self._send, member, topic)

    async def _send(self, member: RealMember, topic: str) -> None:
        while True:
            try:
                async with open_channel("127.0.0.1", member.broker_port) as channel:
                    while True:
                        self.sent += 1
                        key = f"{topic}-{member.name}-{self.sent}"
                        request = send(topic, key.encode(), f"KEYS\x01{key}\x02", queue_id=self.sent % QUEUES)
                        if (await channel.ask(request, 5)).code == 0:
                            self.acknowledged[topic].add(key.encode())
                        await trio.sleep(0.01)
            except* LOST:
                await trio.sleep(0.05)

    async def more(self, count: int) -> None:
        """Return once so many messages more with the policy `both` were acknowledged."""
        before = len(self.acknowledged["T"])
        await until(lambda: len(self.acknowledged["T"]) >= before + count)


async def told_by(member: RealMember) -> list[dict[str, Any]]:
    """Return what `rocketbox loss` tells."""
    command = [sys.executable, "-m", "appliance", "loss", "--data", str(member.data), "--json"]
    done = await trio.run_process(command, capture_stdout=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


async def salvaged(member: RealMember, folder: Path) -> set[bytes]:
    """Return all messages of clients that are in a member's quarantine."""
    command = [sys.executable, "-m", "appliance", "fsck", str(member.data)]
    await trio.run_process([*command, "--salvage", str(folder), "--quarantine"], capture_stdout=True, check=False)
    found = set[bytes]()
    async with open_store(StoreConfig(folder, encode_host("10.0.0.1", 1)), now_ms=wall_ms) as store:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                found.update(await stored_bodies(store, topic, queue_id))
    return found


async def level(a: RealMember, b: RealMember) -> None:
    """Return once both logs are the same; who ended is started, as systemd does."""

    async def same() -> bool:
        for member in (a, b):
            if not member.running:
                with suppress(RuntimeError):  # it may end once more
                    await start(member)
        return a.running and b.running and log_files(a) == log_files(b)

    await until_it(same, 120)


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_acknowledged_is_there_or_told_after_a_box_took_over_by_force(tmp_path: Path, seed: int) -> None:
    dice, gateway = random.Random(seed), Gateway(tmp_path / "landing")
    a, b = pair_of(tmp_path, f'[uplink]\ngateway = "{gateway.address}"\nmax_delay_s = 0.1\n')
    cable = Cable(tmp_path, a)
    file = tmp_path / "b.toml"
    file.write_text(file.read_text().replace(f"a=127.0.0.1:{a.broker_port + 1}", f"a=127.0.0.1:{cable.port}"))
    old, new = dice.sample([a, b], 2)
    senders = Senders((a, b))
    try:
        await trio.to_thread.run_sync(gateway.start)
        await cable.heal()
        await start(a, b)
        await lead(old)
        await topics("create", "quick", "--acknowledge", "one", "--queues", "4", at=old)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(senders.run)
            await senders.more(20)
            await split(cable, old, new, senders, dice)
            await cable.heal()
            await trio.sleep(dice.uniform(0, 2))
            nursery.cancel_scope.cancel()
        await level(a, b)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(senders.run)
            for member in dice.sample([a, b], 2):
                await trio.to_thread.run_sync(member.kill)
                await start(member)
                await wait_for(new, serves=True)
                await senders.more(5)
            nursery.cancel_scope.cancel()
        await level(a, b)
        wanted = {each.decode() for each in senders.acknowledged["T"]}
        await until(lambda: wanted <= landed(gateway.landing)[0], 120)
        stored = {topic: await bodies(new, topic) for topic in TOPICS}
        assert {topic: await bodies(old, topic) for topic in TOPICS} == stored
    finally:
        for child in (a, b, gateway):
            if child.running:
                child.kill()
        cable.end()
    kept, told = await salvaged(old, tmp_path / "salvaged"), await told_by(old)
    print(f"seed {seed}: {old.name} led, {len(wanted)} acknowledged, {len(kept)} taken back")
    check(senders, stored, kept, told)
    check_landed(gateway.landing, told)
    assert await told_by(new) == []


async def split(cable: Cable, old: RealMember, new: RealMember, senders: Senders, dice: random.Random) -> None:
    """Cut the cable, take over by force, let both take messages; perhaps kill the box that led."""
    await cable.cut(silently=dice.random() < 0.5)
    await trio.sleep(dice.uniform(0, 3))
    await lead(new, accept_loss=True)
    await senders.more(30)
    if dice.random() < 0.3:
        await trio.to_thread.run_sync(old.kill)
        await trio.sleep(dice.uniform(0, 1))
        await start(old)


def check(senders: Senders, stored: dict[str, list[bytes]], kept: set[bytes], told: list[dict[str, Any]]) -> None:
    """What was acknowledged is there, where one disk was enough for it perhaps only aside; what is aside is told.

    What a follower handed on when its leader was lost may be stored twice, also once here and once aside.
    """
    for topic in TOPICS:
        times = Counter([*stored[topic], *(body for body in kept if body.startswith(f"{topic}-".encode()))])
        assert max(times.values()) <= 2, "sent once, and handed on once more"
        assert {int(body.rpartition(b"-")[2]) for body in times} <= set(range(1, senders.sent + 1)), "nobody sent that"
    assert senders.acknowledged["T"] <= set(stored["T"])
    assert senders.acknowledged["quick"] <= set(stored["quick"]) | kept
    assert sum(each["messages"] for each in told) == len(kept) > 0, told
    assert all(each["taken_back"] and not each["acknowledged"] for each in told)


def check_landed(landing: Path, told: list[dict[str, Any]]) -> None:
    """The centre has one history, whole and once, and knows what was taken back and what one disk acknowledged."""
    found, gaps = ranges(landing), [entry.gap for entry in gaps_in(landing) if entry.gap]
    assert len({epoch for epoch, _, _ in found}) == 1
    assert found[0][1] == 0
    assert [start for _, start, _ in found[1:]] == [end for _, _, end in found[:-1]], "no gap, no double"
    cut = [(each["from"], each["to"], each["records"]) for each in gaps if each["class"] == "cut"]
    assert cut == [(each["log_offset"], each["end"], each["messages"]) for each in told]
    assert {each["class"] for each in gaps} == {"cut", "alone"}
