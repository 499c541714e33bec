"""What members of a group took back from the log: each is an entry at the centre, whether it had been shipped or not.

The offsets of such a range belong to other bytes since, so the entry is a gap of no bytes that names range and epoch.
"""

from __future__ import annotations

import zlib

from storage_driver.log.lineage import CutTold
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.reconcile import make_gap
from uplink_spark.box.state import ShipperState

NUMBER = 1 << 62  # no run has so many gaps


async def declare_cuts(state: ShipperState) -> None:
    """Declare what this store has not; another leader may have declared it, and the centre knows it by its id."""
    if not state.source.lineage.cuts:
        return
    declared = {gap.gap_id for gap in state.ledger.gaps.log.gaps}
    for cut in state.source.lineage.cuts:
        gap = cut_gap(state, cut)
        if gap.gap_id not in declared:
            await state.workers.in_thread(_declare_once, state, gap)
            state.wakes.changed.set()


def _declare_once(state: ShipperState, gap: Gap) -> None:
    """Two tasks may find the same cut at the same time. Blocks."""
    if all(each.gap_id != gap.gap_id for each in state.ledger.gaps.log.gaps):
        state.declare(gap)


def cut_gap(state: ShipperState, cut: CutTold) -> Gap:
    """Return the entry for a cut; its id is the same whoever declares it."""
    at = min(cut.start, state.source.committed)
    gap = make_gap(state, at, at, ("cut", "diverged"))
    for name in ("since", "until", "queues", "more"):
        gap.facts.pop(name, None)
    told = f"{cut.member} {cut.start} {cut.end} {cut.at_ms}".encode()
    gap.facts.update({"id": [cut.at_ms or 1, NUMBER + zlib.crc32(told)], "records": cut.messages})
    gap.facts.update({"of": cut.epoch, "from": cut.start, "to": cut.end, "bytes": cut.end - cut.start})
    gap.facts.update({"member": cut.member, "cut": cut.at_ms})
    return gap
