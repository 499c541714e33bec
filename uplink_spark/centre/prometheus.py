"""Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from uplink_spark.centre.histogram import BUCKETS_S, Histogram


def sample(name: str, value: float, labels: Mapping[str, object] | None = None) -> str:
    """Return one line; label values are escaped as the text format wants it."""
    if not labels:
        return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
    pairs = (f'{key}="{_escape(str(text))}"' for key, text in labels.items())
    return f"{name}{{{','.join(pairs)}}} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def counter_lines(name: str, label: str, counts: Mapping[str, int]) -> list[str]:
    return [f"# TYPE {name} counter", *(sample(name, count, {label: key}) for key, count in sorted(counts.items()))]


def histogram_lines(name: str, parts: Iterable[Histogram]) -> list[str]:
    """Return the lines of several histograms added up."""
    whole = Histogram()
    for part in parts:
        whole += part
    lines = [f"# TYPE {name} histogram"]
    for edge, up_to in zip(BUCKETS_S, accumulate(whole.counts), strict=True):
        lines.append(sample(f"{name}_bucket", up_to, {"le": f"{edge:g}"}))
    lines.append(sample(f"{name}_bucket", whole.number, {"le": "+Inf"}))
    return [*lines, sample(f"{name}_sum", whole.total_s), sample(f"{name}_count", whole.number)]
