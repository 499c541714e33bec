"""Who knows how far the log was durable."""

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.queues.queue_table import QueueRow, QueueTable
from storage_driver.record import SMALLEST_RECORD, MessageQueue
from storage_driver.recovery.witnesses import Witnesses


def test_each_witness_counts_and_the_farthest_is_the_reach() -> None:
    witnesses = Witnesses()
    table = QueueTable(300, [QueueRow(MessageQueue("T", 0), 5, 0, 400)])
    witnesses.add_all(CheckpointValues(350, 0, 0, 0, bytes(16)), table, {"the index": 200})
    assert witnesses.said == {
        "the saved position": 350,
        "the table of queues": 400 + SMALLEST_RECORD,
        "the index": 200,
    }
    assert witnesses.reach == 400 + SMALLEST_RECORD
    assert set(witnesses.beyond(349)) == {"the saved position", "the table of queues"}


def test_nothing_speaks_when_nothing_is_there() -> None:
    witnesses = Witnesses()
    witnesses.add_all(None, QueueTable(-1, []), {})
    assert (witnesses.said, witnesses.reach) == ({}, 0)


def test_what_was_told_as_lost_before_is_not_said_again() -> None:
    witnesses = Witnesses(known_to=500)
    witnesses.add("the index", 500)
    assert witnesses.reach == 0
    witnesses.add("the index", 501)
    assert witnesses.reach == 501
