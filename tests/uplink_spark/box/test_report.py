"""What a box says about its uplink: status, health, gaps, and the step-by-step test of the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from uplink_spark.box.report import gap_rows, healthy, size, span, status_json, status_text, try_uplink
from uplink_spark.box.shipper import Uplink
from uplink_spark.testing_site import box, gateway, message, shipped, until


def test_sizes_and_spans_are_short() -> None:
    assert (size(5), size(2048), size(41.2 * (1 << 30))) == ("5 B", "2.0 KiB", "41.2 GiB")
    assert (span(0.8), span(3600), span(20_400), span(187_200)) == ("0.8 s", "60 min", "5 h 40 min", "2 d 4 h")


async def tried(uplink: Uplink) -> list[tuple[str, bool]]:
    shipper = uplink.shipper
    lines = await try_uplink(shipper.state, shipper.state.config, shipper.hello)
    return [(line.step, line.ok) for line in lines]


@pytest.mark.slow
async def test_a_connected_uplink_is_healthy_and_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(shipped(store, uplink))
        status = uplink.statistics()
        assert healthy(status)
        assert f"connected to 127.0.0.1:{port}" in status_text(status)
        assert json.loads(json.dumps(status_json(status)))["unshipped_bytes"] == 0
        assert await tried(uplink) == [("connect", True), ("tls", True), ("hello", True)]
        store.put(message(2))
        await until(shipped(store, uplink))  # whose connection the test had ended


@pytest.mark.slow
async def test_an_uplink_without_gateway_says_why_and_what_to_do(tmp_path: Path) -> None:
    async with box(tmp_path / "store", 1) as (store, uplink):
        store.put(message(1))
        await store.wait_committed(store.end)
        await until(lambda: uplink.shipper.state.counts.errors["tcp"] > 0)
        status = uplink.statistics()
        assert not healthy(status)
        assert "not connected to 127.0.0.1:1" in status_text(status)
        assert "holds 60 min more" in status_text(replace(status, quota_left_s=3600))
        assert "unshipped log is at its limit" in status_text(replace(status, quota_left_s=0))
        assert await tried(uplink) == [("tcp", False)]
        await uplink.shipper.quota.discard(store.committed, "test")
        (row,) = gap_rows(uplink.shipper.state.ledger.gaps.log.gaps, uplink.shipper.state.ledger.gaps.delivered)
        assert (row["class"], row["reason"], row["receipted"]) == ("missing", "operator", False)
        uplink.shipper.state.set_paused(True)
        assert "paused" in status_text(uplink.statistics())
