"""POP consumption by the stock Java client 5.5.0, on the box and on Apache's broker in turn, beside classic pulls.

    make bench BENCH=tests/bench/bench_pop.py ARGS='--messages 40000 --rounds 3'

Each load consumes the same messages with a group of its own. `cpu` is the broker's processor time per message.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.bench_beside_apache import Contender, apache, our_box, why_not
from tests.bench.harness import in_turn, machine, table
from tests.interop import jars

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(__file__).with_name("PopLoad.java")
LOADS = [("pull", 1), ("push-pop", 1), ("pop", 1), ("pop", 16), ("pop1", 1), ("pop1", 64)]
FEW = {"pop1": 8}  # a load that takes that part of the messages


class Load:
    """The Java program, compiled once."""

    def __init__(self, folder: Path) -> None:
        path = ":".join(map(str, jars.fetch("5.5.0")))
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
        self._command = [*jars.java_command(), "-Xmx512m", "-cp", f"{folder}:{path}", "PopLoad"]

    def run(self, contender: Contender, mode: str, threads: int, messages: int, group: str) -> dict[str, float]:
        """Run one load and return its figures, with the broker's processor time per message in µs."""
        before = contender.processor_s()
        arguments = [contender.namesrv, "pop_bench", str(messages), mode, str(threads), group]
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False, timeout=400)
        if done.returncode:
            raise RuntimeError(f"{mode} on {contender.name}: {done.stderr[-2000:]}")
        figures = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}
        figures["cpu_us"] = (contender.processor_s() - before) / messages * 1e6
        return figures


def report(contenders: list[Contender], loads: list[tuple[str, int]]) -> str:
    """Return the table: one line per load, throughput, p99 of a call and processor time side by side."""
    names = ("msg/s", "p99 ms", "cpu µs")
    heads = ["load", *(f"{c.name} {what}" for c in contenders for what in names), "ratio msg/s"]
    rows: list[list[object]] = []
    for load in loads:
        cells: list[object] = []
        for contender in contenders:
            p99 = contender.median(load, "p99_us") / 1000
            cells += [f"{contender.median(load, 'tps'):,.0f}", f"{p99:.1f}" if p99 else ""]
            cells.append(f"{contender.median(load, 'cpu_us'):.0f}")
        ratio = contenders[-1].median(load, "tps") / contenders[0].median(load, "tps")
        rows.append([f"{load[0]} {load[1]}", *cells, f"{ratio:.2f}"])
    return table(heads, rows)


def measure(contenders: list[Contender], load: Load, loads: list[tuple[str, int]], messages: int, rounds: int) -> None:
    """Take all figures, in turn."""
    for contender in contenders:
        load.run(contender, "fill", 1, messages, "none")
    for mode, threads in loads:
        for number in range(rounds):
            for contender in in_turn(contenders, number):
                count = messages // FEW.get(mode, 1) // (4 if (mode, threads) == ("pop1", 1) else 1)
                figures = load.run(contender, mode, threads, count, f"g_{mode}_{threads}_{number}")
                contender.figures.setdefault((mode, threads), []).append(figures)
                print(f"  {contender.name:14} {mode} {threads}: {figures}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=2, help="of every load, their median counts (2)")
    parser.add_argument("--loads", default="", help="some of pull:1,push-pop:1,pop:1,pop:16,pop1:1,pop1:64 (all)")
    parser.add_argument("--alone", action="store_true", help="the box without Apache's broker")
    options = parser.parse_args()
    loads = [load for load in LOADS if not options.loads or ":".join(map(str, load)) in options.loads.split(",")]
    if not options.alone and (reason := why_not()):
        print(f"skipped: {reason}")
        return 0
    print(machine(), flush=True)
    folder = ROOT / ".build" / "bench" / "pop"
    shutil.rmtree(folder, ignore_errors=True)
    load = Load(folder / "classes")
    with our_box(folder / "box") as box:
        if options.alone:
            measure([box], load, loads, options.messages, options.rounds)
            print(report([box], loads))
        else:
            with apache("5.5.0", folder / "apache") as other:
                measure([other, box], load, loads, options.messages, options.rounds)
                print(report([other, box], loads))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
