"""Families of the gateway: histograms and labels as the format's parser reads them, and promtool's opinion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from uplink_spark.centre.gateway import open_landers
from uplink_spark.centre.histogram import BUCKETS_S, Histogram
from uplink_spark.centre.metric_families import exposition, histogram, read_families
from uplink_spark.config import GatewayConfig


def test_the_parser_reads_a_histogram_whose_buckets_never_fall() -> None:
    parts = [Histogram([0.001, 0.005, 0.0051]), Histogram([60.0])]
    (family,) = text_string_to_metric_families(exposition([histogram("h", "what", parts)]).decode())
    assert family.type == "histogram"
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name == "h_bucket"}
    assert list(buckets.values()) == sorted(buckets.values())
    assert (len(buckets), buckets["0.005"], buckets["0.01"], buckets["+Inf"]) == (len(BUCKETS_S) + 1, 2, 3, 4)
    assert {one.name: one.value for one in family.samples if not one.labels} == {"h_count": 4, "h_sum": 60.0111}


def test_nothing_measured_is_a_histogram_of_zeros() -> None:
    assert "h_count 0" in exposition([histogram("h", "what", [])]).decode()


@pytest.mark.parametrize("code", ['a"b\\c\nd', "\\n", "", "ü → 界", "}{,="])
def test_any_text_comes_back_from_the_parser(tmp_path: Path, code: str) -> None:
    with open_landers(GatewayConfig(str(tmp_path), ("127.0.0.1", 0)), lambda: 1_700_000_000_000) as (_, hub):
        hub.counts.refused[code] += 3
        text = exposition(read_families(hub)).decode()
    (family,) = [one for one in text_string_to_metric_families(text) if one.name == "rocketbox_gateway_refused"]
    assert [(one.labels, one.value) for one in family.samples] == [({"code": code}, 3.0)]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: sudo make system-packages")
def test_promtool_finds_nothing_to_say_about_names_kinds_and_help(tmp_path: Path) -> None:
    with open_landers(GatewayConfig(str(tmp_path), ("127.0.0.1", 0)), lambda: 1_700_000_000_000) as (_, hub):
        hub.disk_free, hub.certificate_ends_s = 1 << 30, 1_700_000_100
        text = exposition(read_families(hub))
    said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, b"")
