"""The broker alone: what a send costs it, what connections, topics and parked pulls hold, when delayed messages come.

`python tests/bench/bench_broker.py [sends|lateness|memory|filters …] [--sends N] [--switch S]`. Costs are processor
time of the broker's own process, so a busy machine blurs them less than throughput; `--switch` measures another thread
switch interval beside the default, in turns. Only figures of one run can be compared.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import psutil
import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from appliance.broker.filter.subscriptions import SQL92, Subscription, record_predicate, split_records
from netstack.serving.channel import Channel, open_channel
from storage_driver.record import Message, encode_host, encode_properties, encode_record, encode_topic
from tests.appliance.box import ask, messages_of, pull, send
from tests.bench.harness import machine, table

CONNECTIONS, TOPICS, QUEUES, PARKED, DELAYED = 1000, 5000, 4, 10_000, 300
PARTS = ("sends", "lateness", "memory", "filters")
EXPRESSIONS = (
    "price > 10 AND region = 'eu'",
    "price BETWEEN 3 AND 7 OR colour IN ('red', 'blue') AND region IS NOT NULL",
)
FILTERED = 2000
WAIT_S = 120.0
CODE = "import sys; sys.setswitchinterval({}); from appliance.__main__ import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Running:
    """A broker in a process of its own."""

    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)

    def memory_mib(self) -> float:
        return float(self.process.memory_info().rss) / 2**20


@contextmanager
def running(switch_s: float, toml: str = "", data: Path | None = None) -> Iterator[Running]:
    """Start a broker, on an empty folder where none is given, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-broker-") as folder:
        file = Path(folder, "rocketbox.toml")
        file.write_text(toml)
        words = ["serve", "--config", str(file), "--data", str(data or folder)]
        command = [sys.executable, "-c", CODE.format(switch_s), *words, "--namesrv-port", "0", "--broker-port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
            assert child.stdout is not None
            found = None
            while found is None:
                line = child.stdout.readline()
                if not line:
                    raise SystemExit("the broker did not start")
                found = re.search(r"ready .*broker=\S*:(\d+)", line)
            try:
                yield Running(int(found[1]), psutil.Process(child.pid))
            finally:
                child.terminate()


async def cost_of_sends(broker: Running, senders: int, sends: int) -> tuple[float, float, float]:
    """Return µs of processor time per send, and p50 and p99 of its time in ms."""
    times: list[float] = []

    async def one(channel: Channel) -> None:
        for _ in range(sends // senders):
            began = time.perf_counter()
            await channel.ask(send("T", bytes(1024)), 30)
            times.append((time.perf_counter() - began) * 1000)

    async with open_channel("127.0.0.1", broker.port) as channel:
        await channel.ask(send("T"), 30)
        before = broker.cpu_s()
        async with trio.open_nursery() as nursery:
            for _ in range(senders):
                nursery.start_soon(one, channel)
        used = broker.cpu_s() - before
    return used / len(times) * 1e6, median(times), quantiles(times, n=100)[98]


async def held_memory(broker: Running) -> list[tuple[str, str]]:
    """Return resident memory after each step."""
    rows = [("at start", f"{broker.memory_mib():.0f}")]
    async with AsyncExitStack() as stack:
        channels: list[Channel] = []
        for _ in range(CONNECTIONS):  # who says nothing for 10 s is disconnected, and who falls silent for 120 s
            channels.append(await stack.enter_async_context(open_channel("127.0.0.1", broker.port)))
            await channels[-1].ask(ask(30, topic="T", queueId=0), WAIT_S)
        rows.append((f"{CONNECTIONS} connections", f"{broker.memory_mib():.0f}"))
        for number in range(TOPICS):
            channel = channels[number % CONNECTIONS]
            for queue_id in range(QUEUES - 1):
                channel.tell(send(f"topic{number}", queue_id=queue_id))
            await channel.ask(send(f"topic{number}", queue_id=QUEUES - 1), WAIT_S)
        rows.append((f"{TOPICS} topics of {QUEUES} queues", f"{broker.memory_mib():.0f}"))
        for number in range(PARKED):
            at = channels[number % CONNECTIONS]
            queue_id = number // TOPICS % QUEUES
            at.tell(pull(f"topic{number % TOPICS}", 1, queue_id, group=f"G{number % 10}", suspend_ms=200_000))
        for channel in channels:
            await channel.ask(ask(30, topic="topic0", queueId=0), WAIT_S)
            if channel.closed.is_set():
                raise SystemExit("the broker closed a connection")
        rows.append((f"{PARKED} parked pulls", f"{broker.memory_mib():.0f}"))
    return rows


async def lateness(broker: Running, loaded: bool) -> tuple[float, float]:
    """Return p50 and p99 in ms of how long after its second a message of delay level 1 was stored again."""
    topic = f"late{loaded:d}"
    async with open_channel("127.0.0.1", broker.port) as channel, trio.open_nursery() as nursery:
        if loaded:
            for _ in range(64):
                nursery.start_soon(_send_on, broker)
        await channel.ask(send(topic), 30)
        for number in range(DELAYED):
            await channel.ask(send(topic, properties=f"DELAY\x011\x02UNIQ_KEY\x01{time.time_ns()}\x02"), 30)
            await trio.sleep(0.005 if number % 10 else 0.05)
        late: list[float] = []
        while len(late) < DELAYED:
            answer = await channel.ask(pull(topic, 1 + len(late), suspend_ms=5000), 30)
            for message in messages_of(answer):
                sent_ms = int(message.property_map["UNIQ_KEY"]) / 1e6
                late.append(message.stored_ms - sent_ms - 1000)
        nursery.cancel_scope.cancel()
    return median(late), quantiles(late, n=100)[98]


async def _send_on(broker: Running) -> None:
    async with open_channel("127.0.0.1", broker.port) as channel:
        while True:
            await channel.ask(send("load", bytes(1024)), 30)


def cost_of_filters() -> list[tuple[str, str]]:
    """Return expressions and how many stored messages of 1 KiB one core compares with each in a second."""
    host = encode_host("127.0.0.1", 10911)
    names = [{"UNIQ_KEY": f"{n:032X}", "price": str(n % 20), "region": ("eu", "us")[n % 2]} for n in range(FILTERED)]
    stored = [Message("T", 0, bytes(1024), encode_properties(each), 0, 0, 0, host) for each in names]
    topic = encode_topic("T")
    log = b"".join(encode_record(each, topic, n, 0, stored_ms=0, store_host=host) for n, each in enumerate(stored))
    rows = []
    for text in EXPRESSIONS:
        accepts = record_predicate(Subscription("T", text, SQL92))
        assert accepts is not None
        costs = []
        for _ in range(5):
            began = time.process_time()
            taken = sum(map(accepts, split_records(log)))
            costs.append((time.process_time() - began) / FILTERED)
        assert 0 < taken < FILTERED
        rows.append((text, f"{1 / min(costs):,.0f}"))
    return rows


@asynccontextmanager
async def brokers(switches: list[float]) -> AsyncIterator[dict[float, Running]]:
    """Run one broker per switch interval side by side."""
    async with AsyncExitStack() as stack:
        yield {switch_s: stack.enter_context(running(switch_s)) for switch_s in switches}


async def measure(switches: list[float], sends: int, parts: list[str]) -> None:
    """Print the tables of the chosen parts."""
    if "sends" in parts or "lateness" in parts:
        async with brokers(switches) as found:
            if "sends" in parts:
                await _print_sends(found, sends)
            if "lateness" in parts:
                await _print_lateness(found[switches[0]])
    if "filters" in parts:
        print(table(("SQL92 filter", "messages/s and core"), cost_of_filters()), end="\n\n", flush=True)
    if "memory" in parts:
        with running(switches[0]) as fresh:
            print(table(("broker holds", "MiB"), await held_memory(fresh)))


async def _print_lateness(broker: Running) -> None:
    late = [(name, *await lateness(broker, loaded)) for name, loaded in (("idle", False), ("64 senders", True))]
    shown = [(name, f"{p50:.1f}", f"{p99:.1f}") for name, p50, p99 in late]
    print(table(("lateness of level 1", "p50 ms", "p99 ms"), shown), end="\n\n", flush=True)


async def _print_sends(found: dict[float, Running], sends: int) -> None:
    rows: list[tuple[str, ...]] = []
    for turn in range(3):
        for senders in (1, 64, 256):
            for switch_s, broker in found.items():
                cost, p50, p99 = await cost_of_sends(broker, senders, sends if senders > 1 else sends // 8)
                name = f"{senders} senders, switch {switch_s * 1000:g} ms, turn {turn + 1}"
                rows.append((name, f"{cost:.0f}", f"{p50:.2f}", f"{p99:.2f}"))
    print(table(("sync sends of 1 KiB", "µs of CPU", "p50 ms", "p99 ms"), sorted(rows)), end="\n\n", flush=True)


def main() -> None:
    """Run everything once, or the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--sends", type=int, default=8000, help="per measurement with 64 and 256 senders")
    parser.add_argument("--switch", type=float, default=None, help="seconds, measured beside the default of 0.005")
    chosen = parser.parse_args()
    print(machine(), end="\n\n")
    switches = [0.005, *([chosen.switch] if chosen.switch else [])]
    trio.run(partial(measure, switches, chosen.sends, chosen.parts))


if __name__ == "__main__":
    main()
