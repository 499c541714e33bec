"""The whole path once, on real input: this machine's vitals become rows in Spark, and every row is checked.

    make run               about a minute; exit code 0, 1 when the counts differ, 2 when it cannot start
    make run KEEP=1        the same, then everything stays up until Ctrl-C

Three processes are started as a user would start them (the box, the central gateway, the streaming job); this one is
the producer. Everything it writes lies below ./var.
"""

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import measurements
import trio
from children import Child, StartFailed, Stopped, stop_by_signal, taken

from netstack.client import ClientError, Message, Producer
from storage_driver.retention.rules import RetentionRules
from uplink_spark.centre.gateway import used_share
from uplink_spark.centre.hub import PAUSE_RATIO

ROOT = Path(__file__).parent.parent.parent
EVERY_S = 0.1  # between two readings of all vitals
SETTLE_S = 60  # how long Spark may take to show more, once it has shown something
FIRST_S = 600  # and to show the first: a busy machine needs minutes for the first micro-batch
BOX_TOML = """# Written by the demonstration. The box waits at most a second before a piece leaves for the gateway.
[box]
name = "{name}"
[uplink]
max_delay_s = 1.0
"""


@dataclass(slots=True)
class Tally:
    """What this run knows so far."""

    sent: int = 0
    acknowledged: list[str] = field(default_factory=list)  # message ids
    failed: list[str] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)  # the newest of the stream

    @property
    def in_spark(self) -> int:
        return sum(row["messages"] for row in self.table)


def line_of(seconds: float, tally: Tally) -> str:
    return (
        f"{seconds:5.1f} s   sent {tally.sent:6,}   acknowledged {len(tally.acknowledged):6,}   "
        f"in Spark {tally.in_spark:6,}"
    )


