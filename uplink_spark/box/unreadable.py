"""A range of the log that the disk does not give back becomes a declared loss, and the uplink goes on behind it."""

from __future__ import annotations

import trio

from uplink_spark.box.cutting.holes import Hole
from uplink_spark.box.reconcile import make_gap
from uplink_spark.box.state import ShipperState

CLASS, REASON = "damaged", "unreadable"


async def gives_up(state: ShipperState, hole: Hole, *, express: bool) -> bool:
    """Return whether a hole is passed now: what of it the centre has not is declared as a loss then.

    express: it was met on that lane, whose records the centre may lack although it has the log.
    """
    ledger, span = state.ledger, (hole.start, hole.end)
    parts = ledger.gaps.synced.missing(*span) if express else ledger.unshipped(*span)
    if parts and (
        state.source.failure is not None or not ledger.gaps.doubtful.is_lost(hole.start, trio.current_time())
    ):
        return False
    for part in parts:
        gap = await state.workers.in_thread(make_gap, state, *part, (CLASS, REASON))
        await state.workers.in_thread(state.declare, gap)
        state.alarm("damage", f"log {part[0]}..{part[1]}: the disk does not give it back; declared as a gap")
    return True
