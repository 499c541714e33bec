"""Play many seeds, print what they did as a table; `--replay SEED` prints the schedule of one.

make group-sim plays a million. A seed that fails is printed with its schedule, and the run ends with status 1. `--kept
FILE`: results stand in a file, a line for PIECE seeds; what it has of the same core and simulation is not played again.
"""

import argparse
import json
import multiprocessing
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.group_sim.compiled import FINDER, digest  # first: it decides what the others are
from tests.group_sim.records import Fault
from tests.group_sim.schedules import LOCAL, SHAPES, Played, play, shape_of

PIECE = 500
LAST_LINES = 120
Sums = dict[str, list[int]]


def schedule(seed: int, lines: int = LAST_LINES) -> str:
    """Return the end of a seed's schedule, and its fault."""
    trace: list[str] = []
    try:
        play(seed, trace=trace)
    except Fault as fault:
        trace.append(f"FAULT {fault}")
    return "\n".join([f"seed {seed}, {shape_of(seed).name}", *trace[-lines:]])


def play_piece(first: int) -> tuple[int, Sums, float, str]:
    """Return, of some seeds, the first, sums per shape, the processor time, the schedule of the first that failed."""
    began, sums = time.process_time(), Sums()
    for seed in range(first, first + PIECE):
        try:
            played = play(seed)
        except Fault:
            return first, sums, time.process_time() - began, schedule(seed)
        add(sums, played)
    return first, sums, time.process_time() - began, ""


def add(sums: Sums, played: Played) -> None:
    """Add what a seed did: seeds, steps, faults, terms, records written, records acknowledged."""
    row = sums.setdefault(played.shape, [0] * 6)
    values = (1, played.steps, played.faults, played.terms, played.writes, played.committed)
    for at, value in enumerate(values):
        row[at] += value


def table(sums: Sums) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| group | seeds | steps | faults | terms | records | acknowledged |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for shape in (*SHAPES, LOCAL):
        if shape.name in sums:
            row = sums[shape.name]
            shown = [f"{value:,}" for value in row[:5]] + [f"{row[5]:,}" if shape.strict else "not counted"]
            yield f"| {shape.name} | {' | '.join(shown)} |"
    totals = [sum(row[at] for row in sums.values()) for at in range(6)]
    yield f"| all | {' | '.join(f'{value:,}' for value in totals)} |"


class Results:
    """Sums of all that was played, and the file in which they stand, if any."""

    def __init__(self, kept: Path | None) -> None:
        self.kept, self.sums, self.spent_s, self.played = kept, Sums(), 0.0, set[int]()
        self._of = digest()
        if kept is not None and kept.exists():
            for row in map(json.loads, kept.read_text().splitlines()):
                if row["of"] == self._of:
                    self._take(row["first"], row["sums"], row["s"])

    def note(self, first: int, sums: Sums, spent_s: float) -> None:
        """Add a piece."""
        self._take(first, sums, spent_s)
        if self.kept is not None:
            with self.kept.open("a") as file:
                file.write(json.dumps({"of": self._of, "first": first, "s": round(spent_s, 3), "sums": sums}) + "\n")

    def _take(self, first: int, sums: Sums, spent_s: float) -> None:
        if first in self.played:
            return
        self.played.add(first)
        self.spent_s += spent_s
        for name, row in sums.items():
            self.sums[name] = [a + b for a, b in zip(self.sums.get(name, [0] * 6), row, strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--kept", type=Path, help="file of the results")
    parser.add_argument("--replay", type=int)
    given = parser.parse_args(arguments)
    if given.replay is not None:
        print(schedule(given.replay, 1_000_000))
        return 0
    began, results = time.monotonic(), Results(given.kept)
    pieces = [first for first in range(given.first, given.first + given.seeds, PIECE) if first not in results.played]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for first, sums, seconds, failed in pool.imap_unordered(play_piece, pieces):
            if failed:
                print(failed)
                return 1
            results.note(first, sums, seconds)
            if time.monotonic() - began > given.minutes * 60:
                break
    print("\n".join(table(results.sums)))
    how = "compiled" if FINDER.used else "not compiled"
    print(f"\n{results.spent_s:.0f} s of processor time, Python {platform.python_version()}, {how}, no fault")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
