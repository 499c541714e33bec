"""How fast and at what time the box may send: token bucket, weekly windows, monthly budget. No clock of its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from uplink_spark.config import CapWindow, Metered, UplinkConfig
from uplink_spark.errors import ConfigError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MIN_BURST = 64 * 1024
KBIT = 125  # bytes
UNLIMITED = 1 << 62
PIECE_OVERHEAD = 1024  # frame, header and index of a small piece that does not compress
SMALLEST_PIECE = 16 * 1024  # with less than that left of a month's budget nothing more is cut


class Bucket:
    """Bytes that may leave: fills at `rate` a second up to its burst; a rate of 0 is no cap."""

    def __init__(self, rate: float = 0, now: float = 0) -> None:
        self.rate, self._tokens, self._at = rate, float(max(MIN_BURST, rate)), now

    def set_rate(self, rate: float, now: float) -> None:
        self._refill(now)
        self.rate = rate
        self._tokens = min(self._tokens, self.burst)

    @property
    def burst(self) -> float:
        return max(MIN_BURST, self.rate)

    def _refill(self, now: float) -> None:
        self._tokens = min(self.burst, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now

    def take(self, length: int, now: float) -> float:
        """Take length bytes and return how many seconds to wait before they may leave."""
        if not self.rate:
            return 0.0
        self._refill(now)
        self._tokens -= length
        return max(0.0, -self._tokens / self.rate)


@dataclass(frozen=True, slots=True)
class WeeklyWindow:
    """A window as minutes of chosen days; one whose end is not after its begin runs past midnight."""

    days: frozenset[int]
    begin: int
    end: int
    kbit_s: int

    def holds(self, at: datetime) -> bool:
        minute = at.hour * 60 + at.minute
        if self.begin < self.end:
            return at.weekday() in self.days and self.begin <= minute < self.end
        yesterday = (at - timedelta(days=1)).weekday()
        return (at.weekday() in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)


def read_window(window: CapWindow) -> WeeklyWindow:
    """Return a window of the configuration. Raises ConfigError naming what is wrong."""
    days: set[int] = set()
    for part in window.days.lower().replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ConfigError(f"uplink.windows: days {window.days!r}; write mon-fri or sat,sun")
        begin, length = DAYS.index(first), (DAYS.index(last or first) - DAYS.index(first)) % 7
        days |= {(begin + step) % 7 for step in range(length + 1)}
    try:
        begin, end = (int(t[:2]) * 60 + int(t[3:]) for t in window.hours.split("-"))
    except ValueError as error:
        raise ConfigError(f"uplink.windows: hours {window.hours!r}; write 07:00-19:00") from error
    if not (0 <= begin <= 1440 and 0 <= end <= 1440):
        raise ConfigError(f"uplink.windows: hours {window.hours!r} are not valid times")
    return WeeklyWindow(frozenset(days), begin, end, window.kbit_s)


class Caps:
    """The rate in force: the lowest of the box's cap, the window and what the gateway asks."""

    def __init__(self, config: UplinkConfig) -> None:
        self._kbit_s, self._windows = config.kbit_s, [read_window(window) for window in config.windows]
        self.gateway_rate = 0  # bytes a second, 0: none

    def rate(self, local: datetime, *, clock_ok: bool) -> int:
        """Return bytes a second, 0 for no cap. Without a clock windows cannot be judged: the tightest cap applies."""
        windows = self._windows if not clock_ok else [w for w in self._windows if w.holds(local)]
        caps = [self._kbit_s * KBIT, self.gateway_rate, *(w.kbit_s * KBIT for w in windows)]
        return min((cap for cap in caps if cap), default=0)


@dataclass(frozen=True, slots=True)
class MonthUse:
    """Frame bytes on metered interfaces in a calendar month ("2026-11")."""

    month: str = ""
    wire_bytes: int = 0

    def add(self, month: str, length: int) -> MonthUse:
        return MonthUse(month, self.wire_bytes + length if month == self.month else length)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be sent now; gaps always may."""

    express: bool = True
    live: bool = True
    backlog: bool = True


def allowed_now(metered: Metered, use: MonthUse, *, on_metered: bool) -> Allowed:
    """From 90 % of the month's budget only gaps and express go, from 100 % only gaps; backlog waits unless allowed."""
    if not on_metered:
        return Allowed()
    budget = metered.month_mbytes * 1_000_000
    if budget and use.wire_bytes >= budget:
        return Allowed(express=False, live=False, backlog=False)
    if budget and use.wire_bytes >= 0.9 * budget:
        return Allowed(live=False, backlog=False)
    return Allowed(backlog=metered.backlog)


def budget_left(metered: Metered, use: MonthUse, *, on_metered: bool, queued: int) -> tuple[int, int]:
    """Return how many frame bytes the month still allows: of data, and of the express lane.

    queued: bytes of pieces that are cut and not sent. Raw bytes bound a piece's frame except for its header.
    """
    if not on_metered or not metered.month_mbytes:
        return UNLIMITED, UNLIMITED
    budget, spent = metered.month_mbytes * 1_000_000, use.wire_bytes + queued + PIECE_OVERHEAD
    return max(0, budget * 9 // 10 - spent), max(0, budget - spent)
