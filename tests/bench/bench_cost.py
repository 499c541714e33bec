"""What a message costs in processor time, of two commits in turns: the figure that holds on a busy machine.

python tests/bench/bench_cost.py [--load sends] [--against COMMIT] [--rounds 5] [--most 1.02]; exit 1 where the ratios
of the medians and of the least are above `--most`, after up to three times the rounds.

A box of each commit runs as a process of its own and takes the same requests from one raw client; its processor time
comes from /proc. It grows when others share the processor, so the time of a million additions is told beside it.
Loads: `sends` of 1 KiB, `batches` of 50 of them, `pulls` of one message each that is in memory, `backlog` of 32
messages a pull, `waits` (a pull waits, a send wakes it; the figure is for both). The figure is for one message. With
--against the other commit is checked out below .build.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from netstack.wire.command import encode_command, request
from netstack.wire.frame import FrameDecoder
from tests.bench.harness import pace_ms
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WARM_UP, COUNTED, CONNECTIONS, TOGETHER, QUEUES = 8_000, 40_000, 4, 64, 4
MORE = 4  # times as many messages where several come in one request
SHORTER = 5  # the load that waits for the disk at each step
TRIES = 3  # as many rounds again, where the figures are above the limit: a busy machine passes, a slower box does not
IN_BATCH, IN_PULL = 50, 32  # messages
LOADS = ("sends", "batches", "pulls", "backlog", "waits")


def sends(count: int, *, batches: bool = False) -> list[bytes]:
    """Return frames as a Java producer makes them, of one message or of a batch, 1 KiB of body each."""
    made = []
    for number in range(count):
        ext = {
            "a": "PG",
            "b": "Cost",
            "c": "TBW102",
            "d": str(QUEUES),
            "e": str(number % QUEUES),
            "f": "0",
            "g": "1700000000000",
        }
        own = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
        ext |= {"h": "0", "i": "" if batches else own, "j": "0", "k": "false", "m": str(batches).lower()}
        command = request(320, ext, batch_of(number)) if batches else request(310, ext, bytes(1024))
        command.opaque = number
        made.append(encode_command(command))
    return made


def batch_of(number: int) -> bytes:
    """Return the body of a batch of messages."""
    made = []
    for inner in range(number * IN_BATCH, (number + 1) * IN_BATCH):
        properties = f"UNIQ_KEY\x01{inner:032X}\x02WAIT\x01true\x02".encode()
        rest = struct.pack(">iiii1024xh", 0, 0, 0, 1024, len(properties)) + properties
        made.append(struct.pack(">i", 4 + len(rest)) + rest)
    return b"".join(made)


def pulls(count: int, *, waits: bool = False, each: int = 1) -> list[bytes]:
    """Return frames as a Java push consumer makes them, for so many messages each."""
    made = []
    for number in range(count):
        ext = {
            "consumerGroup": "CG",
            "topic": "Cost",
            "queueId": str(number % QUEUES),
            "queueOffset": str(number // QUEUES * each),
        }
        ext |= {"maxMsgNums": str(each), "sysFlag": "6" if waits else "4", "commitOffset": "0", "subscription": "*"}
        ext |= {"suspendTimeoutMillis": "15000", "subVersion": "1", "expressionType": "TAG"}
        command = request(11, ext, b"")
        command.opaque = number
        made.append(encode_command(command))
    return made


def answer(connection: socket.socket, count: int) -> None:
    decoder, left = FrameDecoder(), count
    while left:
        if not (received := connection.recv(1 << 20)):
            raise ConnectionError(f"the box closed the connection, {left} of {count} answers are missing")
        decoder.feed(received)
        while decoder.next_frame() is not None:
            left -= 1


def drive(connections: Sequence[socket.socket], frames: Sequence[bytes]) -> None:
    """Send in portions of 64 a connection, each when the one before was answered."""
    portion = TOGETHER * len(connections)
    for at in range(0, len(frames), portion):
        parts = [frames[at + n * TOGETHER : at + (n + 1) * TOGETHER] for n in range(len(connections))]
        for connection, part in zip(connections, parts, strict=True):
            connection.sendall(b"".join(part))
        for connection, part in zip(connections, parts, strict=True):
            answer(connection, len(part))


def drive_waits(connections: Sequence[socket.socket], sent: Sequence[bytes], pulled: Sequence[bytes]) -> None:
    """Let a pull wait at the end of each queue, then send what they wait for."""
    for at in range(0, len(sent), QUEUES):
        connections[0].sendall(b"".join(pulled[at : at + QUEUES]))
        connections[1].sendall(b"".join(sent[at : at + QUEUES]))
        answer(connections[1], QUEUES)
        answer(connections[0], QUEUES)


class Load:
    """The requests of one name, the same for each box."""

    def __init__(self, name: str) -> None:
        each = {"batches": IN_BATCH, "backlog": IN_PULL, "waits": SHORTER}.get(name, 1)
        portion = TOGETHER * CONNECTIONS
        cheap = MORE if each > SHORTER else 1  # the kernel counts in 10 ms
        self._warm_up, counted = (
            max(portion, cheap * count // each // portion * portion) for count in (WARM_UP, COUNTED)
        )
        total = self._warm_up + counted
        self.messages = counted * (1 if name == "waits" else each)
        pulled = {"pulls": 1, "backlog": IN_PULL, "waits": 1}.get(name, 0)
        self._sent = sends(total * max(1, pulled), batches=name == "batches")
        self._pulled = pulls(total, waits=name == "waits", each=pulled) if pulled else []
        self._waits = name == "waits"

    def store(self, connection: socket.socket) -> None:
        """Store what the pulls are to find."""
        if self._pulled and not self._waits:
            drive([connection], self._sent)

    def warm_up(self, connections: Sequence[socket.socket]) -> None:
        """Send what is not counted."""
        self._drive(connections, slice(self._warm_up))

    def run(self, connections: Sequence[socket.socket]) -> None:
        """Send what is counted."""
        self._drive(connections, slice(self._warm_up, None))

    def _drive(self, connections: Sequence[socket.socket], part: slice) -> None:
        if self._waits:
            drive_waits(connections, self._sent[part], self._pulled[part])
        else:
            drive(connections, (self._pulled or self._sent)[part])


def cost_us(tree: Path, load: Load) -> float:
    """Return the microseconds of processor time that the box of a tree takes for one message of a load."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        command = ["-m", "appliance", "serve", "--data", folder, "--namesrv-port", str(free_port())]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1"}
        box = subprocess.Popen(
            [sys.executable, *command, "--broker-port", str(port)],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert box.stdout is not None
            if not any(line.startswith("ready") for line in box.stdout):
                raise SystemExit(f"the box of {tree} did not start")
            with socket.create_connection(("127.0.0.1", port)) as storing:
                load.store(storing)  # first: a box closes connections that say nothing for ten seconds
            connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
            process = psutil.Process(box.pid)
            load.warm_up(connections)
            settle(process)
            before = process.cpu_times()
            load.run(connections)
            after = process.cpu_times()
            for connection in connections:
                connection.close()
        finally:
            box.terminate()
            box.wait()
    spent_s = float(after.user + after.system - before.user - before.system)
    return spent_s / load.messages * 1e6


def settle(process: psutil.Process) -> None:
    """Wait until a box has done what the messages so far left to do: its index is written two seconds later."""
    spent_s = -1.0
    while (now_s := sum(process.cpu_times()[:2])) > spent_s + 0.03:
        spent_s = now_s
        time.sleep(1)


def checked_out(commit: str) -> Path:
    """Return a tree with the files of a commit."""
    tree = ROOT / ".build" / f"cost-{commit.replace('/', '-')}"
    tree.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)
    return tree


