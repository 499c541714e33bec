"""What others ask of the shipper: counters for the metrics, a snapshot for commands and doctor."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_NAMES, OTHER = 20, "other"  # of what a gateway may call anything: as many as a metric shows


def count(counts: Counter[str], name: str) -> None:
    """Count one more of a name, or of all others together where there are many."""
    counts[name if name in counts or len(counts) < MOST_NAMES else OTHER] += 1


@dataclass(slots=True)
class ShipperCounts:
    """Counters of the metrics."""

    connects: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # by cause
    pieces: Counter[str] = field(default_factory=Counter)  # by kind
    refused: Counter[str] = field(default_factory=Counter)  # by code
    gaps: Counter[str] = field(default_factory=Counter)  # declared, by class
    gap_bytes: Counter[str] = field(default_factory=Counter)
    raw_bytes: int = 0
    wire_bytes: int = 0
    repeat_bytes: int = 0  # sent again without need: `dup` receipts


@dataclass(frozen=True, slots=True)
class UplinkStatus:
    """A snapshot for `uplink status`, the metrics and doctor."""

    connected: bool
    connected_s: float
    address: str
    box: str
    epoch: int
    durable: int
    receipted_bytes: int
    unshipped_bytes: int
    backlog_bytes: int
    oldest_unshipped_s: float
    raw_rate: float  # receipted raw bytes a second
    wire_rate: float
    inflow: float
    cap_bytes: int  # 0: none
    eta_s: float  # -1: never at this rate
    quota_left_s: float  # until the quota is reached at these rates; -1: never
    last_receipt_s: float | None
    gaps_undelivered: int
    gaps: int
    paused: bool
    gateway_full: bool
    month_bytes: int
    alarms: dict[str, str]
    last_error: str
    counts: ShipperCounts
    certificate_left_s: float | None = None  # until the box's certificate ends; None: it has none


def quota_left_s(quota_bytes: int, unshipped: int, growth: float) -> float:
    """Return the seconds until unshipped bytes that grow by so much a second reach the quota; -1: never."""
    if not quota_bytes or (growth <= 0 and unshipped < quota_bytes):
        return -1.0
    return max(0.0, (quota_bytes - unshipped) / growth) if growth > 0 else 0.0
