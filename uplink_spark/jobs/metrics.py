"""Figures of a job as Prometheus text in a file, for the node exporter's textfile collector."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BUCKETS_S = (0.5, 1, 2, 5, 10, 30, 60, 300)


@dataclass(slots=True)
class JobMetrics:
    """What a job counts; `text` is the exposition format."""

    consumer: str
    rows: Counter[str] = field(default_factory=Counter)  # by table
    conflicts: int = 0
    lag_entries: int = 0
    lag_seconds: float = 0.0
    batches_s: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    batch_sum_s: float = 0.0

    def note_batch(self, seconds: float) -> None:
        place = next((n for n, most in enumerate(BUCKETS_S) if seconds <= most), len(BUCKETS_S))
        self.batches_s[place] += 1
        self.batch_sum_s += seconds

    def text(self) -> str:
        consumer = f'{{consumer="{self.consumer}"}}'
        lines = _metric(
            "manifest_lag_entries", "gauge", "Landed ranges not yet in the table", {consumer: self.lag_entries}
        )
        lines += _metric("manifest_lag_seconds", "gauge", "Age of the oldest of them", {consumer: self.lag_seconds})
        by_table = {f'{{table="{table}"}}': count for table, count in sorted(self.rows.items())}
        lines += _metric("rows_total", "counter", "Rows committed since the job began", by_table)
        lines += _metric(
            "commit_conflicts_total", "counter", "Versions that another writer committed first", {"": self.conflicts}
        )
        return "\n".join([*lines, *self._histogram(), ""])

    def _histogram(self) -> list[str]:
        name, total = "rocketbox_spark_batch_seconds", 0
        lines = [f"# HELP {name} Time to read and commit a batch", f"# TYPE {name} histogram"]
        for most, count in zip([*map(str, BUCKETS_S), "+Inf"], self.batches_s, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{most}"}} {total}')
        return [*lines, f"{name}_sum {self.batch_sum_s:g}", f"{name}_count {total}"]

    def write(self, path: str | None) -> None:
        """Replace the file, so that a collector reads the old or the new figures."""
        if path is None:
            return
        temporary = Path(f"{path}.{os.getpid()}.tmp")
        temporary.write_text(self.text())
        os.replace(temporary, path)


def _metric(name: str, kind: str, what: str, values: Mapping[str, float]) -> list[str]:
    full = f"rocketbox_spark_{name}"
    lines = [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
    return lines + [f"{full}{labels} {value:g}" for labels, value in values.items()]
