"""A landing zone on a real file system that is full, read-only or covered: no receipt, nothing lost, on by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from storage_driver.record import Message
from tests.uplink_spark.small_disk import ALLOWED, NO_MOUNTS, SmallDisk
from uplink_spark.box.shipper import Uplink
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import HOST, box, shipped
from uplink_spark.wire.intervals import Intervals

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ALLOWED, reason=NO_MOUNTS),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "landing", "8m")
    yield made
    made.end()


async def impatiently(uplink: Uplink, done: Callable[[], bool]) -> None:
    """Wait, and for no back-off."""
    with trio.fail_after(90):
        while not done():
            uplink.shipper.state.ship_now()
            await trio.sleep(0.1)


async def test_a_landing_zone_that_fills_up_turns_read_only_or_is_covered_costs_time_alone(
    disk: SmallDisk, tmp_path: Path
) -> None:
    dice = random.Random(1)
    async with box(tmp_path / "store", disk.port) as (store, uplink):

        async def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                store.put(Message("T", number % 4, dice.randbytes(200_000), b"", 0, 0, 1_700_000_000_000, HOST))
                await store.wait_committed(store.end)  # senders notice nothing

        def errors(code: str) -> int:
            return uplink.statistics().counts.errors[code]

        await send(0, 80)
        await impatiently(uplink, lambda: errors("full") > 0)
        assert not shipped(store, uplink)()
        await send(80, 5)
        held = Intervals((entry.start, entry.end) for entry in landed_entries(disk.seen, "box-17"))
        assert all(held.covers(*part) for part in uplink.shipper.state.ledger.receipted.log)
        disk.grow("100m")
        await impatiently(uplink, shipped(store, uplink))
        with disk.read_only():
            await send(85, 5)
            await impatiently(uplink, lambda: errors("internal") > 0)
            assert "Read-only file system" in uplink.statistics().last_error
            assert not shipped(store, uplink)()
        await impatiently(uplink, shipped(store, uplink))
        with disk.covered():
            await send(90, 5)
            await impatiently(uplink, lambda: "another file system" in uplink.statistics().last_error)
            assert not shipped(store, uplink)()
            assert list(disk.seen.iterdir()) == []
        await impatiently(uplink, shipped(store, uplink))
        assert uplink.statistics().alarms == {}
    assert len(landed_log(disk.seen, "box-17")) == 95
    assert {entry.kind for entry in landed_entries(disk.seen, "box-17")} == {"log"}
