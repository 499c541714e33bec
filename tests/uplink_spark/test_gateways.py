"""Several gateways on one zone, each a process: boxes go from one to another, gateways die; each record lands once."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
import trio

from tests.ports import free_port
from tests.uplink_spark.killing import Site, wait_done
from tests.uplink_spark.test_many_boxes import CUT_OFF, ToyBox
from uplink_spark.centre.shard_group import owner_path, owners_of
from uplink_spark.testing import landed_log
from uplink_spark.zone.manifest import shard_of


class Gateways:
    """Processes of one zone with four shards."""

    def __init__(self, site: Site, count: int) -> None:
        self.site, self.ports = site, [free_port() for _ in range(count)]
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, port: int) -> None:
        more = ["--advertise", f"127.0.0.1:{port}", "--shards", "4"]
        self.processes[port] = self.site.gateway(port=port, more=more)

    def kill(self, port: int) -> None:
        self.processes[port].kill()
        self.processes[port].wait()


class RovingBox(ToyBox):
    """A box that knows several gateways and goes where it is told to."""

    async def rove(self, ports: list[int], deadline: float) -> None:
        port = self._dice.choice(ports)
        while not self.whole or trio.current_time() < deadline:
            self.told = None
            try:
                await self._converse(port, deadline)
            except CUT_OFF:
                if self.told is not None and self.told.to:
                    port = int(self.told.to.rpartition(":")[2])
                else:
                    port = self._dice.choice(ports)
                await trio.sleep(self._dice.uniform(0, 0.5))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


async def kill_in_turn(gateways: Gateways, dice: random.Random, every_s: float) -> None:
    """Kill one gateway after the other; each comes again after a while."""
    while True:
        await trio.sleep(dice.uniform(0.5, 1) * every_s)
        port = dice.choice(gateways.ports)
        await trio.to_thread.run_sync(gateways.kill, port)
        await trio.sleep(dice.uniform(0, 1) * every_s)
        await trio.to_thread.run_sync(gateways.start, port)


@pytest.mark.parametrize(
    ("boxes", "records", "seconds", "every_s"),
    [
        pytest.param(8, 120, 12, 6.0, marks=pytest.mark.slow),
        pytest.param(60, 800, 300, 15.0, marks=pytest.mark.soak),
    ],
)
async def test_boxes_go_from_gateway_to_gateway_and_each_record_lands_once(
    site: Site, boxes: int, records: int, seconds: float, every_s: float
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    gateways = Gateways(site, 3)
    for port in gateways.ports:
        await trio.to_thread.run_sync(gateways.start, port)
    toys = [RovingBox(number, random.Random(seed + number), records) for number in range(boxes)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill_in_turn, gateways, random.Random(seed), every_s)
        deadline = trio.current_time() + seconds
        with trio.fail_after(seconds + 600):
            async with trio.open_nursery() as fleet:
                for toy in toys:
                    fleet.start_soon(toy.rove, gateways.ports, deadline)
        nursery.cancel_scope.cancel()
    for toy in toys:
        landed = landed_log(site.landing, toy.name)  # raises where one landed twice
        assert landed == {low: toy.raw[low:high] for low, high in pairwise(toy.borders)}


@pytest.mark.soak
def test_a_box_follows_its_shard_from_a_gateway_that_died_to_the_other(site: Site) -> None:
    gateways, shard = Gateways(site, 2), shard_of("box-17", 4)
    owner = owners_of(4, [f"127.0.0.1:{port}" for port in gateways.ports])[shard]
    (site.port,) = (port for port in gateways.ports if not owner.endswith(f":{port}"))  # the address the box has
    for port in gateways.ports:
        gateways.start(port)
    path = site.landing / owner_path(shard)
    while not path.exists() or json.loads(path.read_text())["address"] != owner:
        assert all(process.poll() is None for process in gateways.processes.values())
        Event().wait(0.05)
    box = site.box()
    while not list(site.landing.glob("pack/*/*/*.pack")):
        assert box.poll() is None
        Event().wait(0.05)
    gateways.kill(int(owner.rpartition(":")[2]))
    wait_done(box)
    site.check()
