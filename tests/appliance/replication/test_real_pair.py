"""A master and a slave as processes, each killed again and again while messages come: one log, no message missing."""

import random
from pathlib import Path

import pytest
import trio

from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.channel import open_channel
from tests.appliance.box import messages_of, pull, send
from tests.interop.box import Box
from tests.waiting import until

pytestmark = pytest.mark.slow
QUEUES = 4
KILLS = 8
LOST = (OSError, AskTimeout, ChannelClosed, trio.BrokenResourceError, trio.ClosedResourceError)
STORE = "[box]\nname = 'pair'\n[store]\nsegment_mib = 8\n[replication]\n"


def log_files(box: Box) -> dict[str, bytes]:
    folder = box.data / "store" / "commitlog"
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.isdecimal()}
    while found and not any(found[max(found)]):
        del found[max(found)]  # made ahead of need
    return found


async def send_until(box: Box, stop: trio.Event, acknowledged: set[bytes], dice: random.Random) -> None:
    """Send messages of many sizes over one connection after the other; note those that are acknowledged."""
    while not stop.is_set():
        try:
            async with open_channel("127.0.0.1", box.broker_port) as channel:
                while not stop.is_set():
                    number, size = len(acknowledged), dice.choice([10, 900, 40_000, 200_000])
                    body = b"%d/%d " % (number, dice.getrandbits(40)) + dice.randbytes(size)
                    answer = await channel.ask(send("T", body, queue_id=number % QUEUES), 5)
                    if answer.code == 0:
                        acknowledged.add(body)
        except* LOST:
            pass
        await trio.sleep(0.05)


async def bodies(box: Box) -> list[bytes]:
    """Return every message of a broker."""
    found = list[bytes]()
    async with open_channel("127.0.0.1", box.broker_port) as channel:
        for queue_id in range(QUEUES):
            at = 0
            while (answer := await channel.ask(pull("T", at, queue_id), 10)).code == 0:
                found += [message.body for message in messages_of(answer)]
                at = int(answer.ext["nextBeginOffset"])
    return found


async def restart(box: Box) -> None:
    await trio.to_thread.run_sync(box.kill)
    await trio.to_thread.run_sync(box.start)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_kills_of_either_side_leave_one_log_and_every_message(tmp_path: Path, seed: int) -> None:
    dice, acknowledged, stop = random.Random(seed), set[bytes](), trio.Event()
    master = Box(tmp_path / "a", config=f"{STORE}role = 'master'\n")
    slave = Box(tmp_path / "b", config=f"{STORE}role = 'slave'\nmaster = '{master.broker}'\n")
    try:
        for box in (master, slave):
            await trio.to_thread.run_sync(box.start)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until, master, stop, acknowledged, dice)
            for _ in range(KILLS):
                await trio.sleep(dice.uniform(0.05, 1.5))
                await restart(dice.choice([master, slave]))
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 20)
            stop.set()
        await until(lambda: log_files(master) == log_files(slave), 90)
        assert len(log_files(master)) > 1
        await trio.to_thread.run_sync(master.kill)
        assert acknowledged <= set(await bodies(slave)), seed
        await trio.to_thread.run_sync(slave.kill)
        slave = Box(tmp_path / "b", config=f"{STORE}role = 'master'\n")
        await trio.to_thread.run_sync(slave.start)
        async with open_channel("127.0.0.1", slave.broker_port) as channel:
            assert (await channel.ask(send("T", b"goes on"), 5)).code == 0
        assert acknowledged | {b"goes on"} <= set(await bodies(slave)), seed
    finally:
        for box in (master, slave):
            if box.running:
                box.kill()
