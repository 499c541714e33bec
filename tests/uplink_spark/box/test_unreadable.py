"""Sectors of the log that the disk does not give back, with a real store and gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from storage_driver.files import unreadable as sectors
from storage_driver.log.clock import wall_ms
from storage_driver.store import MessageStore, open_store
from tests.bad_disk import BLOCK, BadDisk
from uplink_spark.box import stick
from uplink_spark.box.cutting import holes
from uplink_spark.box.receipts import doubtful
from uplink_spark.box.shipper import Uplink, make_uplink
from uplink_spark.centre.sweep import sweep_box
from uplink_spark.centre.zone_files.landing import open_zone
from uplink_spark.config import UplinkConfig
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import MIB, fill, gateway, message, store_config, until
from uplink_spark.wire.intervals import Intervals

SIZE = 1000 + 91 + len("T") + len("KEYS\x01k")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubtful, "PATIENCE_S", 0.0)
    monkeypatch.setattr(holes, "AGAIN_S", 0.01)
    monkeypatch.setattr(sectors, "PAUSE_S", 0.0)


@asynccontextmanager
async def box(
    root: Path, port: int, *, disk: BadDisk, express: tuple[str, ...] = ()
) -> AsyncIterator[tuple[MessageStore, Uplink]]:
    config = UplinkConfig(gateway=f"127.0.0.1:{port}", box="box-17", max_delay_s=0.05, express=express)
    async with open_store(store_config(root), now_ms=wall_ms, disk=disk) as store:
        uplink = make_uplink(store, config, root, clock_ok=lambda: True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(uplink.run)
            yield store, uplink
            nursery.cancel_scope.cancel()


def settled(store: MessageStore, uplink: Uplink) -> bool:
    ledger = uplink.shipper.state.ledger
    return not ledger.unshipped(0, store.committed) and not ledger.gaps.undelivered()


def told(landing: Path) -> list[tuple[int, int, str, str]]:
    entries = [entry for entry in landed_entries(landing, "box-17") if entry.kind in ("gap", "blob")]
    return sorted(
        (e.start, e.end, (e.gap or {}).get("class", e.kind), (e.gap or {}).get("reason", "")) for e in entries
    )


@pytest.mark.slow
@pytest.mark.parametrize("express", [(), ("T",)])
async def test_what_is_readable_lands_on_both_sides_of_a_bad_sector_and_the_hole_is_told_once(
    tmp_path: Path, express: tuple[str, ...]
) -> None:
    root, landing, disk = tmp_path / "store", tmp_path / "landing", BadDisk()
    async with open_store(store_config(root), now_ms=lambda: 5) as store:
        await fill(store, 6000)
        await store.prove()
        end = store.committed
    first, second = 100 * BLOCK, 5 * MIB + 30 * BLOCK
    disk.bad = {
        f"commitlog/{0:020d}": [(first, first + 10)],
        f"commitlog/{5 * MIB:020d}": [(30 * BLOCK, 32 * BLOCK)],
    }
    hurt = [(at - at % SIZE, -(-until // SIZE) * SIZE) for at, until in ((first, first + BLOCK),)]
    async with gateway(landing) as port:
        for _ in range(3):
            async with box(root, port, disk=disk, express=express) as (store, uplink):
                await until(lambda: settled(store, uplink))
                assert uplink.statistics().unshipped_bytes == 0
            gaps = told(landing)
            assert [gap[2:] for gap in gaps] == [("damaged", "unreadable")] * 2
            assert gaps[0][:2] == hurt[0]
            assert gaps[1][0] <= second < second + 2 * BLOCK <= gaps[1][1] < second + 2 * BLOCK + 2 * SIZE
            records = landed_log(landing, "box-17") if not express else {}
            missing = Intervals([(0, end)])
            for at, record in records.items():
                missing.remove(at, at + len(record))
            lost = [gap[:2] for gap in gaps]
            assert express or [part for part in missing if part[1] - part[0] > SIZE + 8] == lost
            (root / "rocketbox/position").unlink(missing_ok=True)  # the next start finds and covers both


@pytest.mark.slow
async def test_nothing_is_given_up_at_once_nor_on_a_disk_that_gives_back_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubtful, "PATIENCE_S", 60.0)
    root, landing, disk = tmp_path / "store", tmp_path / "landing", BadDisk()
    async with gateway(landing) as port, box(root, port, disk=disk) as (store, uplink):
        store.put(message(0))
        await until(lambda: settled(store, uplink))
        uplink.shipper.state.set_paused(True)
        store.put(message(1, 3000))
        await store.wait_committed(store.end)
        disk.bad = {f"commitlog/{0:020d}": [(2 * SIZE, 2 * SIZE + 10)]}
        uplink.shipper.state.set_paused(False)
        await trio.sleep(0.5)
        assert uplink.statistics().unshipped_bytes > 3000
        monkeypatch.setattr(doubtful, "PATIENCE_S", 0.0)
        gaps, disk.gone = uplink.shipper.state.ledger.gaps, True
        for _ in range(2):
            await trio.sleep(0.5)
            assert gaps.log.gaps == []
            disk.cached[f"commitlog/{0:020d}"] = [(0, SIZE)]  # what was shipped last, as another sector was given up
            gaps.doubtful.note_given_up(trio.current_time())
        disk.gone, disk.bad = False, {}
        uplink.shipper.state.ship_now()
        await until(lambda: settled(store, uplink))
    assert told(landing) == []


@pytest.mark.slow
async def test_a_stick_carries_both_sides_of_a_bad_sector_and_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stick, "PATIENCE_S", 0.01)
    monkeypatch.setattr(doubtful, "PATIENCE_S", 0.005)
    root, target, landing, disk = tmp_path / "data/store", tmp_path / "stick", tmp_path / "landing", BadDisk()
    async with box(root, 1, disk=disk) as (store, uplink):
        await fill(store, 300)
        disk.bad = {f"commitlog/{0:020d}": [(10 * BLOCK, 10 * BLOCK + 1)]}
        shipper = uplink.shipper
        await stick.export_pieces(shipper.state, shipper.quota.spool, target, b"secret", "zlib")
        gaps = shipper.state.ledger.gaps.undelivered()
        assert [gap.facts["reason"] for gap in gaps] == ["unreadable"]
    open_zone(landing)
    await trio.to_thread.run_sync(partial(sweep_box, landing, target / "box-17", secret=b"secret", now_ms=wall_ms))
    assert told(landing) == [(gaps[0].start, gaps[0].end, "damaged", "unreadable")]
    start, end = 10 * BLOCK // SIZE * SIZE, -(-11 * BLOCK // SIZE) * SIZE
    assert (gaps[0].start, gaps[0].end) == (start, end)
    assert len(landed_log(landing, "box-17")) == 300 - (end - start) // SIZE
