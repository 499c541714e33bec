"""What the gateway holds, set against the log: divergence, what counts for which epoch, what is declared as what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uplink_spark.box.receipts.ledger import Ledger
from uplink_spark.box.reconcile import check_have, clip_have, make_gap, reconcile_below
from uplink_spark.box.state import ShipperState
from uplink_spark.config import UplinkConfig
from uplink_spark.errors import ProtocolError
from uplink_spark.testing import SOURCE, MadeLog, MadeRecord, encode_log
from uplink_spark.wire.frames import Have, Welcome
from uplink_spark.wire.intervals import Intervals

NOW = 1_700_000_000_000
SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n, stored_ms=NOW + n) for n in range(20)])
OLD, NEW = 5, 6
OWNED = ((OLD, 0, 100), (NEW, 100, 1 << 63))


def welcome(have: Have, pick: Have = ()) -> Welcome:
    return Welcome(b"L" * 16, have, pick, None, 1 << 20, 64, ("zlib",), 0, NOW)


def state_of(root: Path, log: MadeLog) -> ShipperState:
    ledger = Ledger(root / "rocketbox")
    ledger.open()
    config = UplinkConfig(gateway="127.0.0.1", box="box-17")
    return ShipperState(log, config, ledger, now_ms=lambda: NOW, clock_ok=lambda: True)


@pytest.mark.parametrize(
    ("have", "fork"),
    [
        ((), None),
        (((NEW, 100, 200),), None),
        (((NEW, 100, 201),), 200),
        (((OLD, 0, 999),), None),  # the old epoch ended; what it had beyond is history
        (((NEW, 100, 150), (NEW, 300, 400)), 200),
    ],
)
def test_a_centre_that_holds_more_than_is_durable_here_means_a_fork(have: Have, fork: int | None) -> None:
    assert check_have(OWNED, welcome(have), 200) == fork


def test_express_records_that_are_not_durable_here_mean_a_fork_too() -> None:
    assert check_have(OWNED, welcome((), ((NEW, 100, 200),)), 200) is None
    assert check_have(OWNED, welcome((), ((NEW, 100, 201),)), 200) == 200


@pytest.mark.parametrize(("have", "pick"), [(((9, 0, 1),), ()), ((), ((9, 0, 1),))])
def test_an_epoch_nobody_told_the_centre_is_a_fault_of_the_protocol(have: Have, pick: Have) -> None:
    with pytest.raises(ProtocolError, match="epoch 9 is not in the lineage"):
        check_have(OWNED, welcome(have, pick), 200)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([OLD, NEW]), st.integers(0, 150), st.integers(0, 200)), max_size=6))
def test_a_range_counts_only_where_its_epoch_owns_the_log(have: list[tuple[int, int, int]]) -> None:
    clipped = clip_have(OWNED, tuple(have))
    for byte in range(0, 220, 3):
        owner = OLD if byte < 100 else NEW
        held = any(epoch == owner and start <= byte < end for epoch, start, end in have)
        assert any(start <= byte < end for start, end in clipped) == held, byte


async def test_what_left_the_disk_is_declared_once_by_what_is_known_of_it(tmp_path: Path) -> None:
    log = MadeLog(RAW, first=12 * SIZE)
    state = state_of(tmp_path, log)
    had, elsewhere = Intervals([(0, 4 * SIZE)]), Intervals([(4 * SIZE, 6 * SIZE)])
    state.ledger.welcome(b"L" * 16, [(2 * SIZE, 3 * SIZE), (10 * SIZE, 12 * SIZE)], [])
    gaps = reconcile_below(state, had, elsewhere)
    assert [(g.start // SIZE, g.end // SIZE, g.facts["class"], g.facts["reason"]) for g in gaps] == [
        (0, 2, "receipt_lost", "gateway_lost"),
        (3, 4, "receipt_lost", "gateway_lost"),
        (4, 6, "elsewhere", "landing_changed"),
        (6, 10, "missing", "never_receipted"),
    ]
    assert [g.gap_id for g in gaps] == [(SOURCE.run, n) for n in (1, 2, 3, 4)]
    assert "receipt_lost" in state.alarms
    for gap in gaps:
        state.ledger.gaps.declare(gap)
        state.ledger.gaps.note_delivered(gap)
    assert reconcile_below(state, had, elsewhere) == []  # declared already
    assert [gap.gap_id[1] for gap in state.ledger.gaps.undelivered()] == [
        1,
        2,
        3,
        4,
    ]  # the centre lacks them: sent again


async def test_what_still_lies_here_is_shipped_and_not_declared(tmp_path: Path) -> None:
    state = state_of(tmp_path, MadeLog(RAW))
    state.ledger.welcome(b"L" * 16, [], [])
    assert reconcile_below(state, Intervals([(0, 4 * SIZE)]), Intervals()) == []
    assert state.alarms == {}


async def test_a_loss_over_two_epochs_is_declared_for_each(tmp_path: Path) -> None:
    log = MadeLog(RAW, first=10 * SIZE)
    log.lineage.epochs = [(OLD, 0), (NEW, 4 * SIZE)]
    state = state_of(tmp_path, log)
    gaps = reconcile_below(state, None, Intervals())
    assert [(g.epoch, g.start // SIZE, g.end // SIZE) for g in gaps] == [(OLD, 0, 4), (NEW, 4, 10)]
    assert len({g.gap_id for g in gaps}) == 2


async def test_a_gap_says_when_its_oldest_record_was_stored_as_long_as_it_can_be_read(tmp_path: Path) -> None:
    state = state_of(tmp_path, MadeLog(RAW))
    gap = make_gap(state, 3 * SIZE, 5 * SIZE, ("missing", "quota_bytes"))
    assert gap.facts == {
        "id": [SOURCE.run, 1], "class": "missing", "reason": "quota_bytes", "declared": NOW, "bytes": 2 * SIZE,
        "since": NOW + 3,
    }  # fmt: skip
    assert "since" not in make_gap(state, 3 * SIZE + 1, 5 * SIZE, ("missing", "x")).facts  # no record begins there
    assert "since" not in make_gap(state, len(RAW), len(RAW) + 9, ("missing", "x")).facts
    state.source.first = 4 * SIZE  # type: ignore[misc]
    assert "since" not in make_gap(state, 3 * SIZE, 5 * SIZE, ("missing", "x")).facts


async def test_ids_go_on_above_those_of_this_run_in_the_log(tmp_path: Path) -> None:
    state = state_of(tmp_path, MadeLog(RAW))
    state.ledger.gaps.declare(make_gap(state, 0, SIZE, ("missing", "x"), made=4))
    assert make_gap(state, SIZE, 2 * SIZE, ("missing", "x")).gap_id == (SOURCE.run, 6)
    state.source.lineage.runs.append((99, 15 * SIZE))
    later = make_gap(state, SIZE, 2 * SIZE, ("missing", "x"))
    assert (later.gap_id, later.run) == ((99, 1), SOURCE.run)  # declared by this run, written by that one
