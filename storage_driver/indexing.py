"""Records → entries of the index, from the dispatch's backlog or from the log itself; for the tables' thread."""

import time
from collections.abc import Sequence
from itertools import repeat

from storage_driver.dispatch import Pending, PendingRun, placed_properties
from storage_driver.index_file import BREATH_EVERY, BREATH_S, Index, IndexKey, batch_hashes, key_hashes
from storage_driver.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from storage_driver.scan import Bad, Blank, walk
from storage_driver.segment import Segment

CATCH_UP_BYTES = 1 << 20


def index_records(index: Index, records: Sequence[Pending | PendingRun], now_ms: int) -> None:
    """Add the keys of records that became durable, in log order. Raises OSError."""
    keys: list[IndexKey] = []
    breath_at = 0
    for record in records:
        if len(keys) >= breath_at:
            time.sleep(BREATH_S)
            breath_at = len(keys) + BREATH_EVERY
        topic, stored_ms = record.queue.key.topic, record.stored_ms
        if isinstance(record, PendingRun) and (values := batch_hashes(topic, record.properties)) is not None:
            keys += zip(values, record.log_offsets, repeat(stored_ms))
            continue
        for log_offset, properties in placed_properties(record):
            for value in key_hashes(topic, properties):
                keys.append((value, log_offset, stored_ms))  # most records have one: a list costs more
    index.add(keys, now_ms)


def index_range(index: Index, segment: Segment, start: int, target: int, now_ms: int) -> int:
    """Index a stretch of one segment from the log itself; return where the next stretch begins. Raises OSError."""
    keys, done_to, (upto, had) = [], start, index.last_record()
    for number, item in enumerate(walk(segment, start, check_crc=False)):
        if number % BREATH_EVERY == 0:
            time.sleep(BREATH_S)
        if isinstance(item, Blank):
            done_to = segment.end
            break
        if isinstance(item, Bad):
            done_to = min(target, segment.end)
            break
        if item.log_offset >= upto and item.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            values = key_hashes(item.topic, item.properties)
            for value in values[had:] if item.log_offset == upto else values:
                keys.append((value, item.log_offset, item.stored_ms))
        done_to = item.log_offset + item.size
        if done_to >= target or done_to - start >= CATCH_UP_BYTES:
            break
    index.add(keys, now_ms)
    return done_to
