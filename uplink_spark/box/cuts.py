"""What members of a group took back from the log: each is an entry at the centre, whether it had been shipped or not.

The offsets of such a range belong to other bytes since, so the entry is a gap of no bytes that names range and epoch.
"""

from __future__ import annotations

import zlib
from typing import Any

from storage_driver.log.lineage import CutTold
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.state import ShipperState
from uplink_spark.wire.identity import owner_of, run_of

NUMBER = 1 << 62  # no run has so many gaps


async def declare_cuts(state: ShipperState) -> None:
    """Declare what this store has not; another leader may have declared it, and the centre knows it by its id."""
    if not state.source.lineage.cuts:
        return
    if await state.workers.in_thread(_declare_new, state):
        state.wakes.changed.set()


def _declare_new(state: ShipperState) -> bool:
    """Return whether there was anything new. In the one thread that declares: two tasks may look at once. Blocks."""
    declared = {gap.gap_id for gap in state.ledger.gaps.log.gaps}
    new = [cut for cut in state.source.lineage.cuts if gap_id(cut) not in declared]
    for cut in new:
        state.declare(cut_gap(state, cut))
    return bool(new)


def gap_id(cut: CutTold) -> tuple[int, int]:
    """Return the id of the entry for a cut, the same whoever declares it."""
    told = f"{cut.member} {cut.start} {cut.end} {cut.at_ms}".encode()
    return cut.at_ms or 1, NUMBER + zlib.crc32(told)


def cut_gap(state: ShipperState, cut: CutTold) -> Gap:
    """Return the entry for a cut."""
    lineage, at = state.source.lineage, min(cut.start, state.source.committed)
    run, run_start, _ = run_of(lineage.runs, at)
    facts: dict[str, Any] = {"id": list(gap_id(cut)), "class": "cut", "reason": "diverged", "declared": state.now_ms()}
    facts |= {"records": cut.messages, "bytes": cut.end - cut.start, "member": cut.member, "cut": cut.at_ms}
    facts |= {"of": cut.epoch, "from": cut.start, "to": cut.end}
    return Gap(owner_of(lineage.epochs, at)[0], run, run_start, at, at, facts)
