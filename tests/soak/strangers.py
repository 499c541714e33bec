"""A box and a gateway among strangers: every attack at once beside a good client, the box under a limit of memory.

python tests/soak/strangers.py --minutes 60 [--each 2] [--only NAME] [--alone] [--seed 1]; exit 1 when a promise was
broken. With --alone each kind has a box to itself, and its share of the time.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from netstack.errors import ChannelClosed
from netstack.serving.channel import open_channel
from netstack.wire.command import request
from tests.bench.bench_uplink import gateway
from tests.interop.box import Box
from tests.ports import free_port
from tests.soak.attacks import ATTACKS, Target, hello
from uplink_spark.wire.frames import FrameType

LIMIT_MIB = 512
MOST_MIB, MOST_TOGETHER_MIB = 192, 384  # of one kind of attack alone, and of all at once
MOST_RATIO = 500  # of the p99 of a good client under attack to that in quiet: some tens on a machine of its own
GROUPS = Path("/sys/fs/cgroup")
QUIET_S, PAUSE_S = 3.0, 0.02
BUSY = 2
MOST_STATUS_MIB = 16  # of an hour: a line of 8 KiB in 20 s from each of four boxes
WELCOME = FrameType.WELCOME.to_bytes(1, "big")


class Served(NamedTuple):
    """What a good client saw: how long its sends took, in milliseconds."""

    quiet: list[float]
    attacked: list[float]
    broken: list[str]

    def ratio(self) -> float:
        """Return the longest wait under attack as a multiple of the quiet p99."""
        return max(self.attacked) / percentile(self.quiet, 0.99)


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def peak_mib(pid: int) -> float:
    """Return the most memory a process ever had. Source: proc(5), VmHWM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmHWM")


@contextmanager
def limited(pid: int) -> Iterator[str]:
    """Put a process under a memory limit; say how, or that it cannot be done here."""
    for folder, name in ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max")):
        group = folder / f"rocketbox-strangers-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(LIMIT_MIB << 20))
            (group / "cgroup.procs").write_text(str(pid))
            yield f"{name} = {LIMIT_MIB} MiB"
        except OSError:
            continue
        else:
            return
        finally:
            _remove(group)
    yield "no limit: this machine lets nobody make a control group"


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)  # the process has not quite ended


