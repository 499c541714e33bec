"""What metrics tell of POP. Sans I/O."""

from storage_driver.named_tuple import NamedTuple


class PopCounts(NamedTuple):
    """Counts of POP since the start."""

    in_flight: int = 0
    waiting: int = 0  # receivers
    copied: int = 0  # messages whose time was over
    gone: int = 0  # of them, what the log no longer had
    journal_bytes: int = 0
    journal_syncs: int = 0
