"""What the gateway's `have` means for this box: divergence, receipts taken over, losses that must be declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from uplink_spark.box.cutting.scan import HEAD_BYTES, stored_ms_of
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.receipts.queue_table import LostOffsets, lost_queues
from uplink_spark.box.state import ShipperState
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.frames import Have, Welcome
from uplink_spark.wire.identity import owner_of, run_of, spans
from uplink_spark.wire.intervals import Intervals, Range

Spans = Sequence[tuple[int, int, int]]


def check_have(owned: Spans, welcome: Welcome, durable: int) -> int | None:
    """Return the fork when the centre holds more of the current epoch than is durable here.

    Raises ProtocolError for epochs outside the lineage.
    """
    known = {epoch for epoch, _, _ in owned}
    for epoch, _, _ in (*welcome.have, *welcome.pick):
        if epoch not in known:
            raise ProtocolError(f"WELCOME: epoch {epoch:x} is not in the lineage")
    newest = owned[-1][0]
    highest = max((end for epoch, _, end in (*welcome.have, *welcome.pick) if epoch == newest), default=0)
    return durable if highest > durable else None


def clip_have(owned: Spans, have: Have) -> list[Range]:
    """Return `have` as ranges of the log that is here: each epoch counts only where it owns the log."""
    ranges: list[Range] = []
    for epoch, low, high in owned:
        held = Intervals((start, end) for owner, start, end in have if owner == epoch)
        ranges += held.within(low, high)
    return ranges


def reconcile_below(state: ShipperState, had: Intervals | None, elsewhere: Intervals) -> list[Gap]:
    """Return the gaps to declare for what the centre lacks and this disk has no more; old gaps are sent again.

    had: what this landing had receipted before, None when it is another landing than before.
    """
    ledger, source = state.ledger, state.source
    declared: list[Gap] = []
    for epoch, low, high in spans(source.lineage.epochs):
        for start, end in ledger.receipted.log.missing(low, max(low, min(high, source.first))):
            ledger.gaps.delivered -= {
                gap.gap_id for gap in ledger.gaps.log.gaps if gap.epoch == epoch and gap.start < end and gap.end > start
            }
            for part in _undeclared(ledger.gaps.log.gaps, start, end):
                declared += _classify(state, part, had, elsewhere, len(declared))
    return declared


def repairs_below(state: ShipperState) -> list[Gap]:
    """Return the gaps to declare for what a recovery covered with filler before anybody had it. Blocks."""
    declared = list[Gap]()
    for part in _damaged_and_unshipped(state):
        gap = make_gap(state, *part, ("damaged", "repair"), len(declared))
        if not gap.facts.get("queues"):
            gap.facts.pop("records", None)  # no queue has told of them: how many there were is not known
        declared.append(gap)
    return declared


def _damaged_and_unshipped(state: ShipperState) -> Iterator[Range]:
    source = state.source
    for start, end in source.damaged():
        for _, low, high in spans(source.lineage.epochs):
            begin, stop = max(low, start, source.first), min(high, end, source.committed)
            if begin < stop:
                yield from state.ledger.unshipped(begin, stop)


def _undeclared(gaps: Sequence[Gap], start: int, end: int) -> list[Range]:
    return Intervals((gap.start, gap.end) for gap in gaps).missing(start, end)


def _classify(state: ShipperState, part: Range, had: Intervals | None, elsewhere: Intervals, made: int) -> list[Gap]:
    gaps: list[Gap] = []
    receipted = had if had is not None else Intervals()
    for start, end in receipted.within(*part):
        gaps.append(make_gap(state, start, end, ("receipt_lost", "gateway_lost"), made + len(gaps)))
        state.alarm("receipt_lost", f"receipted range {start}..{end} is missing at the centre")
    rest = receipted.missing(*part)
    for hole in rest:
        for start, end in elsewhere.within(*hole):
            gaps.append(make_gap(state, start, end, ("elsewhere", "landing_changed"), made + len(gaps)))
        for start, end in elsewhere.missing(*hole):
            gaps.append(make_gap(state, start, end, ("missing", "never_receipted"), made + len(gaps)))
    return gaps


def make_gap(state: ShipperState, start: int, end: int, why: tuple[str, str], made: int = 0) -> Gap:
    """Return a gap of one epoch with the queue offsets that are lost; made: gaps made but not yet declared."""
    lineage = state.source.lineage
    epoch = owner_of(lineage.epochs, start)[0]
    run, run_start, _ = run_of(lineage.runs, start)
    this_run = lineage.runs[-1][0]
    lost: LostOffsets | None = lost_queues(state.store_root, start, end)
    facts: dict[str, Any] = {
        "id": [this_run, state.ledger.gaps.next_number(this_run) + made],
        "class": why[0],
        "reason": why[1],
        "declared": state.now_ms(),
        "bytes": end - start,
    }
    facts |= _times(state, start, lost)
    if lost is not None:
        facts["queues"] = [list(row) for row in lost.queues]
        facts["records"] = lost.records
        if lost.more:
            facts["more"] = lost.more
    return Gap(epoch, run, run_start, start, end, facts)


def _times(state: ShipperState, start: int, lost: LostOffsets | None) -> dict[str, int]:
    """The store times of the oldest and the newest record that is lost, as far as their bytes are still here."""
    places = {"since": start, "until": lost.newest_at if lost is not None else None}
    times: dict[str, int] = {}
    for name, place in places.items():
        head = state.readable(place, HEAD_BYTES) if place is not None and place >= state.source.first else b""
        stored_ms = stored_ms_of(head, place or 0)
        times |= {} if stored_ms is None else {name: stored_ms}
    return times
