"""What each step of a message costs in processor time, of two commits in turns: where a difference comes from.

python tests/bench/bench_steps.py [--against COMMIT] [--rounds 7] [--python PYTHON=LIBRARIES ...] [--most 1.1]

Each step is called in a process of its own tree, on values of one shape (1 KiB, the properties of a Java client), and
counts the time of its own thread, so neither network nor other programs are in it; the least of the rounds counts. With
compiled modules where the tree has them. --python measures this tree with other interpreters, as pure Python; LIBRARIES
is a folder with trio and orjson for it (pip install --target). Exit 1 when a step's ratio is above --most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEASURE = """
import json, sys, tempfile, time
try:
    import appliance  # first: it chooses the compiled modules
except ImportError:
    pass
from pathlib import Path
import trio
from storage_driver.config import StoreConfig
from storage_driver.index.index_keys import alike_hashes
from storage_driver.reading import ReadRequest
from storage_driver.record import Message, MessageQueue, Parts, encode_host
from storage_driver.store import open_store

HOST, SENT = encode_host("127.0.0.1", 10911), b"UNIQ_KEY\\x01%032X\\x02WAIT\\x01true"
KEPT = b"UNIQ_KEY\\x01%032X\\x02CLUSTER\\x01C\\x02MSG_REGION\\x01R\\x02TRACE_ON\\x01true\\x02"
took = {}

def measure(name, call, each=1, calls=100):
    call()
    began = time.thread_time_ns()
    for _ in range(calls):
        call()
    took[name] = (time.thread_time_ns() - began) / calls / each / 1000

def wire():
    from netstack.wire.command import decode_command, encode_command, request
    from netstack.wire.frame import FrameDecoder
    from netstack.wire.header_cache import HeaderCache
    ext = dict(a="PG", b="T", c="TBW102", d="4", e="1", f="0", g="1700000000000", h="0", j="0", k="false", m="false")
    ext["i"] = (SENT % 1).decode()
    sent = encode_command(request(310, {k: ext[k] for k in "abcdefghijkm"}, bytes(1024)))
    ask = dict(consumerGroup="G", topic="T", queueId="1", queueOffset="7", maxMsgNums="32", sysFlag="4")
    ask |= dict(commitOffset="0", suspendTimeoutMillis="15000", subVersion="1", subscription="*", expressionType="TAG")
    pulled = encode_command(request(11, ask))
    cache = HeaderCache()

    def decode(frames):
        decoder = FrameDecoder()
        decoder.feed(frames)
        while (frame := decoder.next_frame()) is not None:
            cache.decode(frame)

    measure("a send's frame and header", lambda: decode(sent * 50), 50)
    measure("a pull's frame and header", lambda: decode(pulled * 50), 50)

def properties():
    from appliance.broker.publish.send_batch import parse_batch
    from appliance.broker.publish.send_properties import PropertyRules
    rules = PropertyRules(cluster="C", region="R", trace_on=True)
    raws = [SENT % n for n in range(50)]
    texts = [raw.decode() for raw in raws]
    measure("a send's properties", lambda: [rules.stored(text) for text in texts], 50)
    measure("a batch's properties, a message", lambda: rules.stored_all(raws), 50)
    others = [raw + b"\\x02" for raw in raws]
    measure("the same as Go writes them", lambda: rules.stored_all(others), 50)

async def store(folder):
    config = StoreConfig(root=Path(folder), store_host=HOST)
    async with open_store(config, now_ms=lambda: time.time_ns() // 1_000_000) as store:
        messages = [Message("T", n % 4, bytes(1024), KEPT % n, 0, 0, 1, HOST) for n in range(400)]
        parts = Parts([0] * 50, [bytes(1024)] * 50, [KEPT % n for n in range(50)])
        measure("append of a send", lambda: [store.put(one) for one in messages[:100]], 100, 10)
        measure("append of a batch, a message", lambda: store.put_batch(messages[0], parts), 50, 20)
        for one in messages:
            end = store.put(one._replace(topic="Among")).end
        for one in messages:
            end = store.put(one._replace(topic="Alone", queue_id=0)).end
        await store.wait_committed(end)
        among, alone = (ReadRequest(MessageQueue(*key), 32, 32, 1 << 18) for key in (("Among", 1), ("Alone", 0)))
        measure("read of a backlog, 4 queues, a message", lambda: store.read_hot(among), 32)
        measure("read of a backlog, neighbours, a message", lambda: store.read_hot(alone), 32)

measure("index keys, a message", lambda: alike_hashes("T", [KEPT % n for n in range(100)]), 100)
for part in (wire, properties):
    try:
        part()
    except ImportError:
        pass
with tempfile.TemporaryDirectory() as folder:
    trio.run(store, folder)
print(json.dumps(took))
"""


def steps_us(python: str, tree: Path, *, pure: bool) -> dict[str, float]:
    """Return step -> microseconds of one round, by an interpreter (with its libraries) on a tree."""
    python, _, libraries = python.partition("=")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(tree), libraries)))}
    environment["ROCKETBOX_PURE"] = "1" if pure else os.environ.get("ROCKETBOX_PURE", "0")
    done = subprocess.run([python, "-c", MEASURE], cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def least(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: min(each[name] for each in rounds) for name in rounds[0]}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--python", action="append", default=[], help="other interpreters, as pure Python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--most", type=float, help="the largest ratio of a step that is good")
    given = parser.parse_args(arguments)
    sides: dict[str, tuple[str, Path, bool]] = {"this tree": (sys.executable, ROOT, bool(given.python))}
    if given.against:
        from tests.bench.bench_cost import (
            checked_out,
            with_library,
        )  # needs more libraries than other interpreters have

        sides[given.against] = (sys.executable, with_library(checked_out(given.against)), False)
    sides |= {python: (python, ROOT, True) for python in given.python}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(given.rounds):
        for name, (python, tree, pure) in sides.items():
            rounds[name].append(steps_us(python, tree, pure=pure))
    costs = {name: least(each) for name, each in rounds.items()}
    first, ratios = costs["this tree"], list[float]()
    for step in first:
        told = [f"{costs[name].get(step, float('nan')):8.2f}" for name in sides]
        if given.against:
            ratios.append(first[step] / costs[given.against].get(step, float("nan")))
            told.append(f"{ratios[-1]:8.2f}")
        print(f"{step:42}" + "".join(told))
    print(f"{'us of ' + ', '.join(sides)}" + (f"; ratio, median {statistics.median(ratios):.2f}" if ratios else ""))
    return 1 if given.most is not None and max(ratios, default=0) > given.most else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
