"""Restored, cloned and repaired disks: real store folders, the fork is where it must be, every row once."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from storage_driver.store import open_store
from tests.ports import free_port
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import box, fill, gateway, message, shipped, store_config, until

pytestmark = pytest.mark.slow


async def write_and_ship(root: Path, port: int, first: int, count: int) -> tuple[int, int]:
    """Append and ship; return epoch and durable end."""
    async with box(root, port) as (store, uplink):
        for number in range(first, first + count):
            store.put(message(number))
        await store.wait_committed(store.end)
        await until(shipped(store, uplink))
        return store.lineage.epochs[-1][0], store.committed


def epochs_of(landing: Path) -> list[tuple[int, int, int]]:
    """Epoch, lowest and highest landed offset, in the order they first landed."""
    seen: dict[int, tuple[int, int]] = {}
    for entry in landed_entries(landing, "box-17"):
        low, high = seen.get(entry.epoch, (entry.start, entry.end))
        seen[entry.epoch] = (min(low, entry.start), max(high, entry.end))
    return [(epoch, *span) for epoch, span in seen.items()]


async def test_an_older_image_of_the_disk_forks_where_it_was_taken(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        old, taken = await write_and_ship(tmp_path / "store", port, 0, 80)
        shutil.copytree(tmp_path / "store", tmp_path / "image")
        _, ahead = await write_and_ship(tmp_path / "store", port, 80, 120)
        new, end = await write_and_ship(tmp_path / "image", port, 1000, 60)
    assert old != new
    assert epochs_of(tmp_path / "landing") == [(old, 0, ahead), (new, taken, end)]


async def test_a_wiped_box_begins_a_new_epoch_at_0(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        old, end = await write_and_ship(tmp_path / "store", port, 0, 80)
        new, begun = await write_and_ship(tmp_path / "fresh", port, 0, 30)
    assert epochs_of(tmp_path / "landing") == [(old, 0, end), (new, 0, begun)]


async def test_two_disks_with_one_name_ship_exactly_and_are_called_twins(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        await write_and_ship(tmp_path / "store", port, 0, 50)
        shutil.copytree(tmp_path / "store", tmp_path / "clone")
        for turn in range(3):
            await write_and_ship(tmp_path / "store", port, 100 * turn + 100, 20)
            await write_and_ship(tmp_path / "clone", port, 100 * turn + 1100, 20)
    ranges = sorted((e.epoch, e.start, e.end) for e in landed_entries(tmp_path / "landing", "box-17"))
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(ranges))
    assert len({epoch for epoch, _, _ in ranges}) == 2


async def test_another_landing_zone_gets_everything_that_is_on_disk(tmp_path: Path) -> None:
    async with gateway(tmp_path / "one") as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
    async with gateway(tmp_path / "two") as port:
        _, end = await write_and_ship(tmp_path / "store", port, 80, 10)
    assert [(low, high) for _, low, high in epochs_of(tmp_path / "two")] == [(0, end)]


async def zone_doubts(port: int) -> list[str]:
    """What the gateway's metrics say of boxes that know of another zone."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as scrape:
        await scrape.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join([part async for part in scrape]).decode()
    return [line.partition("_total")[2] for line in text.splitlines() if line.startswith("rocketbox_gateway_zone_dou")]


async def test_a_landing_zone_that_is_not_mounted_is_told_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing, metrics = tmp_path / "landing", free_port()
    async with gateway(landing) as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
    landing.rename(tmp_path / "unmounted")
    landing.mkdir()
    caplog.clear()
    async with gateway(landing, metrics=("127.0.0.1", metrics)) as port:
        assert f"landing zone {landing} is new; if it should exist" in caplog.text
        await write_and_ship(tmp_path / "store", port, 80, 10)
        assert await zone_doubts(metrics) == ['{zone="older"} 0.0', '{zone="other"} 1.0']
        await write_and_ship(tmp_path / "store", port, 90, 10)
        assert await zone_doubts(metrics) == ['{zone="older"} 0.0', '{zone="other"} 1.0']  # told once
    assert "is the right file system mounted there?" in caplog.text
    assert "the box ships its log again" in caplog.text
    landing.rename(tmp_path / "made by mistake")
    (tmp_path / "unmounted").rename(landing)
    async with gateway(landing) as port:
        _, end = await write_and_ship(tmp_path / "store", port, 100, 10)
    assert [(low, high) for _, low, high in epochs_of(landing)] == [(0, end)]
    assert len(landed_log(landing, "box-17")) == 110
    assert {entry.kind for entry in landed_entries(landing, "box-17")} == {"log"}


