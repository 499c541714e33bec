"""Messages per second of the Python client on one core, beside the Java client against the same broker.

    python tests/bench/bench_client.py [messages]

First against a broker that answers everything at once (`quick_broker.py`), which shows the client's own limit, then
against a box and Apache's broker, both on the disk of TMPDIR; there the stock Java client follows with its load.
Each has a process of its own. No seed: nothing is random.
Aims: pipelined producer 15,000 msg/s and consumer 30,000 msg/s at 1 KiB on one core, resident memory below 60 MB.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.interop import apache, jars  # noqa: E402
from tests.interop.box import Box, Child  # noqa: E402
from tests.ports import free_port  # noqa: E402

LOAD = ROOT.parent / "shared" / "bench" / "apache.sh"
APACHE_VERSION = "4.9.7"
SIZE, RUN_S = 1024, 6


def python_client(namesrv: str, messages: int, *more: str) -> dict[str, float]:
    """Run `bench` in a process of its own and return its figures."""
    command = [sys.executable, "-m", "appliance", "bench", "--namesrv", namesrv, "-n", str(messages)]
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"bench ended with {done.returncode}: {done.stderr[-500:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    if "first_failure" in figures:
        print(f"{figures['failed']} sends failed, the first: {figures['first_failure']}")
    return figures


def java_client(namesrv: str, mode: str, threads: int) -> str:
    """Return the line of figures of the stock Java client, or why there is none."""
    if shutil.which("mvn") is None or not LOAD.exists():
        return "not measured: Maven or the load program is missing"
    command = ["bash", str(LOAD), "load", namesrv, "JavaBench", mode, str(threads), str(SIZE), "2", str(RUN_S)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"not measured: exit {done.returncode}"


def _cost(rate: float, cpu: float) -> str:
    """Return what a message costs this client, which other load on the machine hardly changes."""
    cpu = max(cpu, 0.01)
    return f"{cpu:4.2f} of a core  {cpu / max(rate, 1) * 1e6:5.1f} µs CPU a message  {rate / cpu:8,.0f} per core"


def show(figures: dict[str, float], where: str) -> None:
    for half in ("produce", "consume"):
        rate, cpu = figures[f"{half}d_per_s"], figures[f"{half}_cpu"]
        print(f"python {half}  {rate:8,.0f} msg/s  {_cost(rate, cpu)}  {where}")
    print(f"python memory   {figures['rss_mb']:5.1f} MB resident at most, after both")


def beside_java(namesrv: str, messages: int, where: str) -> None:
    """Measure this client and the stock Java client, one after the other, against the same broker."""
    show(python_client(namesrv, messages), where)
    batched = python_client(namesrv, messages, "--batch", "50", "--window", "64", "--only", "produce")
    rate, cpu = batched["produced_per_s"], batched["produce_cpu"]
    print(f"python batch 50 {rate:7,.0f} msg/s  {_cost(rate, cpu)}  {where}")
    for mode, threads in (("sync", 64), ("consume", 1)):
        print(f"java   {mode:8} {java_client(namesrv, mode, threads)}  {where}")


@contextmanager
def quick(folder: Path) -> Iterator[str]:
    port = free_port()
    child = Child([str(ROOT / "tests/bench/quick_broker.py"), str(port)], folder / "quick.log")
    child.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        child.stop()


@contextmanager
def box(folder: Path) -> Iterator[str]:
    child = Box(folder / "data")
    child.start()
    try:
        yield child.namesrv
    finally:
        child.stop()


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    machine = f"{platform.platform()}  Python {platform.python_version()}  {os.cpu_count()} CPUs"
    print(f"{machine}  load {os.getloadavg()[0]:.1f}")
    with (
        tempfile.TemporaryDirectory() as name
    ):  # not tmpfs: it does not say what is in memory, each read takes a thread
        folder = Path(name)
        with quick(folder) as namesrv:
            show(python_client(namesrv, messages), "quick broker")
        with box(folder) as namesrv:
            beside_java(namesrv, messages, "box")
        try:
            with apache.apache_cluster(APACHE_VERSION, folder / "apache", heap_mb=1024) as namesrv:
                beside_java(namesrv, messages, f"Apache {APACHE_VERSION}")
        except jars.Unavailable as error:
            print(f"Apache {APACHE_VERSION} not measured: {error}")


if __name__ == "__main__":
    main()