async def sends(port: int, seconds: float, times_ms: list[float]) -> None:
    """Send a message every 20 ms, each when the one before was answered."""
    ext = {"a": "Good", "b": "Good", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    until = trio.current_time() + seconds
    async with open_channel("127.0.0.1", port) as channel:
        while trio.current_time() < until:
            began = time.perf_counter()
            while (answer := await channel.ask(request(310, ext, bytes(1024)), timeout_s=60)).code == BUSY:  # noqa: ASYNC110 - no event
                await trio.sleep(PAUSE_S)  # the disk stalls: every stock client sends again
            assert answer.code == 0, f"a good client was refused: {answer.code} {answer.remark}"
            times_ms.append((time.perf_counter() - began) * 1000)
            await trio.sleep(PAUSE_S)


async def fill(port: int, topic: str) -> None:
    """Store some messages of 250 KiB for pulls to read."""
    ext = {"a": "PG", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    async with open_channel("127.0.0.1", port) as channel:
        for _ in range(40):
            await channel.ask(request(310, ext, bytes(250 << 10)), timeout_s=60)


def attackers(target: Target, seconds: float, each: int, names: Sequence[str], seed: int) -> subprocess.Popen[bytes]:
    """Start the hostile clients in a process of their own."""
    numbers = ",".join(map(str, (*target[:4], target.grpc_port, target.metrics_port, target.slaves_port)))
    command = [sys.executable, __file__, "--attack", numbers, "--seconds", str(seconds), "--each", str(each)]
    return subprocess.Popen([*command, "--seed", str(seed), *(word for name in names for word in ("--only", name))])


async def attack(target: Target, seconds: float, each: int, names: Sequence[str], seed: int) -> None:
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for name in names:
                for number in range(each):
                    nursery.start_soon(ATTACKS[name], target, random.Random(f"{seed} {name} {number}"))


async def observe(box: Box, target: Target, seconds: float, each: int, names: Sequence[str], seed: int) -> Served:
    """Measure a good client in quiet, then under attack."""
    served = Served([], [], [])
    await fill(target.broker_port, target.topic)
    await sends(target.broker_port, QUIET_S, served.quiet)
    children = attackers(target, seconds, each, names, seed)
    try:
        await sends(target.broker_port, seconds, served.attacked)
        if children.poll():
            served.broken.append(f"the hostile clients ended by themselves ({children.returncode})")
    except ChannelClosed as closed:
        served.broken.append(f"the good client's connection ended: {closed}")
        await trio.sleep(2)  # a box that ends closes its connections first
    finally:
        children.terminate()
        await trio.to_thread.run_sync(children.wait)
    return served


async def welcomes(port: int) -> bool:
    """Tell whether a gateway lets a new box in once nobody attacks it any more."""
    with trio.move_on_after(30):
        while True:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(hello("good"))
                with suppress(trio.BrokenResourceError):
                    if (await stream.receive_some(5))[4:] == WELCOME:
                        return True
            await trio.sleep(0.5)
    return False


def run(seconds: float, each: int, names: Sequence[str], seed: int) -> list[str]:
    """Return the promises that were broken."""
    with tempfile.TemporaryDirectory(prefix="strangers-") as name, gateway(Path(name), None) as (uplink, centre):
        page, grpc, metrics = free_port(), free_port(), free_port()
        ports = f"[page]\nport = {page}\n[metrics]\nport = {metrics}\n[grpc]\nport = {grpc}\n"
        ports += "[replication]\nrole = 'master'\n"
        config = f"{ports}[limits]\ntopics = 10000\n[store]\nsegment_mib = 64\nquota_gib = 4\n"
        box = Box(Path(name) / "data", config=config)
        box.start()
        try:
            with limited(box.pid) as limit:
                ports_of_box = box.broker_port, box.namesrv_port, page, uplink
                target = Target(*ports_of_box, "Filled", grpc, metrics, box.broker_port + 1)
                served = trio.run(observe, box, target, seconds, each, names, seed)
                alive = box.running
                most = peak_mib(box.pid) if alive else float("inf")
                box.stop()
        finally:
            if box.running:
                box.kill()
        print(
            f"{limit}; {len(served.attacked)} sends answered under attack, quiet p99 "
            f"{percentile(served.quiet, 0.99):.1f} ms, attacked p99 {percentile(served.attacked, 0.99):.1f} ms, "
            f"longest {max(served.attacked):.0f} ms = {served.ratio():.0f} times the quiet p99; peak {most:.0f} MiB, "
            f"of the gateway {peak_mib(centre):.0f} MiB"
        )
        broken = served.broken
        if not alive:
            broken.append(f"the box ended ({box.process and box.process.returncode}):\n{box.log_tail()}")
        allowed = MOST_MIB if len(names) == 1 else MOST_TOGETHER_MIB
        if most > allowed:
            broken.append(f"the box took {most:.0f} MiB, allowed are {allowed}")
        slower = percentile(served.attacked, 0.99) / percentile(served.quiet, 0.99)
        if slower > MOST_RATIO:
            broken.append(f"a good client waits {slower:.0f} times as long as in quiet, allowed are {MOST_RATIO}")
        if "request_failed" in box.log.read_text():
            broken.append(f"a request failed:\n{box.log_tail(60)}")
        return broken + of_gateway(uplink, centre, Path(name) / "landing")


def of_gateway(port: int, pid: int, landing: Path) -> list[str]:
    """Return what a gateway did not keep to."""
    broken, most = list[str](), peak_mib(pid)
    said = sum(file.stat().st_size for file in (landing / "status").rglob("*") if file.is_file()) / 2**20
    if most > MOST_MIB:
        broken.append(f"the gateway took {most:.0f} MiB, allowed are {MOST_MIB}")
    if said > MOST_STATUS_MIB:
        broken.append(f"status lines took {said:.0f} MiB of the landing zone, allowed are {MOST_STATUS_MIB}")
    if not trio.run(welcomes, port):
        broken.append("the gateway welcomes no box within 30 s after the attack")
    return broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attacks; return the exit code."""
    parser = argparse.ArgumentParser(description="Every attack at once beside a good client.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--each", type=int, default=2, help="hostile clients of each kind")
    parser.add_argument("--only", action="append", choices=sorted(ATTACKS), default=None)
    parser.add_argument("--alone", action="store_true", help="one kind after the other, each upon a fresh box")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    names = given.only or sorted(ATTACKS)
    if given.attack:
        broker, namesrv, page, uplink, *others = map(int, given.attack.split(","))
        target = Target(broker, namesrv, page, uplink, "Filled", *others)
        trio.run(attack, target, given.seconds, given.each, names, given.seed)
        return 0
    rounds = [[name] for name in names] if given.alone else [names]
    broken = []
    for names in rounds:
        print(f"{', '.join(names)}:", flush=True)
        broken += run(given.minutes * 60 / len(rounds), given.each, names, given.seed)
    for text in broken:
        print(f"broken: {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
