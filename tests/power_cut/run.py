"""A million crash states, or as many as it is told: writes the table of docs/durability.md.

Exit code 1 when an acknowledged message was lost, a phantom appeared or a start was refused. Interrupted (Ctrl-C,
SIGTERM) it writes the table of the workloads that are done.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.power_cut.harness import Tally, cut_everywhere

STATES_PER_WORKLOAD = 2500
MESSAGES = 250
TABLE = Path(__file__).parents[2] / "docs" / "durability.md"
BEGIN, END = "<!-- make power-cut: begin -->\n", "<!-- make power-cut: end -->\n"
TEXT = """| | |
| --- | --- |
| crash states | {states:,} |
| acknowledged messages lost | {lost} |
| starts refused | {refused} |
| phantom messages, wrong entries, other broken promises | {other} |
| workloads (seeds {first} to {last}) | {workloads} |
| disk steps recorded | {steps:,} |
| messages acknowledged | {acknowledged:,} |
| date, duration | {date}, {minutes:.0f} min in {processes} process{es}, {processor_ms:.1f} ms of CPU time a state |
| code | {code} |
{failures}"""


def one(seed: int, states: int) -> Tally:
    """Check the crash states of one workload."""
    tally = Tally()
    cut_everywhere(seed, MESSAGES, states, tally)
    return tally


def run_many(
    states: int, first_seed: int, *, per_workload: int = STATES_PER_WORKLOAD, processes: int = 0, show: bool = True
) -> Tally:
    """Spread the states over workloads and processors; an interrupt ends it with what is done."""
    total, began = Tally(), time.monotonic()
    seeds = range(first_seed, first_seed + max(1, states // per_workload))
    with ProcessPoolExecutor(processes or os.cpu_count() or 1, initializer=ignore_interrupts) as pool:
        try:
            for tally in pool.map(partial(one, states=per_workload), seeds):  # in order: what is done has no gap
                total.workloads += 1
                total.states += tally.states
                total.steps += tally.steps
                total.acknowledged += tally.acknowledged
                total.failures += tally.failures
                if show:
                    _show(total, tally, states, time.monotonic() - began)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            print(f"\ninterrupted after {total.states:,} states", file=sys.stderr)
    return total


def ignore_interrupts() -> None:
    """Leave it to the process that collects: it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _show(total: Tally, newest: Tally, states: int, took_s: float) -> None:
    for text in newest.failures:
        print(f"\n{text}", file=sys.stderr, flush=True)
    pace = total.states / took_s
    left = (states - total.states) / pace / 60
    text = (
        f"{total.states:>9,} of {states:,} states, {len(total.failures)} failures, {pace:.0f}/s, {left:.0f} min left "
    )
    print(f"\r{text}", end="", file=sys.stderr, flush=True)


def code_of_this_run() -> str:
    """Return which commit is run, and whether the store was changed since."""
    here = {"cwd": TABLE.parents[1], "capture_output": True, "text": True, "check": False}
    try:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **here).stdout.strip()  # type: ignore[call-overload]
        changed = subprocess.run(["git", "status", "--porcelain", "storage_driver"], **here).stdout.strip()  # type: ignore[call-overload]
    except OSError:
        return "unknown"
    return (f"commit {commit}" if commit else "unknown") + (" and changes" if changed else "")


def _processor_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main(arguments: list[str]) -> int:
    """Run and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_cut.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("states", nargs="?", type=int, default=1_000_000)
    parser.add_argument("first", nargs="?", type=int, default=1, help="seed of the first workload")
    parser.add_argument("processes", nargs="?", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    states, first, processes = given.states, given.first, given.processes
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what is in the background deaf to the first
        signal.signal(number, signal.default_int_handler)
    began, code = time.monotonic(), code_of_this_run()
    total = run_many(states, first, processes=processes)
    lost = [text for text in total.failures if "acknowledged" in text]
    refused = [text for text in total.failures if "refused" in text]
    shown = "\n".join(f"* {text}" for text in total.failures[:50])
    before, _, rest = TABLE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    table = TEXT.format(
        states=total.states,
        lost=len(lost),
        refused=len(refused),
        other=len(total.failures) - len(lost) - len(refused),
        first=first,
        last=first + total.workloads - 1,
        workloads=total.workloads,
        steps=total.steps,
        acknowledged=total.acknowledged,
        date=time.strftime("%Y-%m-%d"),
        minutes=(time.monotonic() - began) / 60,
        processes=processes,
        es="es" if processes > 1 else "",
        processor_ms=_processor_s() * 1000 / max(1, total.states),
        code=code,
        failures=f"\nFailures:\n{shown}\n" if shown else "",
    )
    TABLE.write_text(f"{before}{BEGIN}{table}{END}{after}")
    print(f"\n{total.states:,} states, {len(total.failures)} failures; table in {TABLE}", file=sys.stderr)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