def show(text: str, *, lasting: bool = True) -> None:
    """Print a line; one that is not lasting is written over by the next, where there is a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if lasting else "", flush=True)
    else:
        print(text, flush=True)


async def send_one(producer: Producer, measured: measurements.Measurement, run: str, tally: Tally) -> None:
    """Send one measurement and note its acknowledgement; a failure is noted, not raised: the verdict names it."""
    body = {"at_ms": time.time_ns() // 1_000_000, "of": measured.of, "value": measured.value, **measured.more}
    message = Message(
        measured.topic,
        json.dumps(body).encode(),
        tags=measured.of.rstrip("0123456789"),
        keys=measured.of,
        properties={"run": run, "unit": measurements.UNITS[measured.topic]},
    )
    tally.sent += 1
    try:
        result = await producer.send(message)
    except ClientError as error:
        tally.failed.append(f"{measured.topic}: {error}")
    else:
        tally.acknowledged.append(result.message_id)


async def greet(producer: Producer, run: str, tally: Tally) -> None:
    """Send one message and wait until Spark shows it: the first micro-batch costs seconds that no later one does."""
    began = trio.current_time()
    await send_one(producer, measurements.Measurement("vitals_start", "demonstration", 0), run, tally)
    await settle(tally)
    there = "first message there after" if tally.in_spark else "first message still under way after"
    show(f"spark   {there} {trio.current_time() - began:.1f} s")


async def produce(producer: Producer, run: str, seconds: float, tally: Tally) -> None:
    """Read all vitals ten times a second and send them, until the time is over and every send has its answer."""
    meter = measurements.Meter()
    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        for reading in range(1, int(seconds / EVERY_S) + 1):
            await trio.sleep_until(began + reading * EVERY_S)
            for measured in meter.read():
                nursery.start_soon(send_one, producer, measured, run, tally)


async def report_progress(began: float, tally: Tally) -> None:
    every_s = 0.5 if sys.stdout.isatty() else 5
    while True:
        await trio.sleep(every_s)
        show(line_of(trio.current_time() - began, tally), lasting=False)


async def follow(job: Child, tally: Tally, checked: trio.MemorySendChannel[dict[str, int]]) -> None:
    """Take in what the streaming job says."""
    async for line in job.lines():
        said = json.loads(line)
        if "table" in said:
            tally.table = said["table"]
        elif "check" in said:
            await checked.send(said["check"])


def print_table(table: list[dict[str, Any]]) -> None:
    heads = f"{'topic':20}{'window':10}{'messages':>9}{'bytes':>10}{'average':>12}{'p99':>10}"
    show(f"{heads}  {'unit':6}{'to Spark, ms':>20}")
    for row in table:
        unit = measurements.UNITS.get(row["topic"], "")
        numbers = [f"{row[name]:.1f}" if row[name] is not None else "-" for name in ("vital_avg", "vital_p99")]
        latency = f"{row['latency_ms_avg']:.0f} (p99 {row['latency_ms_p99']:.0f})"
        show(
            f"{row['topic']:20}{row['start']:10}{row['messages']:>9,}{row['bytes']:>10,}{numbers[0]:>12}{numbers[1]:>10}"
            f"  {unit:6}{latency:>20}"
        )


def verdict(tally: Tally, found: dict[str, int], why: Callable[[], str]) -> int:
    """Print the closing sentence and return the exit code: 0 when everything acknowledged is there exactly once."""
    acknowledged, rows = len(tally.acknowledged), found["rows"]
    relation = "=" if acknowledged == rows else "but"
    streamed = "" if rows == tally.in_spark else f" ({tally.in_spark:,} of them counted by the stream so far)"
    show(
        f"\n{acknowledged:,} acknowledged {relation} {rows:,} rows in Spark{streamed}, "
        f"{found['missing']} missing, {found['double']} double, {found['gaps']} gaps"
    )
    if tally.failed:
        show(f"{len(tally.failed)} sends failed, the first: {tally.failed[0]}")
    if found["unacknowledged"]:
        show(f"{found['unacknowledged']} rows of sends that got no answer: allowed, delivery is at least once")
    wrong = found["missing"] or found["double"] or found["gaps"] or tally.failed
    good = not wrong and rows - found["unacknowledged"] == acknowledged and tally.in_spark == rows and acknowledged > 0
    show("everything arrived, exactly once" if good else "MISMATCH: see above; logs are in var/log")
    if not good and (cause := why()):
        show(f"cause: {cause}")
    elif not good and not wrong and acknowledged == rows > tally.in_spark:
        show(
            f"nothing is lost: this machine is so busy that the stream made no progress for {SETTLE_S} s; run it again"
        )
    return 0 if good else 1


async def settle(tally: Tally) -> None:
    """Wait until the stream has counted what was acknowledged, or has not moved for SETTLE_S (FIRST_S at first)."""
    seen, since = -1, trio.current_time()
    while tally.in_spark < len(tally.acknowledged):
        if tally.in_spark != seen:
            seen, since = tally.in_spark, trio.current_time()
        elif trio.current_time() - since > (SETTLE_S if tally.in_spark else FIRST_S):
            return
        await trio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Place:
    """Folders and ports of a run."""

    options: argparse.Namespace
    run: str
    since_ms: int

    @property
    def var(self) -> Path:
        return Path(self.options.var)

    def child(self, name: str, *command: str) -> Child:
        (self.var / "log").mkdir(parents=True, exist_ok=True)
        return Child(name, [sys.executable, *command], self.var / "log" / f"{name}.log")

    def gateway(self) -> Child:
        where = "--landing", str(self.landing), "--listen", f"127.0.0.1:{self.options.gateway_port}"
        return self.child("gateway", "-m", "uplink_spark", "gateway", *where)

    def box(self) -> Child:
        toml = self.var / "box.toml"
        toml.write_text(BOX_TOML.format(name="demo"))
        ports = ["--namesrv-port", str(self.options.namesrv_port), "--broker-port", str(self.options.broker_port)]
        more = [
            "--config",
            str(toml),
            "--data",
            str(self.var / "box"),
            "--uplink",
            f"127.0.0.1:{self.options.gateway_port}",
        ]
        return self.child("box", "-m", "appliance", "serve", *ports, *more)

    def job(self) -> Child:
        script = str(Path(__file__).with_name("vitals_job.py"))
        return self.child(
            "spark",
            script,
            *("--landing", str(self.landing), "--scratch", str(self.var / "tmp")),
            *("--run", self.run, "--since-ms", str(self.since_ms)),
        )

    def obstacle(self) -> str:
        """What on this machine keeps messages from arriving, empty when nothing is seen."""
        used = used_share(self.var)
        if used < PAUSE_RATIO:
            return ""
        return (
            f"the disk under {self.var.absolute()} is {used:.1%} full: from {PAUSE_RATIO:.0%} on a gateway lands "
            f"nothing, above {RetentionRules().refuse_percent} % a box refuses messages. Free some space, or choose a "
            f"folder on another disk: make run ARGS='--var DIR'"
        )

    @property
    def landing(self) -> Path:
        return self.var / "landing"

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.options.namesrv_port}"


async def start_all(place: Place, nursery: trio.Nursery) -> Child:
    """Start gateway, box and job; return the job once all are ready. Raises StartFailed."""
    for child in (place.gateway(), place.box()):
        await nursery.start(child.run)
        show(f"{child.name:8}{await child.wait_line('ready', 30)}")
        nursery.start_soon(child.watch)
    job = place.job()
    await nursery.start(job.run)
    show("spark   starting the streaming job (some ten seconds) ...", lasting=False)
    began = trio.current_time()
    await job.wait_line('{"ready"', 600)
    show(f"spark   streaming job ready in {trio.current_time() - began:.1f} s")
    return job


async def demonstrate(place: Place) -> int:
    """Run the whole path and return the exit code."""
    tally = Tally()
    to_verdict, checks = trio.open_memory_channel[dict[str, int]](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_by_signal)
        job = await start_all(place, nursery)
        async with trio.open_nursery() as watching:
            watching.start_soon(follow, job, tally, to_verdict)
            async with Producer("vitals", place.namesrv) as producer:
                await greet(producer, place.run, tally)
                began = trio.current_time()
                watching.start_soon(report_progress, began, tally)
                await produce(producer, place.run, place.options.seconds, tally)
            await settle(tally)
            show(line_of(trio.current_time() - began, tally))
            ids = place.var / "acknowledged.txt"
            ids.write_text("\n".join(tally.acknowledged))
            await job.say(f"check {ids}")
            found = await count(checks, place)
            watching.cancel_scope.cancel()
        print_table(tally.table)
        code = verdict(tally, found, place.obstacle)
        if place.options.keep:
            show(hints(place))
            await job.watch()
        nursery.cancel_scope.cancel()
    return code


async def count(checks: trio.MemoryReceiveChannel[dict[str, int]], place: Place) -> dict[str, int]:
    """Return what the job found when it compared every id. Raises StartFailed when it takes too long."""
    with trio.move_on_after(SETTLE_S):
        return await checks.receive()
    raise StartFailed(f"spark did not finish counting within {SETTLE_S} s; its log: {place.var}/log/spark.log")


def hints(place: Place) -> str:
    """Return how to use what is up: a client's address in four languages, and how to let other machines in."""
    return f"""
Everything stays up until Ctrl-C. NameServer {place.namesrv}; logs in {place.var}/log.
Health of the box: .venv/bin/rocketbox status --data {place.var}/box

Java    producer.setNamesrvAddr("{place.namesrv}");
Go      rocketmq.NewProducer(producer.WithNameServer([]string{{"{place.namesrv}"}}))
Node    new Producer({{ nameSrv: '{place.namesrv}', producerGroup: 'g', ... }})          (npm: ali-ons)
Python  async with Producer("g", "{place.namesrv}") as producer:                       (netstack.client, trio)

It listens on this machine only. To let other machines in, stop this and start the box by itself with
    printf '[listen]\\nhost = "0.0.0.0"\\n' > {place.var}/open.toml
    .venv/bin/python -m appliance serve --config {place.var}/open.toml --data {place.var}/box
and give the clients HOST:{place.options.namesrv_port}; routes name the address on which a client reached the box.
"""


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="how long the producer sends (20)")
    parser.add_argument("--keep", action="store_true", help="leave everything up until Ctrl-C")
    parser.add_argument("--var", default="var", help="folder for everything it writes (var)")
    parser.add_argument("--namesrv-port", type=int, default=9876)
    parser.add_argument("--broker-port", type=int, default=10911)
    parser.add_argument("--gateway-port", type=int, default=10940)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = options_of(arguments)
    asked = (taken(getattr(options, f"{name}_port"), f"--{name}-port") for name in ("namesrv", "broker", "gateway"))
    if complaints := [complaint for complaint in asked if complaint]:
        print(*complaints, sep="\n", file=sys.stderr)
        return 2
    try:
        Path(options.var).mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        show(f"{wrong.filename}: {wrong.strerror}; it must be writable, or choose: make run ARGS='--var DIR'")
        return 2
    place = Place(options, secrets.token_hex(4), time.time_ns() // 1_000_000)
    if obstacle := place.obstacle():
        show(obstacle)
        return 2
    show(
        f"Starts a box, a gateway and Spark, sends this machine's vitals for {options.seconds:g} s and counts them in "
        f"Spark: about {options.seconds + 40:.0f} s, longer on a busy machine."
    )
    code = 1
    try:
        code = trio.run(partial(demonstrate, place))
    except* (StartFailed, ClientError) as failures:
        show(f"\n{first(failures)}")
    except* OSError as failures:
        failure = first(failures)
        if not (isinstance(failure, OSError) and failure.filename):
            raise
        show(f"{failure.filename}: {failure.strerror}; it must be writable, or choose: make run ARGS='--var DIR'")
        code = 2
    except* (Stopped, KeyboardInterrupt):
        show("\nstopped")
        code = 0 if options.keep else 130
    return code


def first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what lies innermost in a group of groups: the first cause."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
