"""What slaves cost their master, and how fast a log is copied: figures with the machine that gave them.

    make bench BENCH=tests/bench/bench_replication.py ARGS='--rounds 3 --slaves 1'

`cost`: microseconds of processor time of a box for one message of 1 KiB, alone, as a master without slaves, and with
slaves that take everything, in turns. `copy`: MB/s at which a log reaches an empty raw slave, and an empty box, whose
syncs count. `pair`: messages a second and processor time of a box alone, of one whose follower is away and of two that
hold one log, acknowledged by one disk and by both, in turns; how fast a follower that was away catches up. `beside`:
what a follower that catches up with `--mb` costs 64 senders who wait for the disk of the leader. `apache`: the stock
Java client sends to a pair with `both` and to Apache's SYNC_MASTER with SYNC_FLUSH and one slave, in turns, as in
bench_beside_apache.py.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from appliance import admin
from netstack.wire.replication import REPORT, SliceDecoder
from tests.appliance.group.real_group import RealMember, pair_of
from tests.bench.bench_beside_apache import Contender, report, run_load, why_not
from tests.bench.bench_cost import ROOT, Load, cost_us, drive, sends
from tests.bench.harness import in_turn, machine
from tests.interop.apache_pair import ApacheBroker, apache_namesrv
from tests.interop.box import Box, until
from tests.interop.wire import command, frame, what_comes_back
from tests.ports import apache_port, free_port

LOG_MB = 256
BODY, HEAP_MB = 1024, 2048
SENDERS = 64
COUNTED = 64_000  # messages to a pair: what the boxes do in the second after them is of no weight


def take(port: int, ended: threading.Event, to: int | None = None) -> int:
    """Take a log as a stock slave does until it is long enough; return how many bytes came."""
    while not ended.is_set():
        try:
            connection = socket.create_connection(("127.0.0.1", port), 1)
        except OSError:
            time.sleep(0.05)  # the box is not there yet
            continue
        with connection:
            connection.settimeout(1)
            connection.sendall(REPORT.pack(0))
            decoder, end = SliceDecoder(), 0
            while not ended.is_set() and (to is None or end < to):
                try:
                    data = connection.recv(1 << 20)
                except TimeoutError:
                    continue
                except ConnectionResetError:
                    break
                if not data:
                    break
                found = decoder.feed(data)
                if found and found[-1].end > end:
                    end = found[-1].end
                    connection.sendall(REPORT.pack(end))
            if to is not None and end >= to:
                return end
    return 0


@contextmanager
def role(slaves: int | None) -> Iterator[None]:
    """Boxes that are started meanwhile are masters, with so many slaves; None: alone."""
    if slaves is None:
        yield
        return
    ended, port = threading.Event(), free_port()
    os.environ |= {"ROCKETBOX_REPLICATION_ROLE": "master", "ROCKETBOX_REPLICATION_PORT": str(port)}
    threads = [threading.Thread(target=take, args=(port, ended)) for _ in range(slaves)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        del os.environ["ROCKETBOX_REPLICATION_ROLE"], os.environ["ROCKETBOX_REPLICATION_PORT"]


def costs(rounds: int, slaves: int) -> None:
    load, kinds = Load("sends"), {"alone": None, "master, no slave": 0, f"master, {slaves} slaves": slaves}
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, count in kinds.items():
            with role(count):
                seen[name].append(cost_us(ROOT, load))
    alone = statistics.median(seen["alone"])
    for name, values in seen.items():
        median = statistics.median(values)
        print(f"cost {name}: median {median:.1f} us a message, {median / alone:.3f} of alone, of {rounds}", flush=True)


def copies() -> None:
    """Fill a box, then copy its log to a raw slave and to a box."""
    with tempfile.TemporaryDirectory(prefix="copy-") as folder, ExitStack() as running:
        master = Box(Path(folder) / "a", config='[replication]\nrole = "master"\n')
        master.start()
        running.callback(master.stop)
        frames = sends(LOG_MB * 1024 // 50, batches=True)
        drive([socket.create_connection(("127.0.0.1", master.broker_port))], frames)
        to = LOG_MB << 20
        began = time.monotonic()
        end = take(master.broker_port + 1, threading.Event(), to)
        print(f"copy to a raw slave: {end / (time.monotonic() - began) / 1e6:.0f} MB/s of {end / 1e6:.0f} MB")
        slave = Box(
            Path(folder) / "b", config=f"[replication]\nrole = 'slave'\nmaster = '127.0.0.1:{master.broker_port}'\n"
        )
        began = time.monotonic()
        slave.start()
        running.callback(slave.stop)
        until(lambda: copied_to(slave) >= end, seconds=600, what="the copy does not end")
        print(
            f"copy to a box: {end / (time.monotonic() - began) / 1e6:.0f} MB/s; resident {slave.resident_mb():.0f} MB"
        )


class Measured(NamedTuple):
    """What one run of senders took."""

    per_s: float
    leader_us: float  # of processor time, for a message
    follower_us: float


def pairs(rounds: int, connections: int) -> None:
    """Send to a box alone, to one whose follower is away and to pairs, in turns while all of them run."""
    kinds = ("alone", "follower away", "one", "both")
    seen: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    frames = sends(COUNTED)
    with tempfile.TemporaryDirectory(prefix="pair-") as folder, ExitStack() as running:
        boxes, opened = dict[str, list[Box]](), dict[str, list[socket.socket]]()
        for kind in kinds:
            boxes[kind] = _boxes_of(kind, Path(folder) / kind.replace(" ", "-"), running)
            address = ("127.0.0.1", boxes[kind][0].broker_port)
            opened[kind] = [running.enter_context(socket.create_connection(address)) for _ in range(connections)]
            drive(opened[kind], frames[: COUNTED // 8])
        for number in range(rounds):
            for kind in in_turn(kinds, number):
                seen[kind].append(_sent_to(boxes[kind], opened[kind], frames))
    for kind, found in seen.items():
        rate, leader, follower = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{kind}: {rate:.0f} messages/s, leader {leader:.1f} us a message, follower {follower:.1f}", flush=True)


def _boxes_of(kind: str, folder: Path, running: ExitStack) -> list[Box]:
    """Start what `pairs` calls so; return those that go on running."""
    folder.mkdir()
    if kind == "alone":
        boxes = [Box(folder / "a")]
        boxes[0].start()
    else:
        boxes = _started_pair(folder, f"acknowledge = '{'both' if kind == 'both' else 'one'}'")
    if kind == "follower away":
        boxes.pop().kill()
    for box in boxes:
        running.callback(box.stop)
    return boxes


def _sent_to(boxes: Sequence[Box], opened: list[socket.socket], frames: list[bytes]) -> Measured:
    processes = [psutil.Process(box.pid) for box in boxes]
    before, began = [sum(each.cpu_times()[:2]) for each in processes], time.monotonic()
    drive(opened, frames)
    took = time.monotonic() - began
    time.sleep(1)  # what the follower still does belongs to these messages
    spent = [
        (sum(each.cpu_times()[:2]) - base) / len(frames) * 1e6 for each, base in zip(processes, before, strict=True)
    ]
    return Measured(len(frames) / took, spent[0], spent[-1] if len(spent) > 1 else 0.0)


def _started_pair(folder: Path, more: str) -> list[Box]:
    """Return two boxes of which the first one leads, with segments of the usual size."""
    os.environ["ROCKETBOX_STORE_SEGMENT_MIB"] = "256"
    members: list[RealMember] = list(pair_of(folder, more))
    for member in members:
        member.start()
    admin.ask(members[0].data / "run" / admin.NAME, "group.promote", timeout_s=30)
    until(lambda: _standing(members[0])["serves"], seconds=30, what="the first box does not lead")
    return list(members)


def _standing(box: Box) -> dict[str, Any]:
    return dict(admin.ask(box.data / "run" / admin.NAME, "group.status", timeout_s=30))


def _caught_up(folder: Path, running: ExitStack, log_mb: int = LOG_MB) -> None:
    """Let a follower that was away catch up; from its first MB on, so without the start of its process."""
    leader, follower = _started_pair(folder, "acknowledge = 'one'")
    running.callback(leader.stop)
    follower.kill()
    _fill(leader, log_mb)
    end = max(member["synced"] for member in _standing(leader)["members"])
    follower.start()
    running.callback(follower.stop)
    processes = [psutil.Process(box.pid) for box in (leader, follower)]
    until(lambda: _own_synced(follower) > 1 << 20, seconds=60, what="the copy does not begin")
    first, began = _own_synced(follower), time.monotonic()
    before = [sum(each.cpu_times()[:2]) for each in processes]
    until(lambda: _own_synced(follower) >= end, seconds=600, what="the copy does not end")
    rate, memory = (end - first) / (time.monotonic() - began) / 1e6, [box.resident_mb() for box in (leader, follower)]
    spent = [sum(each.cpu_times()[:2]) - base for each, base in zip(processes, before, strict=True)]
    leader_ms, follower_ms = (each / (end - first) * 1e9 for each in spent)
    print(f"catch-up: {rate:.0f} MB/s of {(end - first) / 1e6:.0f} MB; resident {memory[0]:.0f}, {memory[1]:.0f} MB")
    print(f"catch-up: processor time of a MB {leader_ms:.2f} ms at the leader, {follower_ms:.2f} ms at the follower")


def _fill(box: Box, log_mb: int) -> None:
    """Store about so many MB; what is sent is made by and by, and sent again."""
    frames = sends(min(log_mb, LOG_MB) * 1024 // 50, batches=True)
    with socket.create_connection(("127.0.0.1", box.broker_port)) as connection:
        for _ in range(max(1, log_mb // LOG_MB)):
            drive([connection], frames)


def beside(log_mb: int, seconds: float, more: str) -> None:
    """Measure 64 senders of which each waits for its answer: alone, then while a follower catches up."""
    with tempfile.TemporaryDirectory(prefix="beside-") as folder, ExitStack() as running:
        leader, follower = _started_pair(Path(folder), f"acknowledge = 'one'\n{more}")
        running.callback(leader.stop)
        running.callback(lambda: follower.stop() if follower.running else None)
        before = latencies_ms(leader.broker_port, lambda: time.sleep(seconds))
        print(f"beside a follower that has everything: {told(before)}", flush=True)
        follower.kill()
        _fill(leader, log_mb)
        end = max(member["synced"] for member in _standing(leader)["members"])
        follower.start()
        until(lambda: _own_synced(follower) > 1 << 20, seconds=60, what="the copy does not begin")
        first, began = _own_synced(follower), time.monotonic()
        during = latencies_ms(leader.broker_port, lambda: _wait_copied(follower, end))
        rate = (end - first) / (time.monotonic() - began) / 1e6
        print(f"beside one that catches up with {(end - first) / 1e6:.0f} MB at {rate:.0f} MB/s: {told(during)}")
        print(f"p99 grows {at(during, 0.99) / at(before, 0.99):.2f} times")


def _wait_copied(follower: Box, end: int) -> None:
    for _ in range(4800):
        if _own_synced(follower) >= end:
            return
        time.sleep(0.25)
    raise TimeoutError("the copy does not end")


def at(sorted_ms: Sequence[float], part: float) -> float:
    return sorted_ms[int((len(sorted_ms) - 1) * part)]


def told(sorted_ms: Sequence[float]) -> str:
    return f"{len(sorted_ms)} sends, p50 {at(sorted_ms, 0.5):.1f} ms, p99 {at(sorted_ms, 0.99):.1f} ms"


def latencies_ms(port: int, wait: Callable[[], object]) -> list[float]:
    """Let each of 64 connections send when its last message was answered, until `wait` returns; what they waited."""
    frames, number, found, ended = sends(4096), 0, list[float](), threading.Event()

    def work() -> None:
        try:
            wait()
        finally:
            ended.set()

    waits = threading.Thread(target=work)
    waits.start()
    with selectors.DefaultSelector() as selector, ExitStack() as opened:
        for _ in range(SENDERS):
            sender = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            selector.register(sender, selectors.EVENT_READ, time.monotonic())
            sender.sendall(frames[0])
        while not ended.is_set():
            for ready, _ in selector.select(1):
                connection = ready.fileobj
                assert isinstance(connection, socket.socket)
                if not connection.recv(1 << 16):
                    raise ConnectionError("the box closed the connection")
                found.append((time.monotonic() - ready.data) * 1e3)
                number += 1
                selector.modify(connection, selectors.EVENT_READ, time.monotonic())
                connection.sendall(frames[number % len(frames)])
    waits.join()
    return sorted(found)


@contextmanager
def _apache_pair(folder: Path) -> Iterator[Contender]:
    """Run Apache's master, which waits for its disk and for its slave's memory, and that slave."""
    same: dict[str, Any] = {"brokerName": "apache", "heap_mb": HEAP_MB, "flushDiskType": "SYNC_FLUSH"}
    with apache_namesrv(folder / "n") as namesrv, ExitStack() as running:
        brokers = [
            ApacheBroker(folder / "m", namesrv, port=apache_port(), **same, brokerRole="SYNC_MASTER"),
            ApacheBroker(folder / "s", namesrv, **same, brokerRole="SLAVE", brokerId=1),
        ]
        for broker in brokers:
            broker.start()
            running.callback(broker.kill)
        time.sleep(10)  # the slave says its first word after five seconds
        pids = [broker.process.pid for broker in brokers if broker.process is not None]
        yield Contender("Apache's pair", namesrv, pids, 0.0, brokers[0].port)


@contextmanager
def _own_pair(folder: Path) -> Iterator[Contender]:
    with ExitStack() as running:
        boxes = _started_pair(folder, "acknowledge = 'both'")
        for box in boxes:
            running.callback(box.stop)
        yield Contender("two boxes", boxes[0].namesrv, [box.pid for box in boxes], 0.0, boxes[0].broker_port)


def beside_apache(rounds: int, seconds: int) -> None:
    """Let the stock client send to either pair, in turns; processor time and memory are those of both brokers."""
    loads = [("sync", 64), ("sync", 256)]
    if reason := why_not():
        print(f"skipped: {reason}")
        return
    with (
        tempfile.TemporaryDirectory(prefix="apache-") as folder,
        _apache_pair(Path(folder) / "apache") as theirs,
        _own_pair(Path(folder) / "own") as own,
    ):
        contenders = [theirs, own]
        for contender in contenders:
            contender.idle_mb = contender.resident_mb()
        for load in loads:
            for number in range(rounds):
                for contender in in_turn(contenders, number):
                    run_load(contender, load, 4, seconds)
        print(report(contenders, loads))


def _own_synced(box: Box) -> int:
    standing = _standing(box)
    return int(next(each["synced"] for each in standing["members"] if each["member"] == standing["member"]))


def copied_to(box: Box) -> int:
    """Return how far a slave's log goes, by GET_BROKER_HA_STATUS (907)."""
    with socket.create_connection(("127.0.0.1", box.broker_port), 5) as connection:
        connection.sendall(frame(command(907)))
        answer = what_comes_back(connection)
    return int(json.loads(answer[answer.rindex(b'{"haClientRuntimeInfo"') :])["haClientRuntimeInfo"]["maxOffset"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What slaves cost, and how fast a log is copied.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slaves", type=int, default=1)
    parser.add_argument("--connections", type=int, default=4, help="of the senders to pairs, 64 messages together each")
    parser.add_argument("--only", choices=("cost", "copy", "pair", "catch-up", "beside", "apache"))
    parser.add_argument("--mb", type=int, default=LOG_MB, help="of the log that a follower catches up with")
    parser.add_argument("--seconds", type=int, default=8, help="of each load beside Apache")
    parser.add_argument("--group", default="", help="more settings of the group beside senders, in TOML")
    given = parser.parse_args(arguments)
    print(machine())
    if given.only in (None, "cost"):
        costs(given.rounds, given.slaves)
    if given.only in (None, "copy"):
        copies()
    if given.only in (None, "pair"):
        pairs(given.rounds, given.connections)
    if given.only in (None, "pair", "catch-up"):
        with tempfile.TemporaryDirectory(prefix="pair-") as folder, ExitStack() as running:
            _caught_up(Path(folder), running, given.mb)
    if given.only == "beside":
        beside(given.mb, given.seconds, given.group)
    if given.only == "apache":
        beside_apache(given.rounds, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
