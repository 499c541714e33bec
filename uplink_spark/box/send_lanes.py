"""What one connection has to send: gaps, express records, the log; and what of it is due."""

from __future__ import annotations

from dataclasses import replace

import trio

from uplink_spark.box.caps import SMALLEST_PIECE, Allowed
from uplink_spark.box.plan import CutFacts, SendPiece, SendPlan, Wait, make_plan, target_bytes
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.state import ShipperState
from uplink_spark.wire.batch import PieceHeader

IDLE_PICK_BYTES = 4 << 20


class SendLanes:
    """The plans of a connection, made from what the ledger lacks when it begins."""

    def __init__(self, state: ShipperState) -> None:
        self._state = state
        self.gaps = state.ledger.gaps.undelivered()
        self.log, self.express = self._plans()
        self._express_target = IDLE_PICK_BYTES

    def _plans(self) -> tuple[SendPlan, SendPlan]:
        source, ledger, config = self._state.source, self._state.ledger, self._state.config
        first, durable = source.first, source.committed
        holes = ledger.unshipped(first, durable)
        age = self._state.progress.oldest_s(holes[0][0] if holes else None, trio.current_time())
        plan = make_plan(holes, durable, order=config.order, backlog_share=config.backlog_share, oldest_age_s=age)
        picks = [h for span in ledger.pick_spans(first, durable) for h in ledger.receipted.pick.missing(*span)]
        return plan, make_plan(picks, durable, order="oldest_first", backlog_share=1, oldest_age_s=None)

    def add_gaps(self, gaps: list[Gap]) -> None:
        """Send these gaps as well, those that wait already once."""
        self.gaps += [gap for gap in gaps if gap not in self.gaps]

    def again(self, header: PieceHeader) -> None:
        """Send the range of a refused piece once more."""
        (self.express if header.kind == "pick" else self.log).again(header.start, header.end)

    def facts(self, queued_bytes: int, most_bytes: int) -> CutFacts:
        """Return what a cut depends on now: frames cut but not sent, and the most raw bytes of a piece."""
        state = self._state
        durable, now = state.source.committed, trio.current_time()
        for plan in (self.log, self.express):
            plan.note_durable(durable, now)
            plan.ship_now = state.wakes.ship_now_to
        bulk, express = state.metering.budget_left(queued_bytes)
        self._express_target = min(IDLE_PICK_BYTES, express)
        allowed, enough = state.metering.allowed(), bulk >= SMALLEST_PIECE
        allowed = Allowed(
            allowed.express and express >= SMALLEST_PIECE, allowed.live and enough, allowed.backlog and enough
        )
        target = min(target_bytes(state.link.rate.raw, state.config.piece_bytes), most_bytes, max(bulk, SMALLEST_PIECE))
        return CutFacts(now, durable, target, state.metering.max_delay_s(), allowed, state.boundary)

    def decide(self, lane: str, plan: SendPlan, facts: CutFacts) -> SendPiece | Wait:
        if lane == "log":
            return plan.next_cut(facts)
        if not self._state.ledger.switches:
            return Wait(3600)
        return self._decide_express(plan, facts)

    def _decide_express(self, plan: SendPlan, facts: CutFacts) -> SendPiece | Wait:
        allowed = facts.allowed.express
        express = replace(
            facts,
            max_delay_s=self._state.config.express_max_delay_s,
            target=self._express_target,
            allowed=replace(facts.allowed, live=allowed, backlog=allowed),
        )
        if not self._state.ledger.express_at(plan.live) and plan.live < facts.durable:
            plan.live = min(facts.durable, facts.boundary(plan.live))  # the lane is off here
        return plan.next_cut(express)
