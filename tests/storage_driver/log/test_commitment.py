"""The mark `committed`: what is dispatched before it moves, and what is given up."""

from collections.abc import Sequence

from storage_driver.log.commitment import ALL, Commitment
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.pending import PendingAppend, PendingRecord, PendingRun
from storage_driver.record import MessageQueue, encode_topic

QUEUE = ConsumeQueue(MessageQueue("T", 0), encode_topic("T"))


def record(log_offset: int) -> PendingRecord:
    return PendingRecord(QUEUE, log_offset, 100, 0, 0, 0, b"")


def run(*log_offsets: int) -> PendingRun:
    sizes = [100] * len(log_offsets)
    return PendingRun(QUEUE, log_offsets[0], 0, 0, 0, log_offsets, sizes, [b""] * len(sizes))


class Seen:
    """A commitment, and the log offsets of what it dispatched."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.commitment = Commitment(0, self.dispatch)

    def dispatch(self, records: Sequence[PendingAppend]) -> int:
        self.offsets += [each.log_offset for each in records]
        return len(records)


def test_only_whole_records_below_the_mark_and_what_is_synced_are_committed() -> None:
    seen = Seen()
    seen.commitment.add([record(0), record(100), record(200)])
    seen.commitment.commit(250, 200)
    assert (seen.offsets, seen.commitment.mark.at, seen.commitment.dispatched) == ([0, 100], 200, 2)
    seen.commitment.commit(250, 300)
    assert (seen.offsets, seen.commitment.mark.at) == ([0, 100], 200)
    seen.commitment.commit(300, 300)
    assert (seen.offsets, seen.commitment.mark.at) == ([0, 100, 200], 300)


def test_a_cut_within_a_batch_gives_up_the_records_behind_it() -> None:
    seen = Seen()
    seen.commitment.add([record(0), run(100, 200, 300)])
    assert [each.log_offset for each in seen.commitment.cut(200)] == [200]
    seen.commitment.commit(400, 200)
    assert (seen.offsets, seen.commitment.mark.at) == ([0, 100], 200)


def test_nothing_behind_what_was_read_is_committed_before_it_is_read() -> None:
    seen = Seen()
    seen.commitment.adopt(0)
    seen.commitment.commit(200, 200)
    assert seen.commitment.mark.at == 0
    seen.commitment.take_read([record(0), record(100)], 200, end=200, synced=200)
    assert (seen.offsets, seen.commitment.mark.at, seen.commitment.read_to) == ([0, 100], 200, ALL)
