"""The settings of the store; every size that Apache fixes has Apache's value by default."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from storage_driver.index.index_file import IndexSize
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import FILE_ENTRIES
from storage_driver.record import DELAY_LEVELS_MS
from storage_driver.retention.rules import RetentionRules

MIB = 1 << 20


class StoreConfig(NamedTuple):
    """Settings of one store."""

    root: Path
    store_host: bytes  # address and port of this broker, as in records
    segment_bytes: int = 256 * MIB
    max_message_bytes: int = 4 * MIB
    flush_budget_ms: float = 0.0  # wait this long for company before each sync; 0: as soon as the disk is free
    delays_ms: tuple[int, ...] = DELAY_LEVELS_MS
    verdicts: Path | None = None  # folder for verdict files; None: <root>/../verdicts
    queue_file_entries: int = FILE_ENTRIES
    index_size: IndexSize = IndexSize()
    index_enabled: bool = True
    cold_readers: int = 2  # threads that wait for the disk on behalf of readers
    hot_bytes: int = 0  # distance from the log's end that counts as being in memory; 0: 40 % of RAM
    position_every_s: float = 10.0
    position_every_bytes: int = 64 * MIB
    flush_every_s: float = 0.5
    retention: RetentionRules = RetentionRules()
    trust_queues_above: int = 1000  # more queues than these are taken from their table, and looked at after the start
    start_facts: Mapping[str, object] = MappingProxyType({})  # which boot and start this is: for the verdict file
    reserve_bytes: int = 0  # of disk, let go at 95 % so that tables can still be replaced
    zero_ahead: bool = False  # write zeros behind batches of any size: faster syncs, twice the wear
    scrub_mib_per_h: int = 1024  # how much of the log is read and checked in the background
    copies_only: str | None = None  # why nothing but records of another log is appended; None: it is not so
    read_only: bool = False  # nothing is appended, and what is noted is not kept
    shared: bool = False  # other boxes have this log too: what is committed is not for this disk alone to say
