"""What the box's process used over time, and whether it grew."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

WARM_SHARE = 0.25  # of the run: caches fill, tables find their size


class Sample(NamedTuple):
    """One look: bytes, descriptors, threads, processor seconds, totals of the box, what waits."""

    at_s: float
    memory: int
    descriptors: int
    threads: int
    cpu_s: float
    messages_in: int
    messages_out: int
    unshipped: int
    behind: int
    sync_s: float


def warm(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples after the first quarter of the run."""
    if not samples:
        return []
    begin = samples[0].at_s + WARM_SHARE * (samples[-1].at_s - samples[0].at_s)
    return [sample for sample in samples if sample.at_s >= begin]


def growth(samples: Sequence[Sample], name: str) -> float:
    """Return the slope of a figure per second after the warm-up: Theil-Sen, so that peaks do not count."""
    looks = warm(samples)
    step = max(1, len(looks) // 200)
    points = [(look.at_s, float(getattr(look, name))) for look in looks[::step]]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for at, earlier in enumerate(points)
        for later in points[at + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0


def ends(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Return the mean of a figure in the first and in the last tenth after the warm-up."""
    looks = warm(samples)
    tenth = max(1, len(looks) // 10)
    values = [float(getattr(look, name)) for look in looks]
    return (fmean(values[:tenth]), fmean(values[-tenth:])) if values else (0.0, 0.0)
