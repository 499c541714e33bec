"""The whole way in one process: a real store, the shipper, a real gateway on loopback, the landing zone read back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storage_driver.log.clock import wall_ms
from storage_driver.log.lineage import Lineage
from storage_driver.store import open_store
from uplink_spark.testing import landed_log
from uplink_spark.testing_site import (
    MIB,
    box,
    fill,
    gateway,
    log_of,
    message,
    shipped,
    store_config,
    until,
    uplink_of,
)


@pytest.mark.slow
async def test_what_is_durable_is_landed_byte_for_byte_across_files_and_runs(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        for run in range(2):
            async with box(tmp_path / "store", port) as (store, uplink):
                for number in range(3000):
                    store.put(message(run * 3000 + number, 1000))
                    if not number % 100:
                        await store.wait_committed(store.end)
                await until(shipped(store, uplink))
                durable = store.committed
                records = landed_log(tmp_path / "landing", "box-17")
                assert uplink.shipper.state.counts.repeat_bytes == 0
                assert len(store.lineage.runs) == run + 1
        async with box(tmp_path / "store", port) as (store, uplink):
            whole = log_of(store)
    assert durable > 5 * MIB
    assert len(records) == 6000
    assert all(whole[at : at + len(record)] == record for at, record in records.items())


@pytest.mark.slow
async def test_the_gateway_away_and_back_costs_nothing_but_time(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        pass
    async with box(tmp_path / "store", port) as (store, uplink):
        for number in range(500):
            store.put(message(number))
        await until(lambda: uplink.shipper.state.counts.errors["tcp"] >= 2)
        async with gateway(tmp_path / "landing", port):
            await until(shipped(store, uplink))
        for number in range(500, 800):
            store.put(message(number))
        await until(lambda: not uplink.statistics().connected)
        async with gateway(tmp_path / "landing", port):
            await until(shipped(store, uplink))
        assert uplink.statistics().unshipped_bytes == 0
    assert len(landed_log(tmp_path / "landing", "box-17")) == 800


@pytest.mark.slow
async def test_a_second_connection_of_the_box_sends_only_what_is_missing(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        for run in range(3):
            async with box(tmp_path / "store", port) as (store, uplink):
                store.put(message(run))
                await until(shipped(store, uplink))
                counts = uplink.shipper.state.counts
                assert (counts.pieces["log"], counts.repeat_bytes) == (1, 0)


@pytest.mark.slow
async def test_a_ledger_that_cannot_be_opened_is_an_alarm_and_keeps_everything_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.box.shipper.LEDGER_S", 0.05)
    root = tmp_path / "store"
    folder = root / "rocketbox/gaps.log"
    async with gateway(tmp_path / "landing") as port, open_store(store_config(root), now_ms=wall_ms) as store:
        folder.mkdir()
        async with uplink_of(store, root, port) as uplink:
            await fill(store, 100)
            await until(lambda: "gaps.log" in uplink.shipper.state.alarms.get("ledger", ""))
            assert not uplink.may_release(0, 1)
            folder.rmdir()
            await until(shipped(store, uplink))
            assert uplink.shipper.state.alarms == {}


@pytest.mark.slow
async def test_a_ledger_that_was_damaged_is_an_alarm_until_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "store/rocketbox"
    folder.mkdir(parents=True)
    (folder / "uplink.cbor").write_bytes(bytes(4096))
    async with gateway(tmp_path / "landing") as port:
        for told in (True, False):
            async with box(tmp_path / "store", port) as (store, uplink):
                await fill(store, 10)
                await until(shipped(store, uplink))
                assert ("a pause" in uplink.shipper.state.alarms.get("ledger_damaged", "")) == told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uplink.cbor", "gaps.log"])
async def test_a_ledger_that_no_memory_holds_ends_no_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("uplink_spark.box.shipper.LEDGER_S", 0.05)
    file = tmp_path / "store/rocketbox" / name
    file.parent.mkdir(parents=True)
    file.touch()
    os.truncate(file, 8 << 40)
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await fill(store, 100)
        await until(lambda: name in uplink.shipper.state.alarms.get("ledger", ""))
        assert not uplink.may_release(0, 1)
        file.unlink()
        await until(shipped(store, uplink))


@pytest.mark.slow
async def test_a_ledger_that_cannot_be_saved_ends_no_box(tmp_path: Path) -> None:
    folder = tmp_path / "store/rocketbox/uplink.cbor.tmp"
    folder.mkdir(parents=True)
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await fill(store, 100)
        await until(lambda: uplink.shipper.state.counts.pieces["log"] > 0 or bool(uplink.shipper.state.counts.errors))


@pytest.mark.slow
async def test_nothing_is_shipped_before_it_is_on_disk_what_travels_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uplink_spark.box.shipper.LEDGER_S", 0.05)
    save, full = Lineage.save, True

    def saved(lineage: Lineage) -> None:
        if full and lineage.express:
            raise OSError(errno.ENOSPC, "No space left on device", "identity.json.tmp")
        save(lineage)

    monkeypatch.setattr(Lineage, "save", saved)
    async with (
        gateway(tmp_path / "landing") as port,
        box(tmp_path / "store", port, express=("fast",)) as (store, uplink),
    ):
        await fill(store, 100)
        await until(lambda: "identity.json.tmp" in uplink.shipper.state.alarms.get("ledger", ""))
        assert not uplink.shipper.state.counts.connects
        full = False
        await until(shipped(store, uplink))
        assert uplink.shipper.state.ledger.switches == store.lineage.express != []


@pytest.mark.slow
async def test_a_file_may_go_only_when_all_of_it_is_receipted_and_saved(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        ledger = uplink.shipper.state.ledger
        store.put(message(1))
        await store.wait_committed(store.end)
        assert not uplink.may_release(0, store.committed)
        await until(shipped(store, uplink))
        assert not uplink.may_release(0, store.committed)  # receipted, but not yet on the disk
        ledger.save()
        assert uplink.may_release(0, store.committed)
        assert not uplink.may_release(0, store.committed + 1)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 4096 * 100])
async def test_what_a_recovery_skipped_behind_a_log_that_lost_its_end_does_not_wait(tmp_path: Path, left: int) -> None:
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await fill(store, 6000)
        await until(shipped(store, uplink))
        await store.prove()
    os.truncate(tmp_path / "store/commitlog" / f"{5 * MIB:020d}", left)
    async with box(tmp_path / "store", port) as (store, uplink):
        await until(lambda: bool(uplink.shipper.state.ledger.gaps.covered))
        assert (store.end, uplink.statistics().unshipped_bytes) == (10 * MIB, 0)
        await fill(store, 10)
        assert (
            uplink.statistics().unshipped_bytes == uplink.shipper.quota.facts().unshipped_bytes == store.end - 10 * MIB
        )
    async with gateway(tmp_path / "landing", port), box(tmp_path / "store", port) as (store, uplink):
        await until(lambda: not uplink.shipper.state.ledger.unshipped(0, store.end))
        assert {gap.facts["reason"] for gap in uplink.shipper.state.ledger.gaps.log.gaps} == {"repair"}
