"""What the store tells about itself and about what was put."""

from collections.abc import Sequence

from storage_driver.named_tuple import NamedTuple


class AppendResult:
    """Where a message is; `end` is the mark for `when_committed`."""

    __slots__ = ("end", "log_offset", "queue_offset", "size", "stored_ms")

    def __init__(self, queue_offset: int, log_offset: int, size: int, end: int, stored_ms: int) -> None:
        self.queue_offset, self.log_offset, self.size = queue_offset, log_offset, size
        self.end, self.stored_ms = end, stored_ms


class BatchAppendResult(NamedTuple):
    """Where the messages of a batch are, one after the other; `end` is the mark for `when_committed`."""

    queue_offset: int  # of the first
    log_offsets: Sequence[int]
    end: int
    stored_ms: int


class StoreStatistics(NamedTuple):
    """Counts since the store was opened; `sync_us` bucket i holds syncs that took under 2**i µs."""

    messages: int
    bytes: int
    syncs: int
    sync_s: float
    slowest_sync_s: float
    sync_us: tuple[int, ...]
    cold_reads: int
    queues: int
    first: int
    end: int
    synced: int
    committed: int
    position: int
    index_to: int
    deleted_segments: int
    damaged_ranges: int
    scrubbed_bytes: int
    disk_percent: int
    full_in_h: float | None
    full: str | None
    trouble: str | None
    scrub_passes: int = 0
    scrub_left_s: float = 0.0  # until this pass has seen everything
    latest_ms: int = 0  # time of day; a clock before it was set back


class SyncEvidence(NamedTuple):
    """What proves that the store works: seconds since the last completed sync, what waits, what failed."""

    synced_age_s: float
    waiting_s: float
    failure: str | None
