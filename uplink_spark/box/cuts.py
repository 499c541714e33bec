"""What the centre is told of a group's log beside its bytes: what members took back, what one disk acknowledged alone.

The offsets of what was taken back belong to other bytes since, and what was acknowledged alone is not lost: so each is
a gap of no bytes that names range and epoch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from storage_driver.log.lineage import AloneRange, CutTold
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.state import ShipperState
from uplink_spark.wire.identity import owner_of, run_of

NUMBER = 1 << 62  # no run has so many gaps


async def declare_cuts(state: ShipperState) -> None:
    """Declare what this store has not; another leader may have declared it, and the centre knows it by its id."""
    lineage = state.source.lineage
    if not lineage.cuts and not lineage.alone_told:
        return
    if await state.workers.in_thread(_declare_new, state):
        state.wakes.changed.set()


def _declare_new(state: ShipperState) -> bool:
    """Return whether there was anything new. In the one thread that declares: two tasks may look at once. Blocks."""
    declared = {gap.gap_id for gap in state.ledger.gaps.log.gaps}
    new = [gap for gap in _entries(state) if gap.gap_id not in declared]
    for gap in new:
        state.declare(gap)
    return bool(new)


def _entries(state: ShipperState) -> Iterator[Gap]:
    lineage = state.source.lineage
    yield from (cut_gap(state, cut) for cut in lineage.cuts)
    yield from (alone_gap(state, alone) for alone in lineage.alone_told)


def gap_id(what: str, start: int, end: int, at_ms: int) -> tuple[int, int]:
    """Return the id of an entry, the same whoever declares it; `what` is a member, or alone."""
    return at_ms or 1, NUMBER + zlib.crc32(f"{what} {start} {end} {at_ms}".encode())


def cut_gap(state: ShipperState, cut: CutTold) -> Gap:
    """Return the entry for a cut."""
    facts: dict[str, Any] = {"class": "cut", "reason": "diverged", "records": cut.messages, "member": cut.member}
    facts |= {"cut": cut.at_ms, "of": cut.epoch, "from": cut.start, "to": cut.end}
    return _gap(state, cut.start, {"id": list(gap_id(cut.member, cut.start, cut.end, cut.at_ms)), **facts})


def alone_gap(state: ShipperState, alone: AloneRange) -> Gap:
    """Return the entry for a range that was acknowledged by one disk and has an end."""
    start, end, at_ms = alone
    assert end is not None, "a range that goes on has no entry yet"
    facts: dict[str, Any] = {"id": list(gap_id("", start, end, at_ms)), "class": "alone", "reason": "solo"}
    facts |= {"of": owner_of(state.source.lineage.epochs, start)[0], "from": start, "to": end, "since": at_ms}
    return _gap(state, start, facts)


def _gap(state: ShipperState, start: int, facts: dict[str, Any]) -> Gap:
    lineage, at = state.source.lineage, min(start, state.source.committed)
    run, run_start, _ = run_of(lineage.runs, at)
    facts |= {"declared": state.now_ms(), "bytes": facts["to"] - facts["from"]}
    return Gap(owner_of(lineage.epochs, at)[0], run, run_start, at, at, facts)
