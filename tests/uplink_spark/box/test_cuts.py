"""What a member of a group took back is one row at the centre, whoever declares it, with the range that it had."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from storage_driver.log.lineage import AloneRange, CutTold
from storage_driver.store import open_store
from uplink_spark.box.cuts import declare_cuts
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.report import gap_rows as rows_of_box
from uplink_spark.box.shipper import make_uplink
from uplink_spark.config import UplinkConfig
from uplink_spark.jobs.gaps import gap_rows
from uplink_spark.testing import landed_entries
from uplink_spark.testing_site import fill, gateway, store_config, until

pytestmark = pytest.mark.slow
CUT = CutTold("a", 99, 400, 900, 1_700_000_000_000, 3)


async def declared(root: Path, port: int, cuts: list[CutTold], alone: list[AloneRange]) -> Gap:
    """Run a box that knows of the cut, or of what was acknowledged alone, when it connects; return what it declared."""
    async with open_store(store_config(root), now_ms=wall_ms) as store, trio.open_nursery() as nursery:
        await fill(store, 10)
        store.lineage.cuts, store.lineage.alone_told = cuts, alone
        config = UplinkConfig(gateway=f"127.0.0.1:{port}", box="box-17", max_delay_s=0.05)
        shipper = make_uplink(store, config, root, clock_ok=lambda: True).shipper
        nursery.start_soon(shipper.run)
        gaps = shipper.state.ledger.gaps
        await until(lambda: bool(gaps.log.gaps) and not gaps.undelivered())
        await declare_cuts(shipper.state)
        nursery.cancel_scope.cancel()
    [gap] = gaps.log.gaps
    return gap


async def test_a_cut_lands_once_with_its_own_epoch_and_range(tmp_path: Path) -> None:
    landing, root = tmp_path / "landing", tmp_path / "store"
    async with gateway(landing) as port:
        for _ in range(2):
            gap = await declared(root, port, [CUT], [])
            [row] = rows_of_box([gap], {gap.gap_id})
            assert (row["epoch"], row["from"], row["to"], row["class"]) == (f"{99:x}", 400, 900, "cut")
            (root / "rocketbox" / "gaps.log").unlink()  # the next leader knows nothing of what this one declared
            (root / "rocketbox" / "uplink.cbor").unlink()
    [entry] = [entry for entry in landed_entries(landing, "box-17") if entry.kind == "gap"]
    [row] = gap_rows([entry]).to_pylist()
    found = [row[name] for name in ("epoch", "from_offset", "to_offset", "class", "reason", "records")]
    assert found == [99, 400, 900, "cut", "diverged", 3]
    assert entry.start == entry.end == 400, "the offsets are those of other bytes now"


async def test_two_tasks_that_find_a_cut_together_declare_it_once(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path / "store"), now_ms=wall_ms) as store:
        await fill(store, 1)
        store.lineage.cuts = [CUT]
        config = UplinkConfig(gateway="127.0.0.1:1", box="box-17")
        state = make_uplink(store, config, tmp_path / "store", clock_ok=lambda: True).shipper.state
        async with trio.open_nursery() as nursery:
            nursery.start_soon(declare_cuts, state)
            nursery.start_soon(declare_cuts, state)
        assert len(state.ledger.gaps.log.gaps) == 1


async def test_what_one_disk_acknowledged_alone_is_told_once_and_is_no_loss(tmp_path: Path) -> None:
    landing, root = tmp_path / "landing", tmp_path / "store"
    async with gateway(landing) as port:
        gap = await declared(root, port, [], [AloneRange(100, 700, 1_700_000_000_000)])
        epoch = gap.epoch
        (root / "rocketbox" / "gaps.log").unlink()
        (root / "rocketbox" / "uplink.cbor").unlink()
        await declared(root, port, [], [AloneRange(100, 700, 1_700_000_000_000)])
    [entry] = [entry for entry in landed_entries(landing, "box-17") if entry.kind == "gap"]
    [row] = gap_rows([entry]).to_pylist()
    found = [row[name] for name in ("epoch", "from_offset", "to_offset", "class", "reason", "records")]
    assert found == [epoch, 100, 700, "alone", "solo", None]
    assert row["since"].timestamp() == 1_700_000_000
    assert entry.start == entry.end, "nothing of it is missing"
