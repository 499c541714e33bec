"""How long something took, counted in the buckets of a Prometheus histogram."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Seconds since the start: how many up to each edge, their sum and their number; none is ever forgotten."""

    __slots__ = ("counts", "number", "total_s")

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self.counts, self.total_s, self.number = [0] * len(BUCKETS_S), 0.0, 0
        for value in seconds:
            self.observe(value)

    def observe(self, seconds: float) -> None:
        self.total_s += seconds
        self.number += 1
        at = bisect_left(BUCKETS_S, seconds)
        if at < len(BUCKETS_S):
            self.counts[at] += 1

    def __iadd__(self, other: Histogram) -> Histogram:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total_s, self.number = self.total_s + other.total_s, self.number + other.number
        return self

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Observe how long the block takes, also when it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - began)