def with_library(tree: Path) -> Path:
    """Compile the modules of another commit's tree, if this one's are and it has a compiler for them."""
    build = tree / "systemd/compiled/build.py"
    if list((ROOT / "appliance/native").glob("*.so")) and build.exists():
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        words = [sys.executable, str(build), str(tree / "appliance/native"), "--if-changed"]
        subprocess.run(words, cwd=tree, env=environment, check=True)
    return tree


def ratios(costs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the ratios of the medians and of the least, the first one's by the second one's."""
    ours, theirs = costs
    return statistics.median(ours) / statistics.median(theirs), min(ours) / min(theirs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Processor time of a request, of two commits in turns.")
    parser.add_argument("--load", choices=LOADS, default="sends")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=float, help="the largest ratio that is good, of the medians or of the least")
    given = parser.parse_args(arguments)
    load = Load(given.load)
    trees = {"this tree": ROOT} | ({given.against: with_library(checked_out(given.against))} if given.against else {})
    costs: dict[str, list[float]] = {name: [] for name in trees}
    paces, good = [], False
    limit = given.most if given.against else None
    for _ in range(TRIES if limit is not None else 1):
        for _ in range(given.rounds):
            for name, tree in trees.items():
                costs[name].append(cost_us(tree, load))
                paces.append(pace_ms())
        if good := limit is None or min(ratios(list(costs.values()))) <= limit:
            break
    for name, values in costs.items():
        print(f"{name}: median {statistics.median(values):.2f} us, least {min(values):.2f} us, of {len(values)}")
    print(f"a million additions: median {statistics.median(paces):.0f} ms, least {min(paces):.0f} ms")
    if given.against:
        of_medians, of_least = ratios(list(costs.values()))
        print(f"ratio of the medians {of_medians:.3f}, of the least {of_least:.3f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
