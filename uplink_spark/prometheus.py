"""Prometheus' text format, and the metrics of a box in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from uplink_spark.histogram import BUCKETS_S, Histogram
from uplink_spark.state import UplinkStatus

BOX_PREFIX = "rocketbox_uplink_"


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


def box_text(status: UplinkStatus) -> str:
    """Return the metrics of a box's shipper."""
    counts = status.counts
    values: dict[str, float] = {
        "connected": int(status.connected),
        "connects_total": counts.connects,
        "durable_bytes": status.durable,
        "receipted_bytes": status.receipted_bytes,
        "unshipped_bytes": status.unshipped_bytes,
        "backlog_bytes": status.backlog_bytes,
        "oldest_unshipped_seconds": status.oldest_unshipped_s,
        "raw_bytes_total": counts.raw_bytes,
        "wire_bytes_total": counts.wire_bytes,
        "repeat_bytes_total": counts.repeat_bytes,
        "month_wire_bytes": status.month_bytes,
        "rate_bytes": status.cap_bytes,
        "eta_seconds": status.eta_s,
        "quota_seconds_left": status.quota_left_s,
        "gaps_undelivered": status.gaps_undelivered,
        "paused": int(status.paused),
        "gateway_full": int(status.gateway_full),
    }
    if status.certificate_left_s is not None:
        values["certificate_expiry_seconds"] = status.certificate_left_s
    lines = [sample(BOX_PREFIX + name, value) for name, value in values.items()]
    for name, label, table in (
        ("connection_errors_total", "cause", counts.errors),
        ("pieces_total", "kind", counts.pieces),
        ("refused_total", "code", counts.refused),
        ("gaps_declared_total", "class", counts.gaps),
        ("gap_bytes_total", "class", counts.gap_bytes),
    ):
        lines += counter_lines(BOX_PREFIX + name, label, table)
    lines += [sample(f"{BOX_PREFIX}alarm", 1, {"name": name}) for name in sorted(status.alarms)]
    return "\n".join(lines) + "\n"
