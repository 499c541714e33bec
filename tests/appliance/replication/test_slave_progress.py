"""What a slave may report, and how long it may say nothing."""

import pytest

from appliance.replication.slave_progress import BEYOND, FLOOD, SPARE_REPORTS, SlaveProgress, SlaveRefused


def test_a_slave_reports_up_to_what_it_was_sent_and_no_further() -> None:
    progress = SlaveProgress(0.0)
    progress.note_reports([0], 5.0)
    progress.begin(1000)
    progress.note_sent(3000, 2, 5.0)
    progress.note_reports([0, 2000, 3000], 6.0)
    assert (progress.reported, progress.position) == (3000, 3000)
    with pytest.raises(SlaveRefused, match="reports 3001, it was sent the log up to 3000") as refused:
        progress.note_reports([3001, 10], 7.0)
    assert (refused.value.reason, progress.reported) == (BEYOND, 3000)


def test_more_reports_than_slices_are_a_flood() -> None:
    progress = SlaveProgress(0.0)
    progress.note_reports([0] * SPARE_REPORTS, 0.0)
    progress.begin(0)
    progress.note_sent(0, 10, 0.0)
    progress.note_reports([0] * 10, 0.0)
    with pytest.raises(SlaveRefused) as refused:
        progress.note_reports([0], 0.0)
    assert refused.value.reason == FLOOD


def test_a_slave_that_reports_every_five_seconds_never_floods() -> None:
    progress = SlaveProgress(0.0)
    progress.begin(0)
    for second in range(0, 100_000, 5):
        progress.note_reports([0], second)
    assert progress.reported == 0


def test_heartbeats_are_due_five_seconds_after_what_was_sent_last() -> None:
    progress = SlaveProgress(0.0)
    assert progress.heartbeat_in_s(1.0) == 4.0
    progress.note_sent(10, 1, 3.0)
    assert (progress.heartbeat_in_s(3.0), progress.heartbeat_in_s(9.0)) == (5.0, 0.0)


def test_silence_ends_twenty_seconds_after_the_last_word() -> None:
    progress = SlaveProgress(0.0)
    progress.note_reports([5], 12.0)
    progress.note_reports([], 15.0)  # a part of the next
    assert (progress.silence_left_s(12.0), progress.silence_left_s(33.0)) == (20.0, -1.0)
