"""What became of the tests of somebody else's suite: read from its runner, merged over runs, as tables."""

from collections.abc import Iterable
from typing import NamedTuple


class Verdict(NamedTuple):
    """What became of one test."""

    suite: str
    name: str
    verdict: str  # passed, failed, ignored
    reason: str


def merged(*runs: Iterable[Verdict]) -> list[Verdict]:
    """Return what became of each test at its last run, in order of the classes."""
    last = {each[:2]: each for run in runs for each in run}
    return sorted(last.values())


def passed_late(first: Iterable[Verdict], second: Iterable[Verdict]) -> list[str]:
    """Return the tests that failed at first and passed when they ran again."""
    failed = {each[:2] for each in first if each.verdict == "failed"}
    return sorted(f"{each.suite}.{each.name}" for each in second if each.verdict == "passed" and each[:2] in failed)


def count(found: Iterable[Verdict], verdict: str) -> int:
    """Return how many tests ended so."""
    return sum(each.verdict == verdict for each in found)


def table(found: list[Verdict]) -> str:
    """Return how many tests of each class passed."""
    lines = ["| class | passed | failed | left out by Apache |", "| --- | --- | --- | --- |"]
    for suite in dict.fromkeys(each.suite for each in found):
        mine = [each for each in found if each.suite == suite]
        counts = " | ".join(str(count(mine, verdict)) for verdict in ("passed", "failed", "ignored"))
        lines.append(f"| {suite} | {counts} |")
    return "\n".join(lines)