async def test_a_landing_zone_that_was_set_back_to_an_older_copy_is_told_and_gets_what_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing, metrics = tmp_path / "landing", free_port()
    async with gateway(landing) as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
    shutil.copytree(landing, tmp_path / "copy")
    async with gateway(landing) as port:
        await write_and_ship(tmp_path / "store", port, 80, 10)
    shutil.rmtree(landing)
    (tmp_path / "copy").rename(landing)
    async with (
        gateway(landing, metrics=("127.0.0.1", metrics)) as port,
        box(tmp_path / "store", port) as (store, uplink),
    ):
        await until(lambda: "receipt_lost" in uplink.statistics().alarms)
        await until(shipped(store, uplink))
        assert await zone_doubts(metrics) == ['{zone="older"} 1.0', '{zone="other"} 0.0']
    assert "is it an older copy?" in caplog.text
    assert len(landed_log(landing, "box-17")) == 90


@pytest.mark.parametrize(
    ("zone", "why"), [("older", ("receipt_lost", "gateway_lost")), ("other", ("elsewhere", "landing_changed"))]
)
async def test_what_a_landing_zone_lacks_and_the_box_has_no_more_is_a_row_of_loss(
    tmp_path: Path, zone: str, why: tuple[str, str]
) -> None:
    landing = tmp_path / "landing"
    async with gateway(landing):
        pass
    shutil.copytree(landing, tmp_path / "older", ignore=shutil.ignore_patterns("*.sock"))
    async with gateway(landing) as port, box(tmp_path / "store", port) as (store, uplink):
        await fill(store, 6_000)
        await store.prove()  # queue files tell what is lost
        await until(shipped(store, uplink))
        await store.drop_first()
    async with gateway(tmp_path / zone) as port, box(tmp_path / "store", port) as (store, uplink):
        first, ledger = store.first, uplink.shipper.state.ledger
        await until(lambda: bool(ledger.gaps.log.gaps))
        await until(lambda: not ledger.gaps.undelivered() and ledger.receipted.log.covers(first, store.committed))
        assert ("receipt_lost" in uplink.statistics().alarms) == (zone == "older")
    entries = landed_entries(tmp_path / zone, "box-17")
    (gap,) = (entry for entry in entries if entry.kind == "gap")
    assert (gap.start, gap.end, (gap.gap or {})["class"], (gap.gap or {})["reason"]) == (0, first, *why)
    assert first == 5 << 20
    assert (gap.gap or {})["records"] + len(landed_log(tmp_path / zone, "box-17")) == 6_000


