"""The log cannot leave fast enough: what gives way, what is declared, and that landed and gaps make up the log."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from storage_driver.record import MessageQueue
from uplink_spark.box.caps import MonthUse
from uplink_spark.box.quota import MOST_REJECTED, QuotaFacts, QuotaLimits, over_quota
from uplink_spark.config import Metered
from uplink_spark.testing import files_end_at, landed_entries, landed_log
from uplink_spark.testing_site import EXPRESS_ONLY, MIB, box, fill, gateway, overfill, until
from uplink_spark.wire.batch import PieceContents, PieceSource, encode_piece


@pytest.mark.parametrize(
    ("facts", "limits", "reason"),
    [
        (QuotaFacts(100, None, 0.1), QuotaLimits(0, 0), None),
        (QuotaFacts(101, None, 0.1), QuotaLimits(100, 0), "quota_bytes"),
        (QuotaFacts(100, None, 0.1), QuotaLimits(100, 0), None),
        (QuotaFacts(1, 25.0, 0.1), QuotaLimits(100, 24), "quota_hours"),
        (QuotaFacts(1, None, 0.1), QuotaLimits(100, 24), None),  # no clock, no age
        (QuotaFacts(1, None, 0.9), QuotaLimits(100, 24), "disk_full"),
        (QuotaFacts(0, None, 0.9), QuotaLimits(100, 24), None),  # nothing unshipped: retention's own business
    ],
)
def test_what_is_over_the_quota(facts: QuotaFacts, limits: QuotaLimits, reason: str | None) -> None:
    assert over_quota(facts, limits) == reason


def whole(root: Path, name: str = "box-17") -> list[tuple[int, int]]:
    """What the centre holds, data and gaps, as ranges that touch."""
    ranges = sorted((e.start, e.end) for e in landed_entries(root, name) if e.start < e.end)
    merged = ranges[:1]
    for start, end in ranges[1:]:
        if start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@pytest.mark.slow
async def test_drop_oldest_declares_the_loss_with_its_queue_offsets_before_the_file_goes(tmp_path: Path) -> None:
    landing, nowhere = tmp_path / "landing", 1
    async with box(tmp_path / "store", nowhere, max_lag_bytes=6 * MIB) as (store, uplink):
        await fill(store, 16_000)
        await until(lambda: len(list((tmp_path / "store/consumequeue/T").iterdir())) == 4)
        await store.prove()  # queue files, which say what is lost, are written
        await uplink.shipper.quota.look()
        first, durable = store.first, store.committed
        assert 10 * MIB <= first < durable
        lost = [gap.facts for gap in uplink.shipper.state.ledger.gaps.log.gaps]
        assert {(facts["class"], facts["reason"]) for facts in lost} == {("missing", "quota_bytes")}
        for facts in lost:
            assert facts["since"] <= facts["until"] <= facts["declared"]  # store times of what is lost
        assert lost[0]["until"] <= lost[-1]["since"]
        by_queue = {(row[0], row[1]): (row[2], row[3], row[4]) for row in lost[-1]["queues"]}
        for queue_id in range(4):
            assert by_queue["T", queue_id][1] + 1 == store.min_offset(MessageQueue("T", queue_id))
        counted = sum(facts["records"] for facts in lost)
        assert counted == sum(store.min_offset(MessageQueue("T", q)) for q in range(4))
    async with gateway(landing) as port, box(tmp_path / "store", port) as (store, uplink):
        ledger = uplink.shipper.state.ledger
        await until(lambda: not ledger.gaps.undelivered() and ledger.receipted.log.covers(first, store.committed))
        assert whole(landing) == [(0, durable)]
    assert counted + len(landed_log(landing, "box-17")) == 16_000


@pytest.mark.slow
async def test_a_file_that_cannot_go_is_an_alarm_and_no_end_of_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.box.quota.LOOK_S", 0.05)
    async with box(tmp_path / "store", 1, max_lag_bytes=6 * MIB) as (store, uplink):
        state, drop = uplink.shipper.state, store.drop_first

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(store, "drop_first", fail)
        await fill(store, 16_000)
        await until(lambda: "Operation not permitted" in state.alarms.get("quota_disk", ""))
        assert store.first == 0
        monkeypatch.setattr(store, "drop_first", drop)
        await until(lambda: store.first >= 5 * MIB and "quota_disk" not in state.alarms)


@pytest.mark.slow
async def test_what_was_refused_is_declared_once_there_is_room_to_declare_it(tmp_path: Path) -> None:
    async with box(tmp_path / "store", 1) as (_, uplink):
        quota, ledger = uplink.shipper.quota, uplink.shipper.state.ledger
        quota._rejected[1, "T", "disk_full"] = 3
        with files_end_at(0), pytest.raises(OSError, match="too large"):
            await quota._declare_rejected()
        await quota._declare_rejected()
        assert [gap.facts["records"] for gap in ledger.gaps.log.gaps] == [3]
        assert not quota._rejected
        for number in range(MOST_REJECTED + 5):
            quota.note_rejected(f"T{number}", "disk_full")
        assert (len(quota._rejected), quota._rejected.total()) == (MOST_REJECTED, MOST_REJECTED + 5)


@pytest.mark.slow
async def test_express_only_keeps_the_express_topics_of_what_goes_and_ships_them_within_the_window(
    tmp_path: Path,
) -> None:
    landing = tmp_path / "landing"
    async with box(tmp_path / "store", 1, **EXPRESS_ONLY) as (store, uplink):
        await overfill(store, uplink, ["bulk", *["alarm"] * 33])
        first, spool = store.first, uplink.shipper.quota.spool
        assert first >= 25 * MIB
        assert sum(kept.header.raw_bytes for kept in spool.pieces()) > 20 * MIB
    serving = gateway(landing, linger_ms=300, window_bytes=12 * MIB)
    async with serving as port, box(tmp_path / "store", port, **EXPRESS_ONLY) as (store, uplink):
        state = uplink.shipper.state
        await until(lambda: state.ledger.receipted.pick.covers(first, store.committed) and not spool.places())
        await until(lambda: not state.ledger.gaps.undelivered())
        assert (state.counts.connects, state.alarms) == (1, {})
    entries = landed_entries(landing, "box-17")
    assert sum(entry.records for entry in entries if entry.kind == "pick") == 33
    assert whole(landing) == [(0, max(entry.end for entry in entries))]


@pytest.mark.slow
async def test_express_records_that_were_kept_outlive_a_connection_that_took_the_declared_loss_alone(
    tmp_path: Path,
) -> None:
    landing = tmp_path / "landing"
    async with box(tmp_path / "store", 1, **EXPRESS_ONLY) as (store, uplink):
        await overfill(store, uplink, ["alarm", "bulk", "bulk"] * 4)
        first, kept = store.first, len(uplink.shipper.quota.spool.places())
        assert first >= 5 * MIB
        assert kept
        state = uplink.shipper.state
        state.ledger.month = MonthUse(
            state.metering.local_time().strftime("%Y-%m"), 2_000_000
        )  # used up: losses alone are told
        state.ledger.save()
    spent = EXPRESS_ONLY | {"metered": Metered(("lo",), month_mbytes=1)}
    async with gateway(landing) as port:
        async with box(tmp_path / "store", port, **spent) as (store, uplink):
            state = uplink.shipper.state
            await until(lambda: state.ledger.gaps.log.gaps != [] and not state.ledger.gaps.undelivered())
        async with box(tmp_path / "store", port, **EXPRESS_ONLY) as (store, uplink):
            state, spool = uplink.shipper.state, uplink.shipper.quota.spool
            await until(lambda: state.ledger.receipted.pick.covers(first, store.committed) and not spool.places())
    picks = [entry for entry in landed_entries(landing, "box-17") if entry.kind == "pick"]
    assert sum(entry.records for entry in picks) == 4


@pytest.mark.slow
async def test_express_records_that_were_kept_and_are_no_records_are_put_aside_after_three_refusals(
    tmp_path: Path,
) -> None:
    async with box(tmp_path / "store", 1, **EXPRESS_ONLY) as (store, uplink):
        await overfill(store, uplink, ["alarm"] * 12)
        spool = uplink.shipper.quota.spool
        header = next(spool.pieces()).header
    source = PieceSource(header.box, header.epoch, header.run, header.run_start, header.cut_ms, header.clock_ok)
    contents = PieceContents("pick", header.start, header.end, b"?" * 97, pick=("alarm",))
    path = spool._path((header.start, header.end))
    path.write_bytes(encode_piece(source, contents, "zlib")[1])  # whole, but what it holds was no record any more
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port, **EXPRESS_ONLY) as (store, uplink):
        ledger = uplink.shipper.state.ledger
        await until(lambda: not uplink.shipper.quota.spool.places())
        await until(lambda: ledger.receipted.pick.covers(store.first, store.committed))
        await until(lambda: "spool_refused" in uplink.statistics().alarms)  # told once the piece has been put aside
        seen = uplink.statistics()
        assert (seen.counts.refused, set(seen.alarms)) == ({"bad_records": 3}, {"spool_refused"})
        assert f"the piece is in {path.parent}/refused/{path.name}" in seen.alarms["spool_refused"]
    picks = [entry for entry in landed_entries(tmp_path / "landing", "box-17") if entry.kind == "pick"]
    assert sum(entry.records for entry in picks) == 12 - header.records
    assert len(list((tmp_path / "landing/quarantine").iterdir())) == 3


@pytest.mark.slow
async def test_a_declared_loss_is_final_when_the_file_was_still_there_at_the_crash(tmp_path: Path) -> None:
    async with box(tmp_path / "store", 1) as (store, uplink):
        await fill(store, 6_000)
        for gap in uplink.shipper.quota._gaps_of(0, 5 * MIB, "quota_bytes"):
            uplink.shipper.state.ledger.gaps.declare(gap)  # as after a crash between the gap and the unlink
        assert store.first == 0
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await until(lambda: store.first == 5 * MIB)
        await until(lambda: uplink.shipper.state.ledger.receipted.log.covers(5 * MIB, store.committed))
        await until(lambda: not uplink.shipper.state.ledger.gaps.undelivered())
    assert min(landed_log(tmp_path / "landing", "box-17")) == 5 * MIB


@pytest.mark.slow
async def test_reject_new_refuses_until_receipts_lift_it(tmp_path: Path) -> None:
    settings: dict[str, object] = {"max_lag_bytes": 1 * MIB, "when_full": "reject_new"}
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port, **settings) as (store, uplink):
        uplink.shipper.state.set_paused(True)
        await fill(store, 2_000)
        await uplink.shipper.quota.look()
        assert "uplink quota: 0.0 GiB unshipped, oldest" in str(uplink.refusal())
        uplink.note_rejected("T", "reject_new")
        uplink.shipper.state.set_paused(False)
        await until(lambda: uplink.statistics().unshipped_bytes == 0)
        await uplink.shipper.quota.look()
        assert uplink.refusal() is None
        assert store.first == 0


@pytest.mark.slow
async def test_uplink_switched_on_late_begins_with_one_never_receipted_gap(tmp_path: Path) -> None:
    from storage_driver.log.clock import wall_ms
    from storage_driver.store import open_store
    from uplink_spark.testing_site import store_config

    async with open_store(store_config(tmp_path / "store"), now_ms=wall_ms) as store:
        await fill(store, 12_000)
        await store.drop_first()
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await until(lambda: uplink.shipper.state.ledger.receipted.log.covers(5 * MIB, store.committed))
        await until(lambda: not uplink.shipper.state.ledger.gaps.undelivered())
    gaps = [e for e in landed_entries(tmp_path / "landing", "box-17") if e.kind == "gap"]
    assert [(g.start, g.end, (g.gap or {})["reason"]) for g in gaps] == [(0, 5 * MIB, "never_receipted")]
    assert (gaps[0].gap or {})["records"] > 4000
