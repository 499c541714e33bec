"""A range of the log that the disk does not give back becomes a declared loss, and the uplink goes on behind it."""

from __future__ import annotations

import trio

from uplink_spark.box.cutting.holes import Hole
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.reconcile import make_gap
from uplink_spark.box.state import ShipperState

CLASS, REASON = "damaged", "unreadable"


async def given_up(state: ShipperState, hole: Hole, *, express: bool) -> list[Gap] | None:
    """Declare what the centre has not of a hole as lost and return that; None while the hole is not passed yet.

    express: it was met on that lane, whose records the centre may lack although it has the log.
    """
    ledger, span = state.ledger, (hole.start, hole.end)
    parts = ledger.gaps.synced.missing(*span) if express else ledger.unshipped(*span)
    if parts:
        unreadable = await state.workers.in_thread(state.source.is_unreadable, *span)  # else the disk was away
        if state.source.failure is not None or not unreadable:
            return None
        if not ledger.gaps.doubtful.is_lost(hole.start, trio.current_time()):
            return None
    gaps: list[Gap] = []
    for part in parts:
        gap = await state.workers.in_thread(make_gap, state, *part, (CLASS, REASON))
        await state.workers.in_thread(state.declare, gap)
        gaps.append(gap)
        state.alarm("damage", f"log {part[0]}..{part[1]}: the disk does not give it back; declared as a gap")
    return gaps
