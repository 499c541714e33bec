"""Records that were appended and are not committed yet."""

from bisect import bisect_left
from collections.abc import Sequence

from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ConsumeQueue


class PendingRecord:
    """An appended record that is not durable yet."""

    __slots__ = ("log_offset", "properties", "queue", "queue_offset", "size", "stored_ms", "sys_flag")

    def __init__(
        self,
        queue: ConsumeQueue,
        log_offset: int,
        size: int,
        queue_offset: int,
        sys_flag: int,
        stored_ms: int,
        properties: bytes,
    ) -> None:
        self.queue, self.log_offset, self.size, self.queue_offset = queue, log_offset, size, queue_offset
        self.sys_flag, self.stored_ms, self.properties = sys_flag, stored_ms, properties


class PendingRun(NamedTuple):
    """Records of one batch, one after the other in the log and in one queue; not durable yet."""

    queue: ConsumeQueue
    log_offset: int  # of the first, as queue_offset
    queue_offset: int
    sys_flag: int
    stored_ms: int
    log_offsets: Sequence[int]
    sizes: Sequence[int]
    properties: Sequence[bytes]


def split_run(run: PendingRun, log_offset: int) -> tuple[PendingRun, PendingRun]:
    """Return the records of a run below a log offset, where one of them begins, and the others: some of each."""
    at = bisect_left(run.log_offsets, log_offset)
    queue, first, number, sys_flag, stored_ms, log_offsets, sizes, properties = run
    below = log_offsets[:at], sizes[:at], properties[:at]
    above = log_offsets[at:], sizes[at:], properties[at:]
    return (
        PendingRun(queue, first, number, sys_flag, stored_ms, *below),
        PendingRun(queue, log_offset, number + at, sys_flag, stored_ms, *above),
    )


PendingAppend = PendingRecord | PendingRun


def end_of(record: PendingAppend) -> int:
    """Return the log offset just past a record or a batch."""
    if isinstance(record, PendingRun):
        return record.log_offsets[-1] + record.sizes[-1]
    return record.log_offset + record.size
