"""A stock slave at the port where members talk: the first byte of a connection says who it is."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.serving.channel import open_channel
from tests.appliance.box import send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import QUEUES, RealMember, log_files, pair_of, start, wait_for
from tests.interop.apache_pair import ApacheBroker
from tests.waiting import until_it

pytestmark = [pytest.mark.soak, needs_openssl]
NETWORK = "[replication]\nslaves = ['127.0.0.1/32']\n"


def admit_slaves(member: RealMember) -> None:
    """Name the network of slaves in the configuration."""
    path = member.data.parent / f"{member.name}.toml"
    path.write_text(path.read_text().replace("[replication]\n", NETWORK))


async def send_some(leader: RealMember, count: int) -> None:
    async with open_channel("127.0.0.1", leader.broker_port) as channel:
        for number in range(count):
            answer = await channel.ask(send("T", b"%d" % number + b"x" * 90_000, queue_id=number % QUEUES), 10)
            assert answer.code == 0


async def same(member: RealMember, slave: ApacheBroker) -> bool:
    """Tell whether a slave has what a member has, byte for byte."""
    folder = slave.store / "commitlog"
    if not folder.is_dir():
        return False
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdecimal()}
    return all(found.get(name) == data for name, data in log_files(member).items())


async def test_a_stock_slave_copies_whichever_member_it_is_led_to(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    for each in (a, b):
        admit_slaves(each)
    slave = None
    try:
        await start(a, b)
        await a.ask("group.promote")
        await wait_for(a, serves=True)
        await wait_for(b, leader="a")
        size: dict[str, Any] = {"brokerName": "press", "mappedFileSizeCommitLog": 8 << 20}
        slave = ApacheBroker(tmp_path / "s", f"{a.namesrv};{b.namesrv}", **size, brokerRole="SLAVE", brokerId=10)
        await send_some(a, 120)
        await trio.to_thread.run_sync(slave.start)
        await until_it(lambda: same(a, slave))
        await send_some(a, 30)
        await until_it(lambda: same(a, slave))
        assert log_files(a) == log_files(b)
        await until_it(lambda: told_of_slave(a))
        await b.ask("group.promote")
        await wait_for(b, serves=True)
        await send_some(b, 30)
        await until_it(lambda: same(b, slave))
    finally:
        if slave is not None:
            await trio.to_thread.run_sync(slave.kill)
        for member in (a, b):
            if member.running:
                member.kill()


async def told_of_slave(member: RealMember) -> bool:
    """Tell whether `rocketbox status` says that the slave has reported everything."""
    command = [sys.executable, "-m", "appliance", "status", "--data", str(member.data)]
    said = (await trio.run_process(command, capture_stdout=True, check=False)).stdout.decode()
    return "Slaves    127.0.0.1:" in said and ", has everything (a stock slave reports its memory" in said
