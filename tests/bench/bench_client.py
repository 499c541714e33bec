"""The Python client and the stock Java client side by side: messages per second, processor time per message, memory.

    python tests/bench/bench_client.py [messages]

Both send pipelined, then consume what they sent, one after the other against the same broker: first one that answers
everything at once (`quick_broker.py`), which shows the client's own limit, then a box and Apache's broker, both on the
disk of TMPDIR. Each has a process of its own. No seed: nothing is random.
Aims: pipelined producer 15,000 msg/s and consumer 30,000 msg/s at 1 KiB on one core, resident memory below 60 MB.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.interop import apache, jars  # noqa: E402
from tests.interop.box import Box, Child  # noqa: E402
from tests.ports import free_port  # noqa: E402

JAVA_VERSION = APACHE_VERSION = "4.9.7"
SOURCE = Path(__file__).with_name("ClientLoad.java")
HEAP = "-Xmx512m"
SIZE, WINDOW = 1024, 512
BATCH, BATCHES_UNDER_WAY = 50, 64
Client = Callable[[str, int, int, int], dict[str, float]]  # NameServer, messages, batch, sends under way


def figures_of(command: list[str]) -> dict[str, float]:
    """Run one of the clients in a process of its own and return its figures."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not said:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {apache.cause(done.stderr)}")
    figures: dict[str, float] = json.loads(said[-1])
    if figures["failed"]:
        print(f"{figures['failed']} messages failed; the first: {figures.get('first_failure', 'not told')}")
    return figures


def python_client(namesrv: str, messages: int, batch: int, window: int) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "appliance",
        "bench",
        "--namesrv",
        namesrv,
        "-n",
        str(messages),
        "--timeout",
        "300",
    ]
    command += ["--size", str(SIZE), "--window", str(window), "--batch", str(batch)]
    return figures_of(command + (["--only", "produce"] if batch > 1 else []))


class JavaClient:
    """The stock client's load, compiled into a folder. Raises jars.Unavailable."""

    def __init__(self, folder: Path) -> None:
        path = ":".join(str(jar) for jar in jars.fetch(JAVA_VERSION))
        compiler = Path(jars.java()).with_name("javac")
        if not compiler.exists():
            raise jars.Unavailable(f"no {compiler}; it would come with: apt-get install openjdk-17-jdk-headless")
        subprocess.run([str(compiler), "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
        quiet = [f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}"]
        self._command = [*jars.java_command(), HEAP, *quiet, "-cp", f"{folder}:{path}", "ClientLoad"]
        self._runs = 0

    def __call__(self, namesrv: str, messages: int, batch: int, window: int) -> dict[str, float]:
        self._runs += 1
        numbers = (messages, SIZE, window, batch)
        return figures_of([*self._command, namesrv, f"java_{self._runs}", *map(str, numbers)])


def show(where: str, what: str, who: str, half: str, figures: dict[str, float]) -> None:
    """Print one row. What a message costs and what one core could do hardly change with other load on the machine."""
    rate, cores = figures[f"{half}d_per_s"], max(figures[f"{half}_cpu"], 0.001)
    cost = f"{cores / max(rate, 1) * 1e6:6.1f} µs CPU a message, {rate / cores:9,.0f} per core"
    print(f"{where:13} {what:9} {who:11} {rate:8,.0f} msg/s  {cost}  {figures['rss_mb']:6.1f} MB", flush=True)


def side_by_side(where: str, namesrv: str, messages: int, java: JavaClient | None) -> None:
    """Print what both clients do with one broker; the memory is each process's most, after all it did."""
    clients: dict[str, Client] = {"Python": python_client}
    if java:
        clients[f"Java {JAVA_VERSION}"] = java
    alone = {who: client(namesrv, messages, 1, WINDOW) for who, client in clients.items()}
    batched = {who: client(namesrv, messages, BATCH, BATCHES_UNDER_WAY) for who, client in clients.items()}
    for what, half, table in (("send", "produce", alone), (f"batch {BATCH}", "produce", batched)):
        for who, figures in table.items():
            show(where, what, who, half, figures)
    for who, figures in alone.items():
        show(where, "consume", who, "consume", figures)


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


def java_client(folder: Path) -> JavaClient | None:
    try:
        return JavaClient(folder)
    except jars.Unavailable as error:
        print(f"Java not measured: {error}")
        return None


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    machine = f"{platform.platform()}  Python {platform.python_version()}  {os.cpu_count()} CPUs"
    print(f"{machine}  load {os.getloadavg()[0]:.1f}")
    print(f"{messages:,} messages of {SIZE} bytes, {WINDOW} sends under way; Java after its warm-up, with {HEAP}")
    with (
        tempfile.TemporaryDirectory() as name
    ):  # not tmpfs: it does not say what is in memory, each read takes a thread
        folder = Path(name)
        java = java_client(folder)
        with quick(folder) as namesrv:
            side_by_side("quick broker", namesrv, messages, java)
        with box(folder) as namesrv:
            side_by_side("box", namesrv, messages, java)
        try:
            with apache.apache_cluster(APACHE_VERSION, folder / "apache", heap_mb=1024) as namesrv:
                side_by_side(f"Apache {APACHE_VERSION}", namesrv, messages, java)
        except jars.Unavailable as error:
            print(f"Apache {APACHE_VERSION} not measured: {error}")


if __name__ == "__main__":
    main()
