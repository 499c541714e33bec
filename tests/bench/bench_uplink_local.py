"""What shipping a backlog does to the senders of the same box: sends a second and p99, off and on in turns.

Senders and uplink run all the time, as on a box; `pause` and `resume` turn shipping off and on, and what is sent while
the box connects or leaves is counted for itself. The gateway is another machine's in the field: here it has the lower
priority and lands in memory, not on the disk that the senders wait for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from storage_driver.log.clock import wall_ms
from storage_driver.record import Message
from storage_driver.store import MessageStore, StoreConfig, open_store
from uplink_spark.box.shipper import Shipper, make_uplink
from uplink_spark.config import UplinkConfig

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.bench.bench_uplink import HOST, MB, body, fill, gateway, settled

SENDERS = 16
OFF, ON, BETWEEN = "off", "on", "between"


@dataclass
class Bench:
    """Sends of each phase in ms, seconds and shipped bytes of each."""

    phase: str = BETWEEN
    took: dict[str, list[float]] = field(default_factory=lambda: {OFF: [], ON: [], BETWEEN: []})
    seconds: dict[str, float] = field(default_factory=lambda: {OFF: 0.0, ON: 0.0})
    shipped: int = 0

    def p(self, phase: str, share: float) -> float:
        took = sorted(self.took[phase])
        return took[int(len(took) * share)]

    def rate(self, phase: str) -> float:
        return len(self.took[phase]) / self.seconds[phase]


async def send_on(store: MessageStore, queue_id: int, bench: Bench) -> None:
    """One sender of 1 KiB: the next goes when the one before is durable."""
    text = body(1, 1024)
    while True:
        phase, began = bench.phase, time.perf_counter()
        await store.wait_committed(store.put(Message("live", queue_id, text, b"", 0, 0, wall_ms(), HOST)).end)
        bench.took[phase if phase == bench.phase else BETWEEN].append((time.perf_counter() - began) * 1000)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - these have no event
        await trio.sleep(0.01)


async def turns(shipper: Shipper, bench: Bench, rounds: int, seconds: float) -> None:
    state = shipper.state

    async def measure(phase: str) -> None:
        began, bench.phase = time.perf_counter(), phase
        await trio.sleep(seconds)
        bench.phase = BETWEEN
        bench.seconds[phase] += time.perf_counter() - began

    for _ in range(rounds):
        await measure(OFF)
        state.set_paused(False)
        before = state.counts.raw_bytes
        await until(lambda: state.counts.raw_bytes - before > MB)  # noqa: B023 - awaited in this round
        before = state.counts.raw_bytes
        await measure(ON)
        bench.shipped += state.counts.raw_bytes - before
        state.set_paused(True)
        await until(lambda: state.link.connected_since is None)


async def beside(root: Path, port: int, certs: Path | None, rounds: int, seconds: float) -> Bench:
    bench = Bench()
    async with open_store(StoreConfig(root=root, store_host=HOST), now_ms=wall_ms) as store:
        await settled()
        uplink = make_uplink(
            store, UplinkConfig(f"localhost:{port}", "bench", certs=certs), root, clock_ok=lambda: True
        )
        uplink.shipper.state.set_paused(True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(uplink.run)
            for queue_id in range(SENDERS):
                nursery.start_soon(send_on, store, queue_id, bench)
            await trio.sleep(1)
            await turns(uplink.shipper, bench, rounds, seconds)
            nursery.cancel_scope.cancel()
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=800, help="of backlog")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each turn")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=memory) as elsewhere:
        folder = Path(name)
        trio.run(fill, folder / "store", options.megabytes, 200)
        with gateway(Path(elsewhere), None, nice=10) as (port, _):
            bench = trio.run(beside, folder / "store", port, None, options.rounds, options.seconds)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {SENDERS} senders of 1 KiB")
    print(
        f"{bench.shipped / MB:.0f} MB went out at {bench.shipped / MB / bench.seconds[ON]:.1f} MB/s beside the senders"
    )
    print(f"sends with the backlog going out against without: x{bench.rate(ON) / bench.rate(OFF):.2f} (goal 0.9)")
    for share in (0.5, 0.9, 0.99, 0.999):
        off, on = bench.p(OFF, share), bench.p(ON, share)
        goal = " (goal 1.25; the gateway shares these cores)" if share == 0.99 else ""
        print(f"p{share * 100:g} {off:.2f} ms -> {on:.2f} ms: x{on / off:.2f}{goal}")
    print(f"p99 while the box connects or leaves: {bench.p(BETWEEN, 0.99):.2f} ms")


if __name__ == "__main__":
    main()
