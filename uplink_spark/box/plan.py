"""Which range goes next, and when a piece is cut: plain values in, one decision out.

Everything below `durable` that the centre does not hold is either backlog (holes known at connect, or what came back
refused) or is at or above the live cursor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uplink_spark.box.caps import Allowed
from uplink_spark.wire.intervals import Intervals, Range

KIB = 1 << 10
MIB = 1 << 20
BACKLOG_BYTES, BACKLOG_S = 64 * MIB, 600
MIN_TARGET, MAX_TARGET, FIRST_TARGET = 64 * KIB, 4 * MIB, 256 * KIB
TARGET_S, RATE_S = 8, 20
SLOW_WIRE = 125_000  # bytes a second: 1 Mbit/s
FAST_RAW = 8 << 20  # bytes a second: a whole piece leaves within half of one
SLOW_PIECES = 2
MANY_HOLES, FEW_HOLES = 32, 8  # the centre keeps at most 64 an epoch


@dataclass(frozen=True, slots=True)
class SendPiece:
    """Send a piece that begins at start; it ends at `end` at the latest."""

    lane: str  # live, backlog, express
    start: int
    end: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing may be cut now; look again after so many seconds or when something changes."""

    seconds: float


Decision = SendPiece | Wait


def target_bytes(raw_rate: float | None, piece_bytes: int) -> int:
    """The raw size of a piece: what goes through in 8 s, so that a cut link repeats little."""
    if raw_rate is None:
        return min(FIRST_TARGET, piece_bytes)
    return int(max(MIN_TARGET, min(TARGET_S * raw_rate, MAX_TARGET, piece_bytes)))


