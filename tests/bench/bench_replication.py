"""What slaves cost their master, and how fast a log is copied: figures with the machine that gave them.

    make bench BENCH=tests/bench/bench_replication.py ARGS='--rounds 3 --slaves 1'

`cost`: microseconds of processor time of a box for one message of 1 KiB, alone, as a master without slaves, and with
slaves that take everything, in turns. `copy`: MB/s at which a log reaches an empty raw slave, and an empty box, whose
syncs count.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from netstack.wire.replication import REPORT, SliceDecoder
from tests.bench.bench_cost import ROOT, Load, cost_us, drive, sends
from tests.bench.harness import machine
from tests.interop.box import Box, until
from tests.interop.wire import command, frame, what_comes_back
from tests.ports import free_port

LOG_MB = 256
BODY = 1024


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
    parser.add_argument("--only", choices=("cost", "copy"))
    given = parser.parse_args(arguments)
    print(machine())
    if given.only != "copy":
        costs(given.rounds, given.slaves)
    if given.only != "cost":
        copies()
    return 0


if __name__ == "__main__":
    sys.exit(main())
