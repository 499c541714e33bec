"""Millions of messages that wait for moments of their own: what they hold in memory, how late those are that are due.

`python tests/bench/bench_timers.py [--waiting N] [--probes N]`. A real store and the broker's timers run in this
process; `--waiting` messages become due in one to seventy hours, the probes within seconds while those wait. Each
takes some 300 bytes of disk: ten million need 3 GB and some minutes.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import psutil
import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from appliance.broker.delay.redelivery import put_patiently
from appliance.broker.delay.timers import TimerRules, Timers
from appliance.broker.intake import MessageDraft
from appliance.broker.tables.arrivals import Arrivals, QueuePosition
from appliance.testing import STORE_HOST, NoStats, wall_ms
from storage_driver.config import StoreConfig
from storage_driver.queues.dispatch import Arrival
from storage_driver.record import MessageQueue, StoredMessage, decode_record
from storage_driver.store import MessageStore, open_store
from tests.bench.harness import machine, table

HOUR_MS = 3_600_000
SLICE = 500
BODY = bytes(64)


class Bench:
    """Timers over a store."""

    def __init__(self, store: MessageStore, arrivals: Arrivals) -> None:
        self.store, self.arrivals, self.put_count = store, arrivals, 0
        self.timers = Timers(
            TimerRules("box"),
            store,
            arrivals,
            store.state_file("timers", folder="rocketbox"),
            stats=NoStats(),
            now_ms=wall_ms,
        )

    async def put(self, topic: str, due_ms: int) -> None:
        """Store one timed message, waiting while the disk is behind."""
        properties = {"UNIQ_KEY": f"{self.put_count:032X}", "TIMER_DELIVER_MS": str(due_ms)}
        draft = MessageDraft(topic, 0, BODY, properties, 0, 0, wall_ms(), STORE_HOST)
        self.put_count += 1
        self.timers.divert(draft)
        placed = await put_patiently(self.store, draft.to_message())
        if self.put_count % SLICE == 0:
            await self.store.wait_committed(placed.end)

    async def indexed(self) -> None:
        """Return once all that was put is in the index."""
        while self.timers.index.indexed_to < self.put_count:  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def delivered(self, topic: str, count: int) -> list[StoredMessage]:
        """Return the messages of a topic once they are there."""
        queue, found = MessageQueue(topic, 0), list[StoredMessage]()
        while len(found) < count:
            await self.arrivals.wait_match([QueuePosition(queue, len(found))], group="", timeout_s=60)
            read = await self.store.read(queue, len(found), max_count=500, max_bytes=1 << 20)
            for chunk in read.chunks:
                at = 0
                while at < len(chunk):
                    found.append(decode_record(chunk, at))
                    at += found[-1].size
        return found


def memory_mib() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


async def fill(bench: Bench, waiting: int) -> list[tuple[str, str, str]]:
    """Put the messages that wait; return memory after each tenth."""
    rows, start_ms = [("0", f"{memory_mib():.0f}", "0")], wall_ms() + HOUR_MS
    for tenth in range(1, 11):
        began = time.process_time()
        for number in range(waiting // 10):
            await bench.put("later", start_ms + (tenth * 7_919 + number * 104_729) % (69 * HOUR_MS))
        await bench.indexed()
        cost_us = (time.process_time() - began) / (waiting // 10) * 1e6
        rows.append((f"{len(bench.timers.index):,}", f"{memory_mib():.0f}", f"{cost_us:.0f}"))
    return rows


async def lateness(bench: Bench, probes: int) -> tuple[float, float, float]:
    """Return p50, p99 and the greatest lateness in ms of messages that are due one after another."""
    start_ms = wall_ms() + 1000
    for number in range(probes):
        await bench.put("soon", start_ms + number * 5)
    late = [
        float(message.stored_ms - int(message.property_map["TIMER_DELIVER_MS"]))
        for message in await bench.delivered("soon", probes)
    ]
    assert min(late) >= 0, "a message came early"
    return median(late), quantiles(late, n=100)[98], max(late)


async def measure(waiting: int, probes: int) -> None:
    """Print both tables."""
    late = Late()
    with tempfile.TemporaryDirectory(prefix="bench-timers-") as folder:
        config = StoreConfig(Path(folder) / "store", STORE_HOST, segment_bytes=256 << 20)
        async with open_store(config, now_ms=wall_ms, arrived=late) as store, trio.open_nursery() as nursery:
            late.arrivals = Arrivals(1000, store.max_offset)
            bench = Bench(store, late.arrivals)
            nursery.start_soon(bench.timers.run)
            print(
                table(("messages that wait", "MiB", "µs of CPU each"), await fill(bench, waiting)),
                end="\n\n",
                flush=True,
            )
            shown = [(f"{probes} beside them", *(f"{ms:.1f}" for ms in await lateness(bench, probes)))]
            print(table(("lateness of what is due", "p50 ms", "p99 ms", "max ms"), shown))
            nursery.cancel_scope.cancel()


class Late:
    """Passes arrivals on; the store is there before its table of waiters."""

    arrivals: Arrivals

    def __call__(self, arrival: Arrival) -> None:
        self.arrivals.arrived(arrival)


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="messages that wait; ten million is the promise")
    parser.add_argument("--probes", type=int, default=1000, help="messages that become due meanwhile")
    chosen = parser.parse_args()
    print(machine(), end="\n\n")
    trio.run(partial(measure, chosen.waiting, chosen.probes))


if __name__ == "__main__":
    main()
