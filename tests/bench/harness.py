"""What every bench prints around its figures, and the order in which it takes them."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import psutil

import appliance.compiled

T = TypeVar("T")


def machine() -> str:
    """Return one line: the machine, whose Python, load and pace of this minute, compiled modules or why not."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    memory = psutil.virtual_memory().total / 2**30
    why = appliance.compiled.why_pure()
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()} of {sys.base_prefix}, "
        f"load {os.getloadavg()[0]:.1f}, a million additions {pace_ms():.0f} ms, "
        f"{f'PURE PYTHON ({why})' if why else 'compiled modules'}"
    )


def pace_ms() -> float:
    """Return the processor time that a million additions take, the least of three: how slow this minute is.

    Where others share the processor, processor time grows with what they do. Divide by this to compare two hours.
    """
    took = []
    for _ in range(3):
        began, total = time.thread_time(), 0
        for number in range(1_000_000):
            total += number
        took.append(time.thread_time() - began)
    return min(took) * 1000


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds. Raises psutil.Error when it is gone."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def in_turn(contenders: Sequence[T], number: int) -> Sequence[T]:
    """Return the contenders in the order of a round: each begins one after the other.

    A disk that was left alone takes more for a while than one that was just written to: who always comes first is
    favoured, by up to a third.
    """
    at = number % len(contenders)
    return [*contenders[at:], *contenders[:at]]


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows under heads, the first column to the left, the others to the right."""
    lines = [list(map(str, heads)), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    aligned = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in aligned)
