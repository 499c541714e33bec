"""What a connection has to send: holes of the log, express records on their lane, gaps once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from uplink_spark.box.caps import SMALLEST_PIECE, MonthUse
from uplink_spark.box.plan import SendPiece, Wait
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.receipts.ledger import Ledger, ReceiptSeen
from uplink_spark.box.send_lanes import IDLE_PICK_BYTES, SendLanes
from uplink_spark.box.state import ShipperState
from uplink_spark.config import Metered, UplinkConfig
from uplink_spark.testing import SOURCE, MadeLog
from uplink_spark.wire.batch import PieceContents, encode_piece

NOW = 1_700_000_000_000
RAW = bytes(10_000)
CONFIG = UplinkConfig(gateway="127.0.0.1", box="box-17", piece_bytes=1 << 20)


def state_of(root: Path, config: UplinkConfig = CONFIG) -> ShipperState:
    ledger = Ledger(root / "rocketbox")
    ledger.open()
    return ShipperState(MadeLog(RAW), config, ledger, now_ms=lambda: NOW, clock_ok=lambda: True)


async def test_what_the_ledger_lacks_is_sent_and_a_refused_range_once_more(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.ledger.receipt("log", ReceiptSeen(0, 4000, "log", 1, 0, 0, NOW))
    state.ship_now()
    lanes = SendLanes(state)
    assert isinstance(lanes.decide("express", lanes.express, lanes.facts(0, 1 << 20)), Wait), "no topic is express"
    cut = lanes.decide("log", lanes.log, lanes.facts(0, 1 << 20))
    assert isinstance(cut, SendPiece)
    assert (cut.lane, cut.start, cut.end) == ("live", 4000, 10_000)
    lanes.log.sent("live", 4000, 10_000, 0.0, len(RAW))
    assert isinstance(lanes.decide("log", lanes.log, lanes.facts(0, 1 << 20)), Wait)
    header, _ = encode_piece(SOURCE, PieceContents("gap", 5000, 6000, b"\xa0"), "none")
    lanes.again(header)
    cut = lanes.decide("log", lanes.log, lanes.facts(0, 1 << 20))
    assert isinstance(cut, SendPiece)
    assert (cut.start, cut.end) == (5000, 6000)


async def test_express_records_have_their_own_plan_while_a_topic_is_express(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.ledger.switches = [(2000, ("ALARM",))]
    state.ship_now()
    lanes = SendLanes(state)
    cut = lanes.decide("express", lanes.express, lanes.facts(0, 1 << 20))
    assert isinstance(cut, SendPiece)
    assert (cut.start, cut.end, cut.max_bytes) == (2000, 10_000, IDLE_PICK_BYTES)


async def test_pieces_shrink_and_wait_with_the_budget_of_the_month(tmp_path: Path) -> None:
    state = state_of(tmp_path, replace(CONFIG, metered=Metered(("wwan0",), month_mbytes=1, backlog=True)))
    lanes = SendLanes(state)
    assert lanes.facts(0, 300_000).target <= 300_000, "the gateway takes no more"
    state.metering.on_metered = True
    month = state.metering.local_time().strftime("%Y-%m")
    state.ledger.month = MonthUse(month, 850_000)
    assert lanes.facts(0, 1 << 20).target < 50_000
    facts = lanes.facts(45_000, 1 << 20)
    assert (facts.target, facts.allowed.live, facts.allowed.express) == (SMALLEST_PIECE, False, True)


async def test_a_gap_waits_once(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.declare(Gap(1, 2, 0, 0, 50, {"id": [2, 1], "class": "quota", "reason": "full"}))
    lanes, second = SendLanes(state), Gap(1, 2, 0, 50, 70, {"id": [2, 2], "class": "quota", "reason": "full"})
    lanes.add_gaps([*state.ledger.gaps.undelivered(), second])
    assert [gap.gap_id for gap in lanes.gaps] == [(2, 1), (2, 2)]
