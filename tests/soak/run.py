"""`make soak`: run everything at once against a box for a while and check that it kept its word.

python tests/soak/run.py --minutes 60 [--rate 160] [--seed 1] [--report docs]; exit 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.soak.history import History
from tests.soak.load import GROUPS, Load, make_topics
from tests.soak.report import Result, markdown, save
from tests.soak.samples import Sample
from tests.soak.site import Site, landed, open_site

SHARES = {"sync": 0.38, "batch": 0.25, "delay": 0.06, "transaction": 0.06, "ordered": 0.25}
CATCH_UP_S = 300.0  # longer than a delay level, a rebalance and a retry


async def soak(folder: Path, seconds: float, rate: float, seed: int) -> Result:
    """Run the load for so many seconds, let everybody catch up, and return what was seen."""
    rng = random.Random(seed)
    history = History(GROUPS)
    samples: list[Sample] = []
    rates = {name: round(rate * share, 1) for name, share in SHARES.items()}
    async with open_site(folder) as site:
        await make_topics(site.namesrv)
        load = Load(site.namesrv, history, rng, rates)
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            breaking = trio.CancelScope()
            nursery.start_soon(site.keep_looking, samples, began_s)
            nursery.start_soon(partial(load.run, restless_s=max(3.0, min(45.0, seconds / 12))))
            nursery.start_soon(_within, breaking, site, rng, seconds)
            await _wait(seconds, history, samples)
            load.calm.set()
            breaking.cancel()
            drained = await _caught_up(site, history)
            samples.append(await site.look(began_s))
            nursery.cancel_scope.cancel()
        link = site.link
    keys, raw_bytes = await trio.to_thread.run_sync(landed, folder / "landing")
    sent = {f"{name}:{n}" for name, stream in history.streams.items() for n in stream.acknowledged}
    rows = (seconds, seed, rates, history, samples, load.latencies_ms, link.cuts, link.down_s, load.reconnects)
    return Result(*rows, len(sent - keys), raw_bytes, drained)


async def _within(scope: trio.CancelScope, site: Site, rng: random.Random, seconds: float) -> None:
    with scope:
        await site.link.keep_breaking(rng, up_s=min(60.0, seconds / 8), down_s=min(30.0, seconds / 16))


async def _wait(seconds: float, history: History, samples: list[Sample]) -> None:
    """Sleep, with a line every minute."""
    began = trio.current_time()
    while (left := began + seconds - trio.current_time()) > 0:
        await trio.sleep(min(60.0, left))
        count = sum(len(stream.acknowledged) for stream in history.streams.values())
        memory = samples[-1].memory / (1 << 20) if samples else 0.0
        print(
            f"{(trio.current_time() - began) / 60:6.1f} min  {count:>9,} acknowledged  "
            f"{sum(history.waiting().values()):>7,} waiting  box {memory:.1f} MiB  faults {len(history.disorder)}",
            flush=True,
        )


async def _caught_up(site: Site, history: History) -> bool:
    """Wait until every group has everything and the log has left the box."""
    with trio.move_on_after(CATCH_UP_S):
        while True:
            seen = await site.metrics()
            if not history.waiting() and not seen["rocketbox_uplink_unshipped_bytes"]:
                return True
            await trio.sleep(1)
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one soak; return the exit code."""
    parser = argparse.ArgumentParser(description="Run everything at once against a box and check its word.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=160.0, help="messages a second in all")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--report", type=Path, metavar="DIR", help="write soak.md and its pictures there")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that box and gateway end with it
    print(f"soak: {given.minutes:g} minutes, {given.rate:g} messages a second, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        result = trio.run(soak, Path(folder), given.minutes * 60, given.rate, given.seed)
    print(markdown(result))
    if given.report:
        save(result, given.report)
    return 1 if result.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
