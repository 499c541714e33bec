"""Figures of the shipper: when the quota will be reached."""

from __future__ import annotations

import pytest

from uplink_spark.box.figures import quota_left_s


@pytest.mark.parametrize(
    ("quota", "unshipped", "growth", "left_s"),
    [(0, 5, 10.0, -1.0), (100, 50, 10.0, 5.0), (100, 50, -1.0, -1.0), (100, 120, 10.0, 0.0), (100, 120, 0.0, 0.0)],
)
def test_the_time_until_the_quota_is_told(quota: int, unshipped: int, growth: float, left_s: float) -> None:
    assert quota_left_s(quota, unshipped, growth) == left_s
