"""What shipping a backlog does to the senders of the same box: sends a second and p99, off and on in turns.

The gateway is another machine's in the field: here it has the lower priority and lands in memory, not on the disk that
the senders wait for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import trio

from storage_driver.record import Message
from storage_driver.store import MessageStore, StoreConfig, open_store
from uplink_spark.config import UplinkConfig
from uplink_spark.shipper import make_uplink, wall_ms

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.bench.bench_uplink import HOST, MB, body, fill, gateway, settled

SENDERS, ROUND_S = 16, 0.8


async def send(store: MessageStore, seconds: float) -> list[float]:
    """Senders of 1 KiB, each waiting for the disk: ms of every send."""
    took: list[float] = []
    text, until = body(1, 1024), time.perf_counter() + seconds

    async def one(queue_id: int) -> None:
        while (began := time.perf_counter()) < until:
            await store.wait_durable(store.put(Message("live", queue_id, text, b"", 0, 0, wall_ms(), HOST)).end)
            took.append((time.perf_counter() - began) * 1000)

    async with trio.open_nursery() as nursery:
        for queue_id in range(SENDERS):
            nursery.start_soon(one, queue_id)
    return took


async def beside(root: Path, port: int, rounds: int) -> tuple[list[float], list[float], int]:
    """Sends without and with the backlog going out, in turns: ms of every send, and the bytes that went out."""
    alone, shipping = list[float](), list[float]()
    async with open_store(StoreConfig(root=root, store_host=HOST), now_ms=wall_ms) as store:
        await settled()
        uplink = make_uplink(store, UplinkConfig(f"localhost:{port}", "bench"), root)
        await send(store, 0.5)
        for _ in range(rounds):
            alone += await send(store, ROUND_S)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(uplink.run)
                shipping += await send(store, ROUND_S)
                nursery.cancel_scope.cancel()
        return alone, shipping, uplink.statistics().receipted_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=800, help="of backlog")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=memory) as elsewhere:
        folder = Path(name)
        trio.run(fill, folder / "store", options.megabytes, 200)
        with gateway(Path(elsewhere), None, nice=10) as (port, _):
            alone, shipping, out = trio.run(beside, folder / "store", port, options.rounds)
    p99 = [sorted(took)[len(took) * 99 // 100] for took in (alone, shipping)]
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {SENDERS} senders of 1 KiB; {out / MB:.0f} MB went out"
    )
    print(f"sends with the backlog going out against without: x{len(shipping) / len(alone):.2f} (goal 0.9)")
    print(f"p99 {p99[0]:.2f} ms -> {p99[1]:.2f} ms: x{p99[1] / p99[0]:.2f} (goal 1.25; the gateway shares these cores)")


if __name__ == "__main__":
    main()
