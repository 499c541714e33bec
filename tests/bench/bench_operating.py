"""What keeping strangers out and looking in cost: processor time per message and memory, off and on in one run.

`python tests/bench/bench_operating.py [--sends N] [--rounds R]`. Boxes run side by side and take turns: one with all
of it off, one that is looked at (metrics, status page, TLS beside plain text, own networks only), one whose clients
sign as well, one that in addition wants TLS. Costs are processor time of the box's own process.
"""

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from appliance.access.access import accounts_path, changing
from appliance.broker.access.accounts import Account, Accounts
from netstack.serving.channel import open_channel
from netstack.serving.tls import client_context
from netstack.wire.acl import sign
from tests.appliance.box import send
from tests.bench.bench_broker import Running, running
from tests.bench.harness import machine, table
from tests.ports import free_port

KEY, SECRET = "bench-key", "a-secret-of-the-bench"
LOOKS = 20
OFF = "[access]\nmode = 'open'\n[tls]\nmode = 'disabled'\n"
LOOKED_AT = "[page]\nport = {page}\n[metrics]\nport = {metrics}\n"
LOCKED = LOOKED_AT + "[access]\nmode = 'keys'\nadmin = 'keys'\n"
SECURED = LOCKED + "[tls]\nmode = 'enforcing'\n"


@dataclass(slots=True)
class Case:
    """One box, how its clients come, and what was measured."""

    name: str
    toml: str
    signed: bool = False
    tls: bool = False
    ports: dict[str, int] = field(default_factory=lambda: {"page": free_port(), "metrics": free_port()})
    costs_us: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    looks_ms: dict[str, float] = field(default_factory=dict)


CASES = (
    ("all of it off", OFF),
    ("looked at: metrics, page, TLS accepted", LOOKED_AT),
    ("and signed requests", LOCKED, True),
    ("and TLS", SECURED, True, True),
)


@contextmanager
def box(case: Case) -> Iterator[Running]:
    """Run the box of a case, with one account."""
    with tempfile.TemporaryDirectory(prefix="bench-operating-") as folder:
        account = Account(KEY, SECRET, admin=True)
        with changing(accounts_path(Path(folder))) as replace:
            replace(Accounts({KEY: account}))
        with running(0.005, case.toml.format(**case.ports), Path(folder)) as found:
            yield found


async def send_many(found: Running, case: Case, senders: int, sends: int) -> float:
    """Return µs of the box's processor time per sync send of 1 KiB."""

    async def one() -> None:
        for _ in range(sends // senders):
            command = send("T", bytes(1024))
            if case.signed:
                sign(command, KEY, SECRET)
            assert (await channel.ask(command, 30)).code == 0

    tls = client_context() if case.tls else None
    async with open_channel("127.0.0.1", found.port, tls=tls) as channel:
        before = found.cpu_s()
        async with trio.open_nursery() as nursery:
            for _ in range(senders):
                nursery.start_soon(one)
    return (found.cpu_s() - before) / sends * 1e6


def look(case: Case, name: str) -> None:
    """Ask for the metrics, or for what the page shows every five seconds."""
    path = "metrics" if name == "metrics" else "now"
    with urllib.request.urlopen(f"http://127.0.0.1:{case.ports[name]}/{path}", timeout=30) as answer:
        assert len(answer.read()) > 1000


def look_often(found: Running, case: Case) -> None:
    """Note the processor time of one scrape and of one refresh of the page."""
    for name in ("metrics", "page"):
        look(case, name)  # the first loads the libraries
        before = found.cpu_s()
        for _ in range(LOOKS):
            look(case, name)
        case.looks_ms[name] = (found.cpu_s() - before) / LOOKS * 1000


async def measure(sends: int, rounds: int, senders: int) -> list[Case]:
    """Return all cases with what was measured, in turns."""
    cases = [Case(*words) for words in CASES]
    with ExitStack() as stack:
        found = [stack.enter_context(box(case)) for case in cases]
        for number in range(rounds + 1):
            turn = list(zip(cases, found, strict=True))
            for case, each in turn[number % len(turn) :] + turn[: number % len(turn)]:
                cost = await send_many(each, case, senders, sends)
                if case.toml is not OFF:
                    look_often(each, case)
                if number:  # the first warms up
                    case.costs_us.append(cost)
                    case.memory_mib.append(each.memory_mib())
    return cases


def show(cases: list[Case]) -> None:
    """Print one row for each box, differences to the first."""
    off = cases[0]
    rows = []
    for case in cases:
        cost, memory = median(case.costs_us), case.memory_mib[-1]
        paired = median(on - without for on, without in zip(case.costs_us, off.costs_us, strict=True))
        more = (
            f"{paired:+.1f}",
            f"{paired / median(off.costs_us) * 100:+.0f} %",
            f"{memory - off.memory_mib[-1]:+.1f}",
        )
        looks = [f"{case.looks_ms[name]:.1f}" if name in case.looks_ms else "-" for name in ("metrics", "page")]
        rows.append((case.name, f"{cost:.1f}", *more[:2], f"{memory:.1f}", more[2], *looks))
    heads = ("a box", "µs a send", "more", "", "MiB", "more", "ms a scrape", "ms a refresh")
    print(table(heads, rows))


def main() -> None:
    """Measure and print; `--json` adds one line for programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sends", type=int, default=4000, help="per box and round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--senders", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    print(machine(), end="\n\n")
    cases = trio.run(partial(measure, chosen.sends, chosen.rounds, chosen.senders))
    show(cases)
    if chosen.json:
        said = [(case.name, case.costs_us, case.memory_mib, case.looks_ms) for case in cases]
        print(json.dumps(said))


if __name__ == "__main__":
    main()
