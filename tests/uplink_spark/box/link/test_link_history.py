"""The link so far: a full gateway, the time of the connection and of the last receipt."""

from __future__ import annotations

from uplink_spark.box.link.link_history import FULL_S, LinkHistory


def test_a_gateway_is_full_when_its_window_was_0_for_ten_minutes() -> None:
    link = LinkHistory()
    assert not link.is_full(5000.0)
    link.note_window(0, 100.0)
    link.note_window(0, 300.0)
    assert not link.is_full(100.0 + FULL_S)
    assert link.is_full(101.0 + FULL_S), "since the first"
    link.note_window(1, 800.0)
    assert not link.is_full(5000.0)


def test_times_are_unknown_before_there_was_a_link() -> None:
    link = LinkHistory()
    assert (link.connected_s(7.0), link.last_receipt_s(7.0)) == (0.0, None)
    link.connected_since, link.last_receipt_at = 2.0, 6.0
    assert (link.connected_s(7.0), link.last_receipt_s(7.0)) == (5.0, 1.0)