class SendPlan:
    """What is still to be sent on one lane of one connection."""

    def __init__(self, holes: Sequence[Range], live_from: int, *, backlog_share: float, oldest_first: bool) -> None:
        self.backlog = Intervals(holes)
        self.live = live_from  # everything at or above it is new
        self._share, self._oldest_first = backlog_share, oldest_first
        self._mending = len(self.backlog) > MANY_HOLES
        self._sent = {"live": 0, "backlog": 0}
        self._since: float | None = None  # when the oldest unsent live byte became durable
        self.ship_now = 0  # cut at once up to here

    def note_durable(self, durable: int, now: float) -> None:
        """The clock of max_delay_s starts when the first unsent byte is durable."""
        if durable > self.live and self._since is None:
            self._since = now

    def next_cut(self, facts: CutFacts) -> Decision:
        """Return the next cut of this lane or how long to wait."""
        live = self._live_cut(facts) if facts.allowed.live else Wait(60)
        back = self._backlog_cut(facts) if facts.allowed.backlog else None
        if back is None or (isinstance(live, SendPiece) and not self._backlog_turn()):
            return live
        return back

    def _backlog_turn(self) -> bool:
        if self._oldest_first or self._mending:
            return True
        total = self._sent["live"] + self._sent["backlog"]
        return self._sent["backlog"] < self._share * total

    def _backlog_cut(self, facts: CutFacts) -> SendPiece | None:
        holes = list(self.backlog) if self._mending else self.backlog.first(1)
        self._mending = self._mending and len(holes) > FEW_HOLES
        for start, end in sorted(holes, key=_length)[:1] if self._mending else holes[:1]:
            return SendPiece("backlog", start, min(end, facts.boundary(start)), facts.target)
        return None

    def _live_cut(self, facts: CutFacts) -> Decision:
        if self.live >= facts.durable:
            return Wait(3600)
        border = facts.boundary(self.live)
        end = min(facts.durable, border)
        waited = facts.now - (self._since if self._since is not None else facts.now)
        due = waited >= facts.max_delay_s or self.live < self.ship_now
        if end - self.live >= facts.target or end == border or due:
            return SendPiece("live", self.live, end, facts.target)
        return Wait(facts.max_delay_s - waited)

    def sent(self, lane: str, start: int, end: int, now: float, durable: int) -> None:
        """A piece of this range is on its way."""
        self._sent[lane] += end - start
        if lane == "live":
            self.live = end
            self._since = now if durable > end else None
        else:
            self.backlog.remove(start, end)
        if sum(self._sent.values()) > 256 * MIB:  # shares are kept over the recent past, not for ever
            self._sent = {key: value // 2 for key, value in self._sent.items()}

    def mend(self) -> None:
        """The centre gets too many holes: the smallest are filled first, before anything new, until few are left."""
        self._mending = True

    def again(self, start: int, end: int) -> None:
        """A range came back: it is backlog now."""
        if start < self.live:
            self.backlog.add(start, min(end, self.live))


@dataclass(frozen=True, slots=True)
class CutFacts:
    """What the decision needs to know of the world."""

    now: float  # monotonic seconds
    durable: int
    target: int
    max_delay_s: float
    allowed: Allowed
    boundary: Callable[[int], int]  # the next file end, run start, origin or switch above an offset


def make_plan(
    holes: Sequence[Range], durable: int, *, order: str, backlog_share: float, oldest_age_s: float | None
) -> SendPlan:
    """Return the plan of a fresh connection.

    live_first only counts with real backlog (64 MiB or 10 minutes); then new data has the lane and the hole behind it
    gets its share. Otherwise what is missing goes in order.
    """
    behind = sum(end - start for start, end in holes)
    tail = holes[-1][0] if holes and holes[-1][1] == durable else durable
    deep = behind > BACKLOG_BYTES or (oldest_age_s is not None and oldest_age_s > BACKLOG_S)
    if order == "live_first" and deep:
        if len(holes) < 2 or durable - tail > BACKLOG_BYTES:
            tail = durable
        older = [hole for hole in holes if hole[1] <= tail]  # the rest of the last live data stays live: no new hole
        return SendPlan(older, tail, backlog_share=backlog_share, oldest_first=False)
    older = [hole for hole in holes if hole[1] <= tail]
    return SendPlan(older, tail, backlog_share=backlog_share, oldest_first=True)


def _length(hole: Range) -> int:
    return hole[1] - hole[0]


class Flight:
    """Pieces that were sent and have no receipt: numbers, raw bytes, and whether one more may go."""

    def __init__(self, window: int, pieces: int) -> None:
        self.window, self.pieces = window, pieces
        self.raw_bytes = self.count = self._heavy = 0

    def room(self, raw_bytes: int, wire_rate: float | None) -> bool:
        """Below 1 Mbit/s two pieces of weight may be on their way; gaps and express pieces take no place of theirs."""
        slow = wire_rate is not None and wire_rate < SLOW_WIRE
        if self.count >= self.pieces or (slow and raw_bytes >= MIN_TARGET and self._heavy >= SLOW_PIECES):
            return False
        return self.window > 0 and (not self.count or self.raw_bytes + raw_bytes <= self.window)

    def add(self, raw_bytes: int) -> None:
        self.raw_bytes += raw_bytes
        self.count += 1
        self._heavy += raw_bytes >= MIN_TARGET

    def remove(self, raw_bytes: int) -> None:
        self.raw_bytes -= raw_bytes
        self.count -= 1
        self._heavy -= raw_bytes >= MIN_TARGET


class LinkRate:
    """Throughput while something is on its way: what was receipted in the last RATE_S, over that time.

    Not from piece to piece: a small piece that is receipted beside or just before a large one would make the link look
    a hundred times as fast, and pieces too large for a link that breaks every two minutes.
    """

    def __init__(self) -> None:
        self.raw: float | None = None  # bytes a second
        self.wire: float | None = None
        self._marks: deque[tuple[float, int, int]] = deque()  # time, raw bytes, wire bytes
        self._since = 0.0

    @property
    def fast(self) -> bool:
        """Whether pieces cut ahead leave so soon that what comes after them hardly waits; not before it is known."""
        return self.raw is not None and self.raw >= FAST_RAW

    def sent(self, now: float, *, idle: bool) -> None:
        """A piece leaves; idle: nothing was on its way."""
        if idle:
            self._marks.clear()
            self._since = now

    def receipted(self, raw_bytes: int, wire_bytes: int, now: float) -> None:
        self._marks.append((now, raw_bytes, wire_bytes))
        while self._marks[0][0] < now - RATE_S:
            self._since = self._marks.popleft()[0]
        raw = sum(mark[1] for mark in self._marks)
        if raw < MIN_TARGET:
            return  # too little to tell a slow link from an idle one
        spent = max(now - self._since, 0.001)
        self.raw, self.wire = raw / spent, sum(mark[2] for mark in self._marks) / spent
