"""The box beside Apache's own broker, in one run, under the stock Java client: throughput, latency, memory, start.

    make bench BENCH=tests/bench/bench_beside_apache.py ARGS='--seconds 10 --rounds 3'

Every figure is taken from all in turn, round after round, on the same disk; compare only figures of one run. The
script named by APACHE_SH (../shared/bench/apache.sh) starts Apache and drives the client; it needs java and mvn.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.harness import in_turn, machine, processor_s, table
from tests.interop.box import Box
from tests.interop.wire import command, frame, what_comes_back
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
APACHE_SH = Path(os.environ.get("APACHE_SH", ROOT.parent / "shared" / "bench" / "apache.sh"))
LOADS = [("sync", 1), ("sync", 64), ("sync", 256), ("batch", 16), ("consume", 1)]
SIZE, QUEUES, GET_MAX_OFFSET = 1024, 8, 30


@dataclass(slots=True)
class Contender:
    """One broker under test, and every figure taken from it: (mode, threads) -> the rounds."""

    name: str
    namesrv: str
    pids: list[int]
    ready_s: float
    broker_port: int = 0
    idle_mb: float = 0
    busy_mb: float = 0
    figures: dict[tuple[str, int], list[dict[str, float]]] = field(default_factory=dict)

    def resident_mb(self) -> float:
        return float(sum(psutil.Process(pid).memory_info().rss for pid in self.pids)) / 1e6

    def processor_s(self) -> float:
        return sum(map(processor_s, self.pids))

    def stored(self, topic: str) -> int:
        """Return how many messages a topic ever had."""
        count = 0
        with socket.create_connection(("127.0.0.1", self.broker_port), 10) as connection:
            for queue_id in range(QUEUES):
                connection.sendall(frame(command(GET_MAX_OFFSET, topic=topic, queueId=str(queue_id))))
                answer = what_comes_back(connection)
                header = json.loads(answer[8 : 8 + (int.from_bytes(answer[4:8], "big") & 0xFFFFFF)])
                count += int(header["extFields"]["offset"]) if header["code"] == 0 else 0
        return count

    def median(self, load: tuple[str, int], name: str) -> float:
        seen = [figures[name] for figures in self.figures[load] if name in figures]
        return statistics.median(seen) if seen else float("nan")


def apache_sh(*arguments: str) -> str:
    done = subprocess.run([str(APACHE_SH), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@contextmanager
def apache(version: str, folder: Path) -> Iterator[Contender]:
    namesrv, broker = free_port(), free_port()
    apache_sh("jars", version)
    began = time.monotonic()
    subprocess.run(  # its children keep the pipes, so nothing may wait for their end
        [str(APACHE_SH), "start", version, str(folder), str(namesrv), str(broker)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    took = time.monotonic() - began
    pids = [int((folder / name).read_text()) for name in ("n.pid", "b.pid")]
    try:
        yield Contender(f"Apache {version}", f"127.0.0.1:{namesrv}", pids, took, broker)
    finally:
        apache_sh("stop", str(folder))
        for pid in pids:
            with_patience = psutil.Process(pid) if psutil.pid_exists(pid) else None
            if with_patience:
                with_patience.wait(30)


@contextmanager
def our_box(folder: Path) -> Iterator[Contender]:
    box = Box(folder)
    box.start()
    try:
        yield Contender("the box", box.namesrv, [box.pid], box.ready_s, box.broker_port)
    finally:
        box.stop()


def run_load(contender: Contender, load: tuple[str, int], warm_s: int, run_s: int) -> None:
    """Let the stock client work on it once and keep the figures."""
    mode, threads = load
    topic = "bench_batch" if mode in ("batch", "consume") else f"bench_{threads}"
    had, spent_s = 0 if mode == "consume" else contender.stored(topic), contender.processor_s()
    said = apache_sh("load", contender.namesrv, topic, mode, str(threads), str(SIZE), str(warm_s), str(run_s))
    figures = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", said) if name != "mode"}
    count = figures.get("total") or contender.stored(topic) - had  # with those before it counts
    figures["cpu_us"] = (contender.processor_s() - spent_s) / max(1, count) * 1e6
    contender.figures.setdefault(load, []).append(figures)
    contender.busy_mb = max(contender.busy_mb, contender.resident_mb())
    print(f"  {contender.name:14} {said.strip()} cpu_us={figures['cpu_us']:.1f}", flush=True)


def report(contenders: list[Contender], loads: list[tuple[str, int]]) -> str:
    """Return the table: one line per load, throughput and p99 side by side."""
    heads = ["load", *(f"{c.name} {what}" for c in contenders for what in ("msg/s", "p99 ms", "cpu us")), "ratio msg/s"]
    rows: list[list[object]] = []
    for load in loads:
        cells: list[object] = []
        for contender in contenders:
            p99 = contender.median(load, "p99_us") / 1000
            cells += [f"{contender.median(load, 'tps'):,.0f}", "" if p99 != p99 else f"{p99:.1f}"]
            cells.append(f"{contender.median(load, 'cpu_us'):.1f}")
        best = max(each.median(load, "tps") for each in contenders[:-1]) if len(contenders) > 1 else float("nan")
        ratio = contenders[-1].median(load, "tps") / best
        rows.append(
            [f"{load[0]} {load[1]} threads" if load[0] != "consume" else "push consumer", *cells, f"{ratio:.2f}"]
        )
    facts: list[list[object]] = []
    for name, unit in (("ready_s", "s"), ("idle_mb", "MB"), ("busy_mb", "MB")):
        cells = [cell for c in contenders for cell in (f"{getattr(c, name):.1f} {unit}", "", "")]
        facts.append(
            [{"ready_s": "ready in", "idle_mb": "resident, idle", "busy_mb": "resident, loaded"}[name], *cells, ""]
        )
    return table(heads, rows + facts)


def why_not() -> str | None:
    if not APACHE_SH.exists():
        return f"no {APACHE_SH}; name the script that starts Apache's broker: APACHE_SH=PATH"
    lacking = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{', '.join(lacking)} missing: sudo make system-packages" if lacking else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=8, help="of each load (8)")
    parser.add_argument("--warm", type=int, default=4, help="seconds before it counts (4)")
    parser.add_argument("--rounds", type=int, default=2, help="of every load, their median counts (2)")
    parser.add_argument("--loads", default="", help="some of sync:1,sync:64,sync:256,batch:16,consume:1 (all)")
    parser.add_argument("--apache", default="4.9.7", help="versions, separated by commas (4.9.7); none: the box alone")
    options = parser.parse_args()
    loads = [load for load in LOADS if not options.loads or ":".join(map(str, load)) in options.loads.split(",")]
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    print(machine(), flush=True)
    folder = ROOT / ".build" / "bench" / "beside"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    versions = [version for version in options.apache.split(",") if version != "none"]
    with open_contenders(versions, folder) as contenders:
        time.sleep(5)
        for contender in contenders:
            contender.idle_mb = contender.resident_mb()
        for load in loads:
            for number in range(options.rounds):
                for contender in in_turn(contenders, number):
                    run_load(contender, load, options.warm, options.seconds)
        print(report(contenders, loads))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


@contextmanager
def open_contenders(versions: list[str], folder: Path) -> Iterator[list[Contender]]:
    """Yield Apache's brokers, oldest first, then the box."""
    if versions:
        with apache(versions[0], folder / versions[0]) as first, open_contenders(versions[1:], folder) as rest:
            yield [first, *rest]
    else:
        with our_box(folder / "box") as box:
            yield [box]


if __name__ == "__main__":
    sys.exit(main())
