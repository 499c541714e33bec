"""Play many seeds, print what they did as a table; `--replay SEED` prints the schedule of one.

make group-sim plays a million. A seed that fails is printed with its schedule, and the run ends with status 1.
"""

import argparse
import multiprocessing
import platform
import time
from collections.abc import Iterator, Sequence

from tests.group_sim.records import Fault
from tests.group_sim.schedules import LOCAL, SHAPES, Played, play, shape_of

PIECE = 500
LAST_LINES = 120


def schedule(seed: int, lines: int = LAST_LINES) -> str:
    """Return the end of a seed's schedule, and its fault."""
    trace: list[str] = []
    try:
        play(seed, trace=trace)
    except Fault as fault:
        trace.append(f"FAULT {fault}")
    return "\n".join([f"seed {seed}, {shape_of(seed).name}", *trace[-lines:]])


def play_piece(first: int) -> tuple[dict[str, list[int]], float, str]:
    """Return the sums per shape of some seeds, the processor time, and the schedule of the first that failed."""
    began, sums = time.process_time(), dict[str, list[int]]()
    for seed in range(first, first + PIECE):
        try:
            played = play(seed)
        except Fault:
            return sums, time.process_time() - began, schedule(seed)
        add(sums, played)
    return sums, time.process_time() - began, ""


def add(sums: dict[str, list[int]], played: Played) -> None:
    """Add what a seed did: seeds, steps, faults, terms, records written, records acknowledged."""
    row = sums.setdefault(played.shape, [0] * 6)
    values = (1, played.steps, played.faults, played.terms, played.writes, played.committed)
    for at, value in enumerate(values):
        row[at] += value


def table(sums: dict[str, list[int]]) -> Iterator[str]:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--replay", type=int)
    given = parser.parse_args(arguments)
    if given.replay is not None:
        print(schedule(given.replay, 1_000_000))
        return 0
    began, spent, sums = time.monotonic(), 0.0, dict[str, list[int]]()
    pieces = range(given.first, given.first + given.seeds, PIECE)
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for found, seconds, failed in pool.imap_unordered(play_piece, pieces):
            if failed:
                print(failed)
                return 1
            spent += seconds
            for name, row in found.items():
                sums[name] = [a + b for a, b in zip(sums.get(name, [0] * 6), row, strict=True)]
            if time.monotonic() - began > given.minutes * 60:
                break
    print("\n".join(table(sums)))
    minutes = (time.monotonic() - began) / 60
    print(f"\n{minutes:.0f} min, {spent:.0f} s of processor time, Python {platform.python_version()}, no fault")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