async def test_a_lost_state_file_costs_only_a_question(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
        (tmp_path / "store" / "rocketbox" / "uplink.cbor").write_bytes(b"\xff damaged")
        async with box(tmp_path / "store", port) as (store, uplink):
            await until(shipped(store, uplink))
            assert uplink.shipper.state.counts.raw_bytes == 0
            assert uplink.shipper.state.ledger.damage is not None


async def test_a_landing_zone_that_lost_packs_and_their_list_is_told_and_gets_what_is_left(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
    (manifest,) = (tmp_path / "landing" / "manifest" / "0000").glob("*.log")
    manifest.write_bytes(manifest.read_bytes()[:16])
    shutil.rmtree(tmp_path / "landing/pack")
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await until(lambda: "receipt_lost" in uplink.statistics().alarms)
        await until(shipped(store, uplink))
    assert [(low, high) for _, low, high in epochs_of(tmp_path / "landing")] == [(0, store.committed)]


async def test_a_landing_zone_that_lost_the_list_of_its_packs_alone_lacks_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        await write_and_ship(tmp_path / "store", port, 0, 80)
    before = [(e.seq, e.start, e.end) for e in landed_entries(tmp_path / "landing", "box-17")]
    (manifest,) = (tmp_path / "landing" / "manifest" / "0000").glob("*.log")
    manifest.write_bytes(manifest.read_bytes()[:16])
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        await until(shipped(store, uplink))
        assert (uplink.statistics().alarms, uplink.statistics().counts.raw_bytes) == ({}, 0)
    assert [(e.seq, e.start, e.end) for e in landed_entries(tmp_path / "landing", "box-17")] == before


async def test_what_recovery_had_to_cover_before_it_was_shipped_is_declared_and_the_rest_lands(tmp_path: Path) -> None:
    root = tmp_path / "data/store"
    async with open_store(store_config(root), now_ms=wall_ms) as store:
        placed = [store.put(message(number)) for number in range(60)]
        await store.wait_committed(store.end)
    bad = placed[20:22]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as segment:
        for each in bad:
            segment.seek(each.log_offset + 100)
            segment.write(b"scratch")
    (root / "rocketbox/position").unlink()
    async with open_store(store_config(root), now_ms=wall_ms) as store:
        assert store.verdict.verdict == "salvaged"  # and the machine goes off before its uplink has begun
    async with gateway(tmp_path / "landing") as port, box(root, port) as (store, uplink):
        ledger = uplink.shipper.state.ledger
        await until(
            lambda: not ledger.gaps.undelivered() and not ledger.unshipped(0, store.committed) and bool(store.committed)
        )
        assert uplink.statistics().counts.gaps["damaged"] >= 1
        assert uplink.shipper.state.status_frame().verdict == store.verdict.verdict == "clean"
        ledger.save()
        assert uplink.may_release(0, store.committed)
    entries = landed_entries(tmp_path / "landing", "box-17")
    gaps = sorted((e.start, e.end, (e.gap or {})["class"], (e.gap or {})["reason"]) for e in entries if e.kind == "gap")
    assert {gap[2:] for gap in gaps} == {("damaged", "repair")}
    assert (gaps[0][0], gaps[-1][1]) == (bad[0].log_offset, bad[-1].end)
    good = [each.log_offset for each in placed if each not in bad]
    assert sorted(landed_log(tmp_path / "landing", "box-17")) == good
    async with gateway(tmp_path / "landing") as port, box(root, port) as (store, uplink):
        await until(lambda: uplink.statistics().connected)
        assert len(uplink.shipper.state.ledger.gaps.log.gaps) == len(gaps)  # told once


async def test_a_clone_under_a_name_of_its_own_is_another_box(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        epoch, taken = await write_and_ship(tmp_path / "store", port, 0, 60)
        shutil.copytree(tmp_path / "store", tmp_path / "clone")
        async with box(tmp_path / "clone", port, box="box-18") as (store, uplink):
            store.put(message(100))
            await store.wait_committed(store.end)
            await until(lambda: uplink.statistics().unshipped_bytes == 0)
        assert (await write_and_ship(tmp_path / "store", port, 60, 10))[0] == epoch
    theirs = landed_entries(tmp_path / "landing", "box-18")
    assert (min(e.start for e in theirs), {e.epoch for e in theirs}) == (0, {epoch})
    assert max(e.end for e in theirs) > taken
    assert [low for _, low, _ in epochs_of(tmp_path / "landing")] == [0]


async def test_durable_bytes_that_a_disk_lost_stay_at_the_centre_and_a_new_epoch_begins_there(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        old, ahead = await write_and_ship(tmp_path / "store", port, 0, 60)
        with (tmp_path / "store/commitlog" / f"{0:020d}").open("r+b") as segment:  # the disk lied about its newest page
            segment.seek(ahead - 1000)
            segment.write(bytes(1000))
        (tmp_path / "store/rocketbox/position").unlink()
        new, end = await write_and_ship(tmp_path / "store", port, 100, 20)
    assert old != new
    (first, second) = epochs_of(tmp_path / "landing")
    assert first == (old, 0, ahead)  # they were real: they stay
    assert (second[0], second[2]) == (new, end)
    assert second[1] < ahead


async def test_a_log_without_its_identity_begins_a_new_epoch_where_it_begins(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        old, end = await write_and_ship(tmp_path / "store", port, 0, 60)
        for name in ("identity.json", "identity.json.bak"):
            (tmp_path / "store/rocketbox" / name).unlink(missing_ok=True)
        new, more = await write_and_ship(tmp_path / "store", port, 60, 10)
    assert epochs_of(tmp_path / "landing") == [(old, 0, end), (new, 0, more)]
