"""What the table told: rows, ends that hold only where the scan begins behind the table, each queue looked at once."""

from storage_driver.queues.queue_table import QueueRow, QueueTable
from storage_driver.record import MessageQueue
from storage_driver.recovery.noted_queues import NotedQueues

KEY = MessageQueue("T", 0)
ROW = QueueRow(KEY, 25, 0, 7000)


def test_ends_hold_when_the_scan_begins_where_the_table_was_complete_or_behind() -> None:
    seen = []
    for as_of in (5000, 6000, 7000):
        noted = NotedQueues()
        assert noted.check(QueueTable(as_of, [ROW]), 6000) == {KEY: ROW}
        seen.append((noted.must_reach(ROW), noted.made_end(None), noted.made_end(ROW)))
    assert seen == [(25, -1, 25), (25, 0, 25), (0, 0, 25)]


def test_a_queue_is_looked_at_once_when_the_table_is_trusted_and_never_again_otherwise() -> None:
    noted = NotedQueues()
    assert not noted.to_look_at(KEY), "load looks at all of them"
    noted.trust()
    assert [noted.to_look_at(KEY), noted.to_look_at(KEY)] == [True, False]


def test_an_end_stays_noted_for_the_rebuild() -> None:
    noted = NotedQueues()
    noted.note(None)
    assert noted.end_of(KEY) == 0
    noted.note(ROW)
    assert noted.end_of(KEY) == 25
