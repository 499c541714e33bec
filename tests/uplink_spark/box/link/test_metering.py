"""Bytes on the wire: those of a month on metered interfaces, the cap in force, a clock that is far off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from uplink_spark.box.caps import KBIT, MIN_BURST, MonthUse
from uplink_spark.box.figures import ShipperCounts
from uplink_spark.box.link.metering import Metering
from uplink_spark.box.receipts.ledger import Ledger
from uplink_spark.config import Metered, UplinkConfig

NOW = 1_700_000_000_000


def metering(root: Path, now_ms: Callable[[], int], *, kbit_s: int = 0) -> tuple[Metering, Ledger, ShipperCounts]:
    ledger, counts = Ledger(root / "rocketbox"), ShipperCounts()
    rules = Metered(("wwan0",), month_mbytes=1)
    config = UplinkConfig(gateway="127.0.0.1", box="box-17", metered=rules, kbit_s=kbit_s)
    return Metering(config, ledger, counts, now_ms=now_ms, clock_ok=lambda: True), ledger, counts


async def test_bytes_of_a_month_count_on_metered_interfaces_and_begin_anew_with_the_next(tmp_path: Path) -> None:
    now = [NOW]
    meter, ledger, counts = metering(tmp_path, lambda: now[0])
    meter.count(500)
    assert (counts.wire_bytes, ledger.month.wire_bytes) == (500, 0), "not on a metered line"
    assert meter.allowed().backlog
    meter.on_metered = True
    meter.count(300)
    meter.count(200)
    month = meter.local_time().strftime("%Y-%m")
    assert (counts.wire_bytes, ledger.month) == (1000, MonthUse(month, 500))
    assert (meter.max_delay_s(), meter.allowed().backlog) == (300.0, False)
    now[0] += 40 * 86_400_000
    assert meter.month_use().wire_bytes == 0
    meter.count(7)
    assert ledger.month.wire_bytes == 7
    assert ledger.month.month > month


@pytest.mark.parametrize("now_ms", [-1, 0, 1 << 62, 253_402_300_800_000])
async def test_a_clock_that_is_far_off_is_no_error(tmp_path: Path, now_ms: int) -> None:
    meter, _, _ = metering(tmp_path, lambda: now_ms)
    assert 1969 <= meter.local_time().year <= 9999
    meter.on_metered = True
    meter.count(1)
    assert meter.month_use().wire_bytes == 1


async def test_bytes_wait_for_the_cap_in_force_and_are_counted(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    free, _, _ = metering(tmp_path, lambda: NOW)
    assert not await free.wait_for(10 * MIN_BURST)
    capped, _, counts = metering(tmp_path, lambda: NOW, kbit_s=100)
    began = trio.current_time()
    assert await capped.wait_for(MIN_BURST), "the burst is free"
    assert trio.current_time() == began
    assert await capped.wait_for(1000 * KBIT)
    assert trio.current_time() == pytest.approx(began + 10)
    capped.caps.gateway_rate = 50 * KBIT
    assert capped.cap() == 50 * KBIT
    assert counts.wire_bytes == MIN_BURST + 1000 * KBIT
