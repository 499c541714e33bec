"""The official gRPC client of Java on the box and on Apache's broker with its proxy (local mode), in turn.

    make bench BENCH=tests/bench/bench_grpc.py ARGS='--seconds 8 --rounds 3'

`cpu` is the server's processor time per message. Every figure is taken from both in turn; compare those of one run.
Receives take what `send:256` left, or what --fill stored. The client compiles itself while it warms up: after 20 s
figures are those of the servers, after 8 s those of a client that has just started.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench import bench_pop
from tests.bench.bench_beside_apache import Contender
from tests.bench.bench_pop import report
from tests.bench.harness import in_turn, machine
from tests.interop import jars
from tests.interop.apache_proxy import LARGE, VERSION, apache_proxy
from tests.interop.box import Box
from tests.interop.wire import make_group, make_topic
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(__file__).with_name("GrpcLoad.java")
LOADS = [("send", 1), ("send", 64), ("send", 256), ("receive", 1), ("receive", 64), ("receive", 256)]
CLIENT = "5.0.8"


class Served(NamedTuple):
    """A contender and where its gRPC and its broker listen."""

    contender: Contender
    endpoint: str
    broker: str


class Load:
    """The Java program, compiled once."""

    def __init__(self, folder: Path) -> None:
        path = ":".join(map(str, jars.fetch(CLIENT, "rocketmq-client-java")))
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
        home = f"-Duser.home={folder}"
        self._command = [*jars.java_command(), "-Xmx512m", home, "-cp", f"{folder}:{path}", "GrpcLoad"]
        self.received = "grpc_256"

    def run(self, served: Served, load: tuple[str, int], warm_s: int, run_s: int, group: str) -> dict[str, float]:
        """Run one load and return its figures, with the server's processor time per message in µs."""
        mode, threads = load
        words = [served.endpoint, f"grpc_{threads}" if mode == "send" else self.received, mode, str(threads)]
        before = served.contender.processor_s()
        command = [*self._command, *words, str(warm_s), str(run_s), group]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        if done.returncode:
            raise RuntimeError(f"{mode} on {served.contender.name}: {done.stderr[-2000:]}")
        figures = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}
        figures["cpu_us"] = (served.contender.processor_s() - before) / max(figures["all"], 1) * 1e6
        return figures


@contextmanager
def our_box(folder: Path) -> Iterator[Served]:
    port = free_port()
    box = Box(folder, config=f"[grpc]\nport = {port}\n")
    box.start()
    try:
        yield Served(Contender("the box", box.namesrv, [box.pid], box.ready_s), f"127.0.0.1:{port}", box.broker)
    finally:
        box.stop()


@contextmanager
def apache(folder: Path) -> Iterator[Served]:
    """Apache's NameServer, and its broker inside its proxy."""
    with apache_proxy(folder, {}, memory=LARGE) as proxy:
        contender = Contender(f"Apache {VERSION}", proxy.namesrv, proxy.pids, 0)
        yield Served(contender, proxy.endpoint, proxy.broker)


def measure(all_served: list[Served], load: Load, loads: list[tuple[str, int]], options: argparse.Namespace) -> None:
    """Take all figures, in turn."""
    for served in all_served:
        for threads in (1, 64, 256):
            make_topic(served.broker, f"grpc_{threads}", 8)
    if options.fill:
        filling, load.received = bench_pop.Load(ROOT / ".build" / "bench" / "grpc" / "filling"), "pop_bench"
        for served in all_served:
            filling.run(served.contender, "fill", 1, options.fill, "none")
    for each in loads:
        for number in range(options.rounds):
            for served in in_turn(all_served, number):
                group = f"g_{each[1]}_{number}"
                make_group(served.broker, group)
                figures = load.run(served, each, options.warm, options.seconds, group)
                served.contender.figures.setdefault(each, []).append(figures)
                print(f"  {served.contender.name:14} {each[0]} {each[1]}: {figures}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=6, help="of each load (6)")
    parser.add_argument("--warm", type=int, default=8, help="seconds before it counts (8)")
    parser.add_argument("--rounds", type=int, default=2, help="of every load, their median counts (2)")
    parser.add_argument(
        "--loads", default="", help="some of send:1,send:64,send:256,receive:1,receive:64,receive:256 (all)"
    )
    parser.add_argument("--fill", type=int, default=0, help="messages that are stored for receives")
    parser.add_argument("--alone", action="store_true", help="the box without Apache's broker")
    options = parser.parse_args()
    loads = [load for load in LOADS if not options.loads or ":".join(map(str, load)) in options.loads.split(",")]
    print(machine(), flush=True)
    folder = ROOT / ".build" / "bench" / "grpc"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    load = Load(folder / "classes")
    with our_box(folder / "box") as box:
        if options.alone:
            measure([box], load, loads, options)
            print(report([box.contender], loads))
        else:
            with apache(folder / "apache") as other:
                measure([other, box], load, loads, options)
                print(report([other.contender, box.contender], loads))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
